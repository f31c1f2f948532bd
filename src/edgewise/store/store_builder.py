"""Building a graph on disk: tables of nodes and edges that grow piece by piece, then the order of edges, then the manifest.

`build` finds out what the data is and lets it write itself through a `StoreWriter`. Until all of it is there, the store is in
a hidden folder beside its place, `.graph.store.unfinished`, which says who writes it: a second one is told, and what a
process that was killed has left there is removed by the next one.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch_geometric.data import Data, HeteroData

from edgewise.disk import disk_error
from edgewise.errors import FileError, InputError
from edgewise.files import is_file, is_folder, sync_folder
from edgewise.folder_lock import hidden_beside, unfinished_beside
from edgewise.inner_paths import reading
from edgewise.store.array_files import ArrayWriter, filled_array, pieces
from edgewise.store.edge_order import find_loops, order_edges
from edgewise.store.manifest import FILE, ArrayRecord, Manifest, TableRecord
from edgewise.store.name_table import write_names

_KINDS = "biuf"


class TableWriter:
    """The nodes, or the edges, of one type: attributes grow by pieces of rows."""

    def __init__(self, folder: Path, place: str, key: Any) -> None:
        self.folder, self.place, self.key = folder, place, key
        self.notes: dict[str, Any] = {}
        self._arrays: dict[str, ArrayWriter] = {}
        self._structure: dict[str, str] = {}

    @property
    def where(self) -> str:
        """The table in words, for errors."""
        return f"data[{self.key!r}]" if any(self.key) else "data"

    def add(self, name: str, piece: Any) -> None:
        """Further rows of an attribute, `[n, …]`."""
        piece = np.asarray(piece)
        if name not in self._arrays:
            if not re.fullmatch(r"\w+", name) or piece.dtype.kind not in _KINDS:
                raise InputError(
                    f"`{self.where}.{name}` cannot be stored: needed are numbers under a plain name, got {piece.dtype}. "
                    f"Remove it: del data.{name}."
                )
            self._arrays[name] = ArrayWriter(self.folder / self._file(name), piece.dtype, piece.shape[1:])
        self._arrays[name].add(piece)

    def call(self, names: Iterable[str], what: str = "names") -> None:
        """The names, or the ids, of all nodes in order."""
        files = write_names(self.folder / self.place, what, names)
        self._structure |= {f"{what}_{field}": f"{self.place}/{file}" for field, file in files.items()}

    def close(self) -> None:
        """Close all files; they are on the disk then."""
        for array in self._arrays.values():
            array.close()

    def abandon(self) -> None:
        """Close all files, half written as they are."""
        for array in self._arrays.values():
            array.abandon()

    def _file(self, name: str) -> str:
        return f"{self.place}/{name}.npy"

    def _lengths(self) -> dict[str, int]:
        self.close()
        return {name: array.rows for name, array in self._arrays.items()}

    def _record(self, count: int) -> TableRecord:
        attributes = {name: ArrayRecord.of(self.folder, self._file(name)) for name in self._arrays}
        structure = {name: ArrayRecord.of(self.folder, file) for name, file in self._structure.items()}
        return TableRecord(self.key, count, structure, attributes, self.notes)


class NodeWriter(TableWriter):
    """The nodes of one type; `num_nodes` is said if no attribute does."""

    num_nodes: int | None = None

    def finish(self) -> TableRecord:
        """Close all files; every attribute must have a row for each node."""
        lengths = self._lengths()
        named = [np.load(self.folder / file, mmap_mode="r").shape[0] - 1
                 for name, file in self._structure.items() if name.endswith("_start")]  # fmt: skip
        counts = {*lengths.values(), *named, *([] if self.num_nodes is None else [self.num_nodes])}
        if len(counts) != 1:
            lengths |= {} if self.num_nodes is None else {"num_nodes": self.num_nodes}
            told = ", ".join(f"{name} has {length}" for name, length in lengths.items()) or "there are none"
            raise InputError(
                f"`{self.where}` must have one row of each attribute, and one name, for each node: {told}"
                f"{f', {named[0]} names' if named else ''}. Give all of them for all nodes."
            )
        return self._record(counts.pop())


class EdgeWriter(TableWriter):
    """The edges of one type. The two rows of `edge_index` grow side by side: the second in a file of its own at first."""

    def __init__(self, folder: Path, place: str, key: Any) -> None:
        super().__init__(folder, place, key)
        kind = np.dtype(np.int64)
        self._rows = [ArrayWriter(folder / self._file(name), kind) for name in ("edge_index", "edge_index_1")]
        self._range = [[0, -1], [0, -1]]

    def add_ends(self, row: int, piece: Any) -> None:
        """Further senders (row 0) or receivers (row 1), `[n]`."""
        piece = np.asarray(piece)
        if piece.dtype.kind not in "iu":
            raise InputError(f"`{self.where}.edge_index` must hold whole numbers, got {piece.dtype}.")
        if piece.size:
            low, high = self._range[row]
            self._range[row] = [min(low, int(piece.min())), max(high, int(piece.max()))]
        self._rows[row].add(piece)

    def finish(self, sizes: tuple[int, int], *, both_ways: bool) -> TableRecord:
        """Join the rows, check them, and group the columns by receiver (and by sender)."""
        count = self._rows[0].rows
        self.close()
        if self._rows[1].rows != count:
            raise InputError(f"`{self.where}.edge_index` must have two rows of equal length.")
        self._check(sizes)
        edge_index = self._joined(count)
        for name, by in (("in", 1), *([("out", 0)] if both_ways else [])):
            files = {part: self._file(f"{name}_{part}") for part in ("start", "column", "other")}
            order_edges(edge_index, by, sizes, {part: self.folder / file for part, file in files.items()})
            self._structure |= {f"{name}_{part}": file for part, file in files.items()}
        self._structure["edge_index"] = self._file("edge_index")
        self._structure["loops"] = self._file("loops")
        found = find_loops(edge_index if self.key[0] == self.key[2] else edge_index[:, :0])
        with filled_array(self.folder / self._file("loops"), np.int64, found.shape) as loops:
            loops[:] = found
        for name, length in self._lengths().items():
            if length != count:
                raise InputError(f"`{self.where}.{name}` must have {count} rows, one for each edge, got {length}.")
        return self._record(count)

    def close(self) -> None:
        """Both rows, too."""
        super().close()
        for row in self._rows:
            row.close()

    def abandon(self) -> None:
        """Both rows, too."""
        super().abandon()
        for row in self._rows:
            row.abandon()

    def _check(self, sizes: tuple[int, int]) -> None:
        for (low, high), size in zip(self._range, sizes, strict=True):
            if low < 0 or high >= size:
                raise InputError(
                    f"`{self.where}.edge_index` must name nodes from 0 to {size - 1}, got {low if low < 0 else high}. Drop "
                    f"those edges, or add the missing nodes."
                )

    def _joined(self, count: int) -> np.ndarray:
        """Both rows in one file."""
        first, second = (self.folder / self._file(name) for name in ("edge_index", "edge_index_1"))
        first.rename(part := first.with_name("edge_index_0.npy"))
        with filled_array(first, np.int64, (2, count)) as edge_index:
            for row, path in enumerate((part, second)):
                if count:
                    ends = np.load(path, mmap_mode="r")
                    for some in pieces(count, 8):
                        edge_index[row, some] = ends[some]
                path.unlink()
        return edge_index


class StoreWriter:
    """A store that is being written: its tables, and what belongs to the graph as a whole."""

    def __init__(self, folder: Path, *, typed: bool = False) -> None:
        self.folder, self.typed = folder, typed
        self.notes: dict[str, Any] = {}
        self.said: list[str] = []
        """Sentences for the user, such as columns that were not read."""
        self._nodes: dict[str, NodeWriter] = {}
        self._edges: dict[tuple[str, str, str], EdgeWriter] = {}

    def nodes(self, key: str = "") -> NodeWriter:
        """The table of a node type, which begins where it is first asked for."""
        if key not in self._nodes:
            self._nodes[key] = NodeWriter(self.folder, f"nodes{len(self._nodes)}" if self.typed else "nodes", key)
        return self._nodes[key]

    def edges(self, key: tuple[str, str, str] = ("", "", "")) -> EdgeWriter:
        """The table of an edge type."""
        if key not in self._edges:
            self._edges[key] = EdgeWriter(self.folder, f"edges{len(self._edges)}" if self.typed else "edges", key)
        return self._edges[key]

    def abandon(self) -> None:
        """Close all files, finished or not."""
        for table in (*self._nodes.values(), *self._edges.values()):
            table.abandon()

    def finish(self, *, both_ways: bool) -> None:
        """Group the edges, and write the manifest."""
        nodes = {key: table.finish() for key, table in self._nodes.items()}
        if not nodes:
            raise InputError("The data must have nodes, got none.")
        if not self.typed:
            self.edges()
        edges = []
        for key, table in self._edges.items():
            for end in (key[0], key[2]):
                if end not in nodes:
                    raise InputError(f"`data` has edges of type {key}, but no nodes of type {end!r}.")
            sizes = nodes[key[0]].count, nodes[key[2]].count
            try:
                edges.append(table.finish(sizes, both_ways=both_ways))
            except MemoryError as error:
                raise InputError(f"`data` has {max(sizes)} nodes, more than can be counted in memory.") from error
        Manifest(self.typed, tuple(nodes.values()), tuple(edges), self.notes).write(self.folder)


def build(path: Path, data: Any, *, names: Sequence[str] | None = None, both_ways: bool = False) -> list[str]:
    """Write a store; returns sentences about what was left out.

    Raises:
        FileError: If the folder is there already, or a file cannot be read.
        InputError: If the data is not a graph.
    """
    if not path.name:
        raise FileError(f"{str(path)!r} is not the name of a folder. Use 'graph.store', for example.")
    if not is_folder(path.parent):
        raise FileError(f"There is no folder {path.parent}. Make it first: mkdir -p {path.parent}")
    try:
        if os.path.lexists(hidden_beside(path)) or not os.path.lexists(path):
            with unfinished_beside(path) as fresh:
                return _built(fresh, path, data, names, both_ways=both_ways)
    except OSError as error:
        raise disk_error(path, error, "Nothing was left there.") from error
    raise _taken(path)


def _built(fresh: Path, path: Path, data: Any, names: Sequence[str] | None, *, both_ways: bool) -> list[str]:
    """Write a store into a fresh folder, and give it its name."""
    if os.path.lexists(path):  # a link that leads nowhere, too
        raise _taken(path)
    writer = StoreWriter(fresh)
    try:
        _write(writer, data)
        if names is not None:
            writer.nodes().call(names)
        writer.finish(both_ways=both_ways)
    finally:
        writer.abandon()
    _flush(fresh)
    if os.path.lexists(path):
        raise _taken(path)
    fresh.rename(path)
    sync_folder(path.parent)
    return writer.said


def _taken(path: Path) -> FileError:
    return FileError(f"{path} is there already. Use another folder, or remove it first.")


def _write(writer: StoreWriter, data: Any) -> None:
    """Let the data write itself, by what it is."""
    from edgewise.store.array_sources import write_data, write_npz, write_torch
    from edgewise.store.table_sources import write_tables

    if isinstance(data, (Data, HeteroData)):
        write_data(writer, data)
        return
    if not isinstance(data, (str, os.PathLike)):
        raise InputError(
            f"`data` must be a Data, a HeteroData or the path of a file or folder, got {type(data).__name__}. Use "
            f"ew.GraphStore.build('graph.store', Data(x=x, edge_index=edge_index)), for example."
        )
    path = Path(data).expanduser()
    if is_folder(path):
        if is_file(path / FILE):
            raise FileError(f"{path} is a store already: ew.GraphStore({str(path)!r}).")
        with reading(path, "tables of nodes and edges", writing=True):
            write_tables(writer, path)
        return
    if not is_file(path):
        raise FileError(f"There is no file or folder {path} with data.")
    writers = {".npz": write_npz, ".pt": write_torch}
    if path.suffix not in writers:
        raise FileError(f"{path} must be an .npz, a .pt, or a folder with tables of nodes and edges.")
    with reading(path, "a graph", writing=True):
        writers[path.suffix](writer, path)


def _flush(folder: Path) -> None:
    """The names of all files to the disk, before the folder gets its own; their numbers are there already."""
    for inner in folder.iterdir():
        if inner.is_dir():
            sync_folder(inner)
    sync_folder(folder)
