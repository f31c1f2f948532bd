"""Questions about nodes of a graph on disk (`store/`), with types or without."""

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import InputError
from edgewise.graph.cut import Cut
from edgewise.graph.inputs import check_values
from edgewise.graph.type_table import TypeTable, read_typed_index
from edgewise.model.typed_call import TypedForward
from edgewise.question.posed_question import Asked, PosedQuestion
from edgewise.question.source_link_question import SourceLinkQuestion
from edgewise.question.source_question import SourceQuestion
from edgewise.question.typed_question import typed_labels, typed_strangers, warn_of_counts
from edgewise.store.graph_store import GraphStore
from edgewise.store.pyg_stores import ProtocolSource, PyGStores, RemoteForward, is_pyg_stores
from edgewise.store.store_source import StoreSource
from edgewise.store.typed_source import TypedStoreSource


class TypedSourceQuestion(SourceQuestion):
    """Nodes of one type of a typed graph on disk; numbers are those of the union, as in `TypedQuestion`."""

    types: TypeTable

    def __init__(self, model: Any, store: GraphStore, index: Any, asked: Asked) -> None:
        self._hetero, self._own_asked, self._stored = copy.copy(store.data), asked, store
        name, inside = read_typed_index(index, self._hetero)
        if asked.device is not None and torch.device(asked.device).type != "cpu":
            raise InputError(f"A typed graph store is explained on the CPU, got device={asked.device!r}. Leave it out.")
        source = TypedStoreSource(store, name)
        self.types = source.types
        self._forward = _forward(store, self._hetero, source.types, asked)
        super().__init__(model, source, inside, replace(asked, forward=self._forward))
        warn_of_counts(self.types, len(self.types.node_range(name)), self._forward)

    def of(self, index: Any, target: Any = None) -> SourceQuestion:
        """The same question about other nodes; those of another type are a new question."""
        name, inside = read_typed_index(index, self._hetero)
        if name != self.types.explained:
            asked = replace(self._own_asked, target=target)
            return TypedSourceQuestion(self.subject.user_model, self._stored, index, asked)
        return super().of(inside, target)

    def _labels_at(self, index: Tensor | None) -> Tensor | None:
        """Of nodes: `y` of their type."""
        return typed_labels(self._hetero, self.types, index, self.target.truth.size(1))

    def _given_labels(self) -> Any:
        return self._hetero[self.types.explained].get("y")

    def _strangers(self) -> tuple[Tensor, Tensor]:
        """A few of every type: a model may not run on types without nodes."""
        return typed_strangers(self.types, torch.device("cpu"))

    def _find_cut(self) -> Cut:
        """The cut, whose values are looked at type by type."""
        cut = super()._find_cut()
        part = self._forward.part(cut.data).data
        for key in (*part.node_types, *part.edge_types):
            check_values(part[key], f"data[{key!r}]")
        return cut


def _forward(store: Any, data: Any, types: TypeTable, asked: Asked) -> TypedForward:
    """How the model is called on a part of a typed store."""
    if not isinstance(store, PyGStores):
        return TypedForward(data, types, asked.forward)
    forward = RemoteForward(data, types, asked.forward)
    forward.stores = store
    return forward


def pose_stored(model: Any, store: Any, index: Any, asked: Asked, task: str) -> PosedQuestion:
    """A question about nodes of a graph on disk, or of a pair of PyG's stores; on disk and without types, about links."""
    if is_pyg_stores(store):
        store = PyGStores(store)
    if task == "link" and isinstance(store, GraphStore) and not store.is_typed:
        return SourceLinkQuestion(model, StoreSource(store), index, asked)
    if task != "node":
        raise InputError(
            f"A graph store is explained node by node, and without types link by link, got task={task!r}. For a store that "
            "fits into memory, use store.data."
        )
    if store.is_typed:
        return TypedSourceQuestion(model, store, index, asked)
    if isinstance(store, PyGStores):
        return SourceQuestion(model, ProtocolSource(store), index, asked)  # type: ignore[arg-type]
    return SourceQuestion(model, StoreSource(store), index, asked)
