"""A store with types as a source of cuts of the union of all types (`graph/type_table.py`), which is never made as a whole."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.errors import InputError
from edgewise.graph.source import Found, GraphSource
from edgewise.graph.type_table import EdgeType, TypeTable
from edgewise.store.edge_order import EdgeOrder
from edgewise.store.graph_store import GraphStore


class TypedStoreSource(GraphSource):
    """The union of a typed store, about nodes of one type: they come first. Parts have numbers in the place of features."""

    def __init__(self, store: GraphStore, explained: str) -> None:
        super().__init__()
        self.store, self.data = store, store.data
        nodes = tuple((kind, store.nodes(kind).count) for kind in store.node_types)
        self.types = TypeTable(explained, nodes, tuple((kind, store.edges(kind).count) for kind in store.edge_types))
        self.num_nodes, self.num_edges = store.num_nodes, store.num_edges

    def edges_of(self, nodes: np.ndarray, flow: str) -> Found:
        """Type by type."""
        own = 2 if flow == "source_to_target" else 0
        kinds, numbers = (part.numpy() for part in self.types.nodes_of(torch.from_numpy(nodes)))
        found = [_nothing()]
        for kind in self.types.edge_types:
            listed = np.flatnonzero(kinds == self.types.node_types.index(kind[own]))
            position, column, other = self._order(kind, flow).of(numbers[listed])
            begin = self.types.edge_range(kind).start, self.types.node_range(kind[2 - own]).start
            found.append((listed[position], column + begin[0], other + begin[1]))
        position, column, other = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return position, column, other

    def _order(self, kind: EdgeType, flow: str) -> EdgeOrder:
        edges = self.store.edges(kind)
        order = edges.into if flow == "source_to_target" else edges.out_of
        if order is None:
            raise InputError(
                f"This model's messages go against the edges, or both ways, and {self.store.path} has edges by receiver alone. "
                f"Build it again for both ways: edgewise store build --both-ways, or ew.GraphStore.build(…, both_ways=True)."
            )
        return order

    def counts(self, nodes: np.ndarray) -> np.ndarray:
        """Over all edge types."""
        kinds, numbers = (part.numpy() for part in self.types.nodes_of(torch.from_numpy(nodes)))
        found = np.zeros(len(nodes), dtype=np.int64)
        for kind in self.types.edge_types:
            listed = np.flatnonzero(kinds == self.types.node_types.index(kind[2]))
            found[listed] += self.store.edges(kind).into.counts(numbers[listed])
        return found

    def loops(self, nodes: np.ndarray) -> np.ndarray:
        """Programs of typed graphs are not moved: nobody asks."""
        raise NotImplementedError

    def part(self, node_id: Tensor, edge_id: Tensor, edge_index: Tensor) -> Data:
        """Numbers, by which the model's own tensors are looked up when it is called (`model/typed_call.py`)."""
        return Data(x=node_id.view(-1, 1), edge_index=edge_index, edge_number=edge_id, num_nodes=len(node_id))

    def ends(self, columns: np.ndarray) -> np.ndarray:
        """Read from the ends of each type."""
        kinds, numbers = (part.numpy() for part in self.types.edges_of(torch.from_numpy(columns)))
        found = np.zeros((2, len(columns)), dtype=np.int64)
        for place, kind in enumerate(self.types.edge_types):
            listed = np.flatnonzero(kinds == place)
            first, second = (self.types.node_range(end).start for end in (kind[0], kind[2]))
            ends = self.store.edges(kind).ends(numbers[listed])
            found[:, listed] = ends + np.array([[first], [second]])
        return found

    @property
    def edge_index(self) -> Tensor:
        """The union of all edge types: made, in memory, when somebody looks at a single explanation."""
        return torch.from_numpy(self.ends(np.arange(self.num_edges)))

    @property
    def row_bytes(self) -> int:
        """Of the type with the widest rows."""
        tables = [self.store.nodes(kind).attributes.values() for kind in self.store.node_types]
        return max(sum(array[:1].nbytes for array in arrays) for arrays in tables)

    @property
    def num_bytes(self) -> int:
        """Of all arrays on disk."""
        return self.store.num_bytes

    def changed(self) -> str:
        """A file of the store that was replaced."""
        return self.store.changed()

    @property
    def about(self) -> dict[str, Any]:
        """Which store it is, for results, and which type is explained."""
        path = str(self.store.path.resolve())
        return {"path": path, "digest": self.store.digest, "explained": self.types.explained}


def _nothing() -> Found:
    return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
