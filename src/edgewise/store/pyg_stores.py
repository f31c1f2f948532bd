"""PyG's own protocol as a source of cuts: a `FeatureStore` and a `GraphStore`, wherever they keep what they hold.

As in PyG's loaders the two come as a tuple, `(feature_store, graph_store)`. Edges are asked for once, by receiver (CSC), and
kept in memory, because the protocol hands out no parts of them; features are asked for row by row, for the nodes of a cut.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, FeatureStore, HeteroData, TensorAttr
from torch_geometric.data import GraphStore as PyGGraphStore
from torch_geometric.data.data import BaseData
from torch_geometric.data.remote_backend_utils import num_nodes

from edgewise.errors import InputError
from edgewise.graph.type_table import EdgeType
from edgewise.model.typed_call import TypedForward
from edgewise.store.edge_order import EdgeOrder, find_loops
from edgewise.store.graph_store import EdgeTable, NodeTable
from edgewise.store.store_source import StoreSource

_PLAIN = ("", "", "")


def is_pyg_stores(data: Any) -> bool:
    """Whether a pair of PyG's stores came."""
    both = isinstance(data, (tuple, list)) and len(data) == 2
    if both and any(isinstance(part, BaseData) for part in data):  # two graphs: PyG's graphs are stores, too
        return False
    return both and isinstance(data[0], FeatureStore) and isinstance(data[1], PyGGraphStore)


class RemoteRows:
    """An attribute of a feature store, read row by row: `rows[np.array([3, 5])]`."""

    def __init__(self, features: FeatureStore, attribute: TensorAttr) -> None:
        self._features, self._attribute = features, attribute

    def __getitem__(self, rows: Any) -> np.ndarray:
        numbers = np.arange(*rows.indices(1)) if isinstance(rows, slice) else np.asarray(rows)
        index = torch.from_numpy(numbers)
        name = self._attribute.attr_name
        found = self._features.get_tensor(group_name=self._attribute.group_name, attr_name=name, index=index)
        if not isinstance(found, (Tensor, np.ndarray)) or len(found) != len(index):
            raise InputError(
                f"The feature store must give {len(index)} rows of {name!r} for as many numbers, got {found!r:.80}."
            )
        return found.detach().cpu().numpy() if isinstance(found, Tensor) else found


class PyGStores:
    """The two stores, read as a graph on disk is (`GraphStore`): tables of nodes and of edges."""

    def __init__(self, stores: tuple[FeatureStore, PyGGraphStore]) -> None:
        self._features, self._graph = stores
        self.path = "the graph store"
        self._attributes = list(self._features.get_all_tensor_attrs())
        row, start, column = self._graph.csc()
        self._edges = {_key(kind): (row[kind], start[kind], column.get(kind)) for kind in row}
        groups = dict.fromkeys(one.group_name for one in self._attributes if not isinstance(one.group_name, tuple))
        ends = dict.fromkeys(end for key in self._edges for end in (key[0], key[2]))
        self._groups: dict[str, Any] = {name: name for name in (*groups, *ends)}
        self._only = _PLAIN
        if len(self._edges) == len(ends) == 1 and groups.keys() <= {None, *ends}:
            ((kind, edges),) = self._edges.items()  # one type of nodes and edges: models need not know its name
            self._groups, self._edges, self._only = {"": next(iter(groups), None)}, {_PLAIN: edges}, kind
        elif None in self._groups or "" in self._groups:
            raise InputError("PyG's stores must name the type of every table and of both ends of edges, or of none.")

    @property
    def is_typed(self) -> bool:
        """Whether there are several types."""
        return list(self._groups) != [""]

    @property
    def node_types(self) -> list[str]:
        """The groups of the feature store, and the ends of edges."""
        return list(self._groups)

    @property
    def edge_types(self) -> list[EdgeType]:
        """Those of the graph store."""
        return list(self._edges)

    @cached_property
    def _nodes(self) -> dict[str, NodeTable]:
        tables = {}
        for kind, group in self._groups.items():
            rows: Any = self._rows(group)
            tables[kind] = NodeTable(self._count(kind, group), rows, None, None, {})
        return tables

    def _rows(self, group: Any) -> dict[str, RemoteRows]:
        found = [attr for attr in self._attributes if attr.group_name == group]
        return {str(attr.attr_name): RemoteRows(self._features, attr) for attr in found}

    def _count(self, kind: str, group: Any) -> int:
        """How many nodes a type has: receivers are known by the edges, others by their features."""
        ends = [len(start) - 1 for key, (_, start, _) in self._edges.items() if key[2] == kind]
        if ends:
            return int(ends[0])
        return int(num_nodes(self._features, self._graph, group))

    def nodes(self, kind: str = "") -> NodeTable:
        """The nodes of one type."""
        return self._nodes[kind]

    def edges(self, kind: EdgeType = _PLAIN) -> EdgeTable:
        """The edges of one type."""
        return self._tables[kind]

    @cached_property
    def _tables(self) -> dict[EdgeType, EdgeTable]:
        tables = {}
        for kind, (row, start, column) in self._edges.items():
            sender, begin = row.numpy(), start.numpy()
            order = np.arange(len(sender)) if column is None else column.numpy()
            edge_index = np.empty((2, len(sender)), dtype=np.int64)
            edge_index[0, order], edge_index[1, order] = sender, np.repeat(np.arange(len(begin) - 1), np.diff(begin))
            into = EdgeOrder(begin, order, sender, self.nodes(kind[0]).count)
            rows: Any = self._rows(kind if kind != _PLAIN else self._only)
            loops = find_loops(edge_index if kind[0] == kind[2] else edge_index[:, :0])
            tables[kind] = EdgeTable(len(sender), edge_index, into, None, loops, rows, {})
        return tables

    @property
    def num_nodes(self) -> int:
        """Of all types together."""
        return sum(table.count for table in self._nodes.values())

    @property
    def num_edges(self) -> int:
        """Of all types together."""
        return sum(table.count for table in self._tables.values())

    @property
    def num_bytes(self) -> int:
        """Unknown: taken for more than fits."""
        return 2**62

    @property
    def notes(self) -> Mapping[str, Any]:
        """The protocol knows none."""
        return {}

    @cached_property
    def data(self) -> Any:
        """The types and their sizes: features are not in memory."""
        if not self.is_typed:
            return Data(edge_index=torch.from_numpy(self.edges().edge_index), num_nodes=self.num_nodes)
        found = HeteroData()
        for kind in self.node_types:
            found[kind].num_nodes = self.nodes(kind).count
        for key in self.edge_types:
            found[key].edge_index = torch.from_numpy(self.edges(key).edge_index)
        return found

    def changed(self) -> str:
        """The protocol does not say."""
        return ""


def _key(kind: Any) -> EdgeType:
    return _PLAIN if kind is None else kind


class ProtocolSource(StoreSource):
    """Cuts of one type of nodes and edges; results keep the edges themselves, not a path."""

    @property
    def about(self) -> dict[str, Any]:
        """There is no path."""
        raise AttributeError("about")


class RemoteForward(TypedForward):
    """A model of typed graphs, whose tensors are asked for when a part is run."""

    stores: PyGStores

    def _fill(self, part: HeteroData, key: Any, chosen: Tensor) -> None:
        table: Any = self.stores.edges(key) if isinstance(key, tuple) else self.stores.nodes(key)
        for name, rows in table.attributes.items():
            value = torch.from_numpy(rows[chosen.cpu().numpy()])
            part[key][name] = value.double() if self._double and value.is_floating_point() else value
