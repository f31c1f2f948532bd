"""Questions about nodes of a typed graph (`HeteroData`), and about whole typed graphs: asked of the union of all types."""

import copy
import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from edgewise.errors import OutputWarning, StaleQuestionError
from edgewise.graph.type_table import TypeTable, check_typed, read_typed_graphs, read_typed_index, union_of
from edgewise.model.typed_batch import TypedBatchForward, typed_union
from edgewise.model.typed_call import TypedForward
from edgewise.question.graph_question import GraphQuestion
from edgewise.question.node_question import NodeQuestion, labels_of_nodes
from edgewise.question.posed_question import Asked
from edgewise.question.subject import DataMark, on_device

_OF_EACH = 3
"""Nodes and columns of each type that are shown to a model at first."""


class TypedQuestion(NodeQuestion):
    """Nodes of one type of a typed graph. Numbers of nodes and columns are those of the union, targets come first in it."""

    types: TypeTable

    def __init__(self, model: Any, data: HeteroData, index: Any, asked: Asked) -> None:
        check_typed(data)
        name, inside = read_typed_index(index, data)
        self._hetero, self._own_asked = data, asked
        self.types = table = TypeTable.of(data, name)
        self._typed_mark = DataMark([flat_data(data)], held=asked.held)
        here = on_device([data], asked.device)[0]
        self._forward = TypedForward(here, table, asked.forward)
        count = len(table.node_range(name))
        super().__init__(model, union_of(data, table), inside, replace(asked, forward=self._forward))
        warn_of_counts(table, count, self._forward)

    def of(self, index: Any, target: Any = None) -> "TypedQuestion":
        """The same question about other nodes; those of another type are a new question."""
        name, inside = read_typed_index(index, self._hetero)
        if name != self.types.explained:
            asked = replace(self._own_asked, target=target)
            return TypedQuestion(self.subject.user_model, self._hetero, index, asked)
        other = super().of(inside, target)
        assert isinstance(other, TypedQuestion)
        return other

    def check_fresh(self) -> None:
        """Refuse if the model or the data have changed since."""
        super().check_fresh()
        what = self._typed_mark.changed([flat_data(self._hetero)])
        if what:
            raise StaleQuestionError(
                f"The data have changed since the question was asked: {what}. Ask again: ew.Question(model, data, …)."
            )

    def _labels_at(self, index: Tensor | None) -> Tensor | None:
        """Of nodes: `y` of their type."""
        return typed_labels(self._hetero, self.types, index, self.target.truth.size(1))

    def _given_labels(self) -> Any:
        return self._hetero[self.types.explained].get("y")

    def _strangers(self) -> tuple[Tensor, Tensor]:
        """A few of every type: a model may not run on types without nodes."""
        return typed_strangers(self.types, self._graph.edge_index.device)


def typed_labels(data: HeteroData, types: TypeTable, index: Tensor | None, width: int) -> Tensor | None:
    """The labels of some nodes of the explained type; None: of all."""
    return labels_of_nodes(data[types.explained], len(types.node_range(types.explained)), index, width)


def warn_of_counts(types: TypeTable, count: int, forward: TypedForward) -> None:
    """One tensor may hold the rows of another type that has as many nodes."""
    name = types.explained
    twins = [other for other, number in types.nodes if number == count and other != name]
    if twins and not forward.returned_table:
        warnings.warn(
            f"The model gave one tensor of {count} rows: they are taken for those of {name!r}, but {twins[0]!r} has as "
            f"many nodes. Use forward=lambda model, data: {{{name!r}: model(...)}} to say whose they are.",
            OutputWarning,
            stacklevel=3,
        )


def typed_strangers(types: TypeTable, device: torch.device) -> tuple[Tensor, Tensor]:
    """A few nodes and columns of every type, as numbers of the union."""
    nodes = [torch.tensor(types.node_range(name)[:_OF_EACH], device=device) for name in types.node_types]
    columns = [torch.tensor(types.edge_range(kind)[:_OF_EACH], device=device) for kind in types.edge_types]
    return torch.cat(nodes).long(), torch.cat([nodes[0][:0], *columns]).long()


class TypedGraphQuestion(GraphQuestion):
    """Whole typed graphs, a target each. Numbers of nodes and columns are those of the union of each graph."""

    types: TypeTable

    def _read(self, data: Any) -> list[Data]:
        self._hetero = read_typed_graphs(data)
        self._tables = [TypeTable.of(graph, "") for graph in self._hetero]
        self.types = self._tables[0]
        self._typed_mark = DataMark([flat_data(graph) for graph in self._hetero], held=self.asked.held)
        pairs = zip(self._hetero, self._tables, strict=True)
        return [typed_union(graph, table, number) for number, (graph, table) in enumerate(pairs)]

    def _forward(self) -> TypedBatchForward:
        device = self.asked.device
        moved = [graph if device is None else copy.copy(graph).to(torch.device(device)) for graph in self._hetero]
        return TypedBatchForward(moved, self.types, self.asked.forward)

    def _label_of(self, number: int) -> Any:
        return getattr(self._hetero[number], "y", None)

    def types_of(self, position: int) -> TypeTable:
        """The types of the graph of a target."""
        return self._tables[int(self.index[position])]

    def check_fresh(self) -> None:
        """Refuse if the model or the graphs have changed since."""
        self.subject.check_fresh()
        what = self._typed_mark.changed([flat_data(graph) for graph in read_typed_graphs(self._data)])
        if what:
            raise StaleQuestionError(
                f"The data have changed since the question was asked: {what}. Ask again: ew.Question(model, data, …)."
            )

    def _lowered(self, trace: Any, copies: Any, engine: Any) -> None:
        """A program would not know what the forward makes of the union."""
        return


def flat_data(data: HeteroData) -> Data:
    """All attributes side by side under names such as `['paper'].x`, to be compared."""
    flat = Data()
    for key in (*data.node_types, *data.edge_types):
        for name, value in data[key].items():
            flat[f"[{key!r}].{name}"] = value
    return flat
