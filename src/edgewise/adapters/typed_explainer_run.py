"""PyG's explainers on nodes of a typed graph: they get dictionaries by type, and their masks come back as one."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, ExplainerAlgorithm, PGExplainer

from edgewise.adapters.from_pyg import ExplainerRun
from edgewise.adapters.pyg_call import TypedCalledByPyG, loops_last
from edgewise.errors import ModelError, SettingError
from edgewise.graph.type_table import EdgeType
from edgewise.model.typed_call import TypedForward, TypedPart
from edgewise.question import PosedQuestion


class TypedExplainerRun(ExplainerRun):
    """One algorithm on nodes of one type; PyG puts its masks into the `ModuleDict`s whose keys are edge types."""

    def __init__(self, question: PosedQuestion, algorithm: ExplainerAlgorithm, seed: int) -> None:
        super().__init__(question, algorithm, seed)
        if isinstance(algorithm, PGExplainer):
            raise SettingError("PyG's PGExplainer takes a Data, got a HeteroData. Use GNNExplainer, for example.")
        assert isinstance(question.call.forward, TypedForward)
        self._typed = question.call.forward

    def _mask(self, position: int, index: int) -> Tensor:
        """`[E]`: the masks of all edge types, in the columns of the union."""
        graph = self.question.graphs[0]
        part = self._typed.part(graph)
        given, order = _arranged(part)
        column = int(self.question.target.column[position])
        target = self._targets(graph, index, column) if self._kind == "phenomenon" else None
        explained = None
        if self._captum:
            explained = replace(
                self.question.target, column=self.question.target.column.new_full((graph.num_nodes,), column)
            )
        called = TypedCalledByPyG(self._fresh_call(), graph, given, explained).eval()
        explainer = Explainer(
            called, copy.deepcopy(self.algorithm), self._kind, self._config, edge_mask_type="object"
        )  # fmt: skip
        x = {name: part.data[name].x for name in part.nodes if "x" in part.data[name]}
        edge_index = {kind: given[kind, "edge_index"] for kind in part.columns}
        found = explainer(x, edge_index, target=target, index=index)
        return self._joined(found, part, order)

    def _joined(self, found: Any, part: TypedPart, order: Mapping[EdgeType, Tensor]) -> Tensor:
        masks = found.collect("edge_mask", allow_empty=True)
        truth = self.question.target.truth
        joined = torch.zeros(sum(map(len, part.columns.values())), dtype=truth.dtype, device=truth.device)
        for kind, columns in part.columns.items():
            mask = masks.get(kind)
            if len(columns) and (mask is None or mask.numel() != len(columns)):
                raise ModelError(
                    f"{self.name} must give a mask with a number for each of the {len(columns)} edges of type {kind}, but did "
                    f"not. It finds layers in a ModuleDict by their edge types, as HeteroConv and to_hetero have them."
                )
            if len(columns):
                joined[columns[order[kind]]] = mask.detach().to(truth.dtype)
        return joined


def _arranged(part: TypedPart) -> tuple[dict[tuple[Any, str], Tensor], dict[EdgeType, Tensor]]:
    """The columns of each type with loops last, as `loops_last` has them, with what belongs to them; and their order."""
    values: dict[tuple[Any, str], Tensor] = {}
    order: dict[EdgeType, Tensor] = {}
    for kind in part.columns:
        store = part.data[kind]
        plain = Data(edge_index=store.edge_index, num_nodes=part.data[kind[0]].num_nodes)
        moved = loops_last(plain)[1] if kind[0] == kind[2] else torch.arange(store.edge_index.size(1))
        order[kind] = moved.to(store.edge_index.device)
        for name, value in store.items():
            if isinstance(value, Tensor) and (name == "edge_index" or store.is_edge_attr(name)):
                values[kind, name] = value.index_select(1 if name == "edge_index" else 0, order[kind])
    return values, order
