"""Questions about links of a typed graph (`HeteroData`): pairs of one edge type, asked of the union of all types."""

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from edgewise.errors import StaleQuestionError
from edgewise.graph.pair_copies import LinkColumns
from edgewise.graph.type_table import TypeTable, check_typed, union_of
from edgewise.model.link_call import PAIRS
from edgewise.model.typed_link_call import TypedLinkForward
from edgewise.question.labels import labels_of_pairs, read_labels
from edgewise.question.link_question import LinkQuestion
from edgewise.question.node_question import NodeQuestion
from edgewise.question.pair_index import read_typed_pairs
from edgewise.question.posed_question import Asked
from edgewise.question.subject import DataMark
from edgewise.question.typed_question import flat_data, typed_strangers


class TypedLinkQuestion(LinkQuestion):
    """Pairs of nodes of two types (or of one). Numbers of nodes and columns are those of the union of all types."""

    types: TypeTable

    def __init__(self, model: Any, data: HeteroData, index: Any, asked: Asked) -> None:
        graph = _without_typed_labels(data)
        check_typed(graph)
        kind, pairs, single = read_typed_pairs(index, data)
        self._hetero, self._own_asked = data, asked
        self.types = TypeTable.of(graph, kind[0], kind)
        self._typed_mark = DataMark([flat_data(graph)], held=asked.held)
        here = graph if asked.device is None else copy.copy(graph).to(torch.device(asked.device))
        self._typed_forward = TypedLinkForward(here, self.types, asked.forward)
        super().__init__(model, union_of(graph, self.types), _in_union(pairs, self.types, single=single), asked)

    def of(self, index: Any, target: Any = None) -> "TypedLinkQuestion":
        """The same question about other pairs; those of another type are a new question."""
        kind, pairs, single = read_typed_pairs(index, self._hetero)
        if kind != self.types.link:
            asked = replace(self._own_asked, target=target)
            return TypedLinkQuestion(self.subject.user_model, self._hetero, index, asked)
        other = super().of(_in_union(pairs, self.types, single=single), target)
        assert isinstance(other, TypedLinkQuestion)
        return other

    def check_fresh(self) -> None:
        """Refuse if the model or the data have changed since."""
        super().check_fresh()
        what = self._typed_mark.changed([flat_data(_without_typed_labels(self._hetero))])
        if what:
            raise StaleQuestionError(
                f"The data have changed since the question was asked: {what}. Ask again: ew.Question(model, data, …)."
            )

    def _forward(self, asked: Asked) -> Any:
        return self._typed_forward

    def _labels_at(self, index: Tensor | None) -> Tensor | None:
        """Of pairs: `edge_label` of the asked edge type."""
        kind = self.types.link
        if kind not in self._hetero.edge_types:
            return None
        store = self._hetero[kind]
        labels, known = store.get("edge_label"), store.get(PAIRS)
        if index is None:
            return read_labels(labels, known.size(1)) if isinstance(known, Tensor) and known.dim() == 2 else None
        starts = torch.tensor(self.types.link_starts)
        return labels_of_pairs(labels, known, index - starts, self._graph.num_nodes)

    def _strangers(self) -> tuple[Tensor, Tensor]:
        return typed_strangers(self.types, self._graph.edge_index.device)

    def _find_encoder(self, model: Any) -> NodeQuestion | None:
        """None: a typed model has a last layer for each edge type."""
        return None

    def _links(self, pairs: Tensor) -> LinkColumns:
        """Columns u → v of the asked type, and v → u of every type that leads back."""
        assert self.types.link is not None
        there = self.types.edge_range(self.types.link) if self.types.link in self.types.edge_types else range(0)
        return LinkColumns.of(pairs, self.cut.data.edge_index, self.cut.data.num_nodes, there)


def _in_union(pairs: Tensor, types: TypeTable, *, single: bool) -> Any:
    """Pairs `[T, 2]` of nodes of the union, in the form in which they were passed."""
    found = pairs + torch.tensor(types.link_starts)
    return tuple(found[0].tolist()) if single else found.t()


def _without_typed_labels(data: HeteroData) -> HeteroData:
    """The graph without the pairs and labels that a split left in it, and without edge types that have nothing else."""
    graph = copy.copy(data)
    for store in graph.edge_stores:
        for key in (PAIRS, "edge_label"):
            if key in store:
                del store[key]
    for kind in [kind for kind in graph.edge_types if "edge_index" not in graph[kind]]:
        del graph[kind]
    return graph
