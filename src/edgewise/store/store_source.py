"""A store as a source of cuts (`graph/source.py`): edges by vectorised lookups, attributes of the rows that are asked for."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.errors import InputError
from edgewise.graph.source import Found, GraphSource
from edgewise.store.graph_store import GraphStore
from edgewise.store.typed_source import TypedStoreSource


class StoreSource(GraphSource):
    """The graph of a store without types."""

    def __init__(self, store: GraphStore) -> None:
        super().__init__()
        self.store, self.data = store, store.data
        self._nodes, self._edges = store.nodes(), store.edges()
        self.num_nodes, self.num_edges = store.num_nodes, store.num_edges
        if "x" not in self._nodes.attributes:
            raise InputError(
                f"The nodes of {store.path} must have features `x`, and have none. Build the store with them."
            )

    def edges_of(self, nodes: np.ndarray, flow: str) -> Found:
        """By the order of edges on disk."""
        if flow == "source_to_target":
            return self._edges.into.of(nodes)
        if self._edges.out_of is None:
            raise InputError(
                f"This model's messages go against the edges, or both ways, and {self.store.path} has edges by receiver alone. "
                f"Build it again for both ways: edgewise store build --both-ways, or ew.GraphStore.build(…, both_ways=True)."
            )
        return self._edges.out_of.of(nodes)

    def some_edges_of(self, node: int, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """These alone are read."""
        return self._edges.into.some(node, part)

    def counts(self, nodes: np.ndarray) -> np.ndarray:
        """By where the edges of each node begin and end."""
        return self._edges.into.counts(nodes)

    def loops(self, nodes: np.ndarray) -> np.ndarray:
        """By the list of nodes that have loops."""
        known, count = self._edges.loops
        if len(known) == 0:
            return np.zeros(len(nodes), dtype=np.int64)
        place = np.searchsorted(known, nodes).clip(max=len(known) - 1)
        return np.where(known[place] == nodes, count[place], 0)

    def part(self, node_id: Tensor, edge_id: Tensor, edge_index: Tensor) -> Data:
        """The rows of some nodes and edges, copied; what belongs to the graph as a whole comes along."""
        found: dict[str, Any] = {
            name: torch.from_numpy(array[ids.numpy()])
            for table, ids in ((self._nodes, node_id), (self._edges, edge_id))
            for name, array in table.attributes.items()
        }
        return Data(**found, **self.store.notes, edge_index=edge_index, num_nodes=len(node_id))

    def ends(self, columns: np.ndarray) -> np.ndarray:
        """Read from the ends on disk."""
        return self._edges.ends(columns)

    @property
    def edge_index(self) -> Tensor:
        """Mapped."""
        found: Tensor = self.data.edge_index
        return found

    @property
    def row_bytes(self) -> int:
        """Of all attributes of nodes."""
        return sum(array[:1].nbytes for array in self._nodes.attributes.values())

    @property
    def num_bytes(self) -> int:
        """Of all arrays on disk."""
        return self.store.num_bytes

    def changed(self) -> str:
        """A file of the store that was replaced."""
        return self.store.changed()

    @property
    def about(self) -> dict[str, Any]:
        """Which store it is, for results."""
        return {"path": str(self.store.path.resolve()), "digest": self.store.digest}


def source_of(store: GraphStore, explained: str = "") -> GraphSource:
    """The source of cuts of a store; of a typed one, about nodes of one type."""
    return TypedStoreSource(store, explained) if store.is_typed else StoreSource(store)
