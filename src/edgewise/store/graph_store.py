"""GraphStore: a graph on disk that is accepted wherever data is. Only the neighbourhoods that are asked about are ever read.

A store is a folder of arrays (`manifest.py`): for every node type its features, labels, masks and names; for every edge type
both ends in the order in which they came, the columns grouped by receiver, and the attributes of edges. All of them are mapped,
so that several processes share what the system has in its page cache.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData

from edgewise.contract import checked
from edgewise.errors import FileError, InputError
from edgewise.inner_paths import reading
from edgewise.store.array_files import digest_of_array
from edgewise.store.edge_order import EdgeOrder, altered
from edgewise.store.manifest import FILE, Manifest, TableRecord, check_tables
from edgewise.store.name_table import FIELDS, NameTable

_SMALL = 2**26
"""Bytes of a store that is verified whenever it is opened."""


@dataclass(frozen=True, eq=False)
class NodeTable:
    """The nodes of one type."""

    count: int
    attributes: Mapping[str, np.ndarray]
    ids: NameTable | None
    """An id for each node, all different."""
    names: NameTable | None
    """A name for each node, to show; names may repeat."""
    notes: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class EdgeTable:
    """The edges of one type."""

    count: int
    edge_index: np.ndarray
    """`[2, E]`, in the order in which the edges came."""
    into: EdgeOrder
    """Columns by receiver."""
    out_of: EdgeOrder | None
    """Columns by sender, if the store was built with `both_ways`."""
    loops: np.ndarray
    """`[2, n]`: nodes with edges to themselves, ascending, and how many."""
    attributes: Mapping[str, np.ndarray]
    notes: Mapping[str, Any]

    def ends(self, columns: np.ndarray) -> np.ndarray:
        """`[2, n]`: senders and receivers of some columns, checked.

        Raises:
            FileError: If the numbers cannot be those of the graph: the file was altered.
        """
        found = np.asarray(self.edge_index[:, columns])
        counts = np.array([[self.into.others], [len(self.into.start) - 1]])
        if not ((found >= 0) & (found < counts)).all():
            raise altered()
        return found


class GraphStore:
    """A graph on disk: `ew.GraphStore(path)` opens it, `ew.GraphStore.build(path, data)` makes one.

    Pass it wherever `data` is taken, to `ew.explain`, `ew.Question` or `ew.jobs.run`: what the targets can see is read, and
    nothing else. Columns and nodes have the numbers that they had in what the store was built from.

    >>> import tempfile; from edgewise.examples import path_model
    >>> from edgewise.api.explain import explain
    >>> model, data = path_model(gains=[2.0, 3.0])           # 0 ─2→ 1 ─3→ 2
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = GraphStore.build(f"{folder}/graph", data)
    ...     store.num_nodes, store.num_edges, explain(model, store, index=2).scores
    (3, 2, tensor([6., 6.]))
    """

    @checked
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self._manifest = Manifest.read(self.path)
        self._state, self._verified = self._files(), dict[str, tuple[int, ...] | None]()
        self.digest = self._manifest.digest
        """SHA-256 of everything in it."""
        with reading(self.path / FILE, "the manifest of a graph"):
            check_tables(self._manifest)
            self._nodes = {table.key: self._node_table(table) for table in self._manifest.nodes}
            self._edges = {table.key: self._edge_table(table) for table in self._manifest.edges}
        if self.num_bytes <= _SMALL:
            self.verify()

    @classmethod
    @checked
    def build(
        cls, path: str | Path, data: Any, *, names: Sequence[str] | None = None, both_ways: bool = False
    ) -> "GraphStore":
        """Write a graph to a new folder, piece by piece, and open it.

        Args:
            path: The folder; it must not be there yet.
            data: A `Data` or a `HeteroData`; or a path: an `.npz` with `x`, `edge_index` and other arrays, a `.pt` that PyG
                saved, or a folder with `nodes` and `edges` as `.csv` or `.parquet` (of a typed graph `nodes_TYPE` and
                `edges_SOURCE__RELATION__TARGET`). Tables need `edgewise[table]`.
            names: A name for each node, if `data` has none.
            both_ways: Group edges by their senders, too: for models whose messages go against the edges, or both ways.
        """
        from edgewise.store.store_builder import build

        build(Path(path).expanduser(), data, names=names, both_ways=both_ways)
        return cls(path)

    # --- what is in it ------------------------------------------------------------------------------------------------

    @property
    def is_typed(self) -> bool:
        """Whether nodes and edges have types."""
        return self._manifest.typed

    @property
    def node_types(self) -> list[str]:
        """The types of nodes; one without a name where there are no types."""
        return list(self._nodes)

    @property
    def edge_types(self) -> list[tuple[str, str, str]]:
        """The types of edges."""
        return list(self._edges)

    @property
    def num_nodes(self) -> int:
        """Of all types together."""
        return sum(table.count for table in self._nodes.values())

    @property
    def num_edges(self) -> int:
        """Of all types together."""
        return sum(table.count for table in self._edges.values())

    @property
    def num_bytes(self) -> int:
        """Of all arrays on disk."""
        return sum(int(np.prod(one.shape)) * np.dtype(one.dtype).itemsize for one in self._manifest.arrays)

    @property
    def notes(self) -> Mapping[str, Any]:
        """Attributes of the graph that are no arrays, such as `feature_names` and `class_names`."""
        return self._manifest.notes

    def nodes(self, kind: str = "") -> NodeTable:
        """The nodes of one type."""
        return self._nodes[kind]

    def edges(self, kind: tuple[str, str, str] = ("", "", "")) -> EdgeTable:
        """The edges of one type."""
        return self._edges[kind]

    def names(self, kind: str = "") -> NameTable | None:
        """The names of the nodes (of one type), or else their ids, read when they are looked at; None if they have neither."""
        return self._nodes[kind].names or self._nodes[kind].ids

    @checked
    def node(self, name: str, kind: str = "") -> int:
        """The number of the node (of one type) that has this id, or else this name.

        Raises:
            InputError: If no node has it, or several do.
        """
        table = self._nodes.get(kind)
        known = [] if table is None else [one for one in (table.ids, table.names) if one is not None]
        found = next((nodes for one in known if (nodes := one.find(name))), [])
        if len(found) != 1:
            what = f"{len(found) or 'No'} nodes are called {name!r}" if known else "Nodes have no names"
            raise InputError(f"{what} in {self.path}. Use the number of a node.")
        return found[0]

    @cached_property
    def data(self) -> Any:
        """The graph as a `Data` or `HeteroData` whose tensors are mapped: they take no memory until they are looked at."""
        found: Any = HeteroData() if self.is_typed else Data()
        for kind, nodes in self._nodes.items():
            _fill(found[kind] if self.is_typed else found, nodes.attributes, nodes.notes)
            if self.is_typed:
                found[kind].num_nodes = nodes.count
        for key, edges in self._edges.items():
            inside = found[key] if self.is_typed else found
            inside.edge_index = torch.from_numpy(edges.edge_index)
            _fill(inside, edges.attributes, edges.notes)
        if not self.is_typed:
            found.num_nodes = self.num_nodes
        for name, value in self.notes.items():
            found[name] = value
        return found

    def __reduce__(self) -> Any:
        return GraphStore, (str(self.path.resolve()),)  # it travels by path

    def __repr__(self) -> str:
        types = f", {len(self.node_types)} node types, {len(self.edge_types)} edge types" if self.is_typed else ""
        return f"GraphStore({str(self.path)!r}: {self.num_nodes} nodes, {self.num_edges} edges{types})"

    # --- whether it is what it was ------------------------------------------------------------------------------------

    @checked
    def verify(self) -> None:
        """Read every array once and compare it with its digest; files that were compared and are the same are not read again.

        Raises:
            FileError: If a file was altered.
        """
        now = self._files()
        if self._verified == now:
            return
        for one in self._manifest.arrays:
            if digest_of_array(one.path(self.path)) != one.digest:
                raise FileError(
                    f"{self.path / one.file} is not what was written: it was altered. Build the store again."
                )
        self._verified = now

    def changed(self) -> str:
        """A file that is another one than when the store was opened; empty if none is."""
        now = self._files()
        return next((name for name, state in self._state.items() if now.get(name) != state), "")

    def _files(self) -> dict[str, tuple[int, ...] | None]:
        """Inode, length and time of every file."""
        names = [FILE, *(one.file for one in self._manifest.arrays)]
        return {name: _state(self.path / name) for name in names}

    def _node_table(self, table: TableRecord) -> NodeTable:
        parts = {name: one.open(self.path) for name, one in table.structure.items()}
        attributes = {name: one.open(self.path) for name, one in table.attributes.items()}
        ids, names = (
            NameTable(*(parts[f"{what}_{name}"] for name in FIELDS)) if f"{what}_start" in parts else None
            for what in ("ids", "names")
        )
        return NodeTable(table.count, attributes, ids, names, table.notes)

    def _edge_table(self, table: TableRecord) -> EdgeTable:
        parts = {name: one.open(self.path) for name, one in table.structure.items()}
        attributes = {name: one.open(self.path) for name, one in table.attributes.items()}
        source, _, receiver = table.key
        into = _order(parts, "in", self._nodes[source].count)
        out = _order(parts, "out", self._nodes[receiver].count) if "out_start" in parts else None
        return EdgeTable(table.count, parts["edge_index"], into, out, parts["loops"], attributes, table.notes)


def _order(parts: Mapping[str, np.ndarray], way: str, others: int) -> EdgeOrder:
    return EdgeOrder(parts[f"{way}_start"], parts[f"{way}_column"], parts[f"{way}_other"], others)


def _state(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _fill(table: Any, arrays: Mapping[str, np.ndarray], notes: Mapping[str, Any]) -> None:
    """Arrays as tensors that share their memory, and what is no array."""
    for name, array in arrays.items():
        table[name] = torch.from_numpy(array)
    for name, value in notes.items():
        table[name] = value
