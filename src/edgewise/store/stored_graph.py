"""StoredGraph: the graph of a result that came from a store, by its path; files keep only the columns that they speak of."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from edgewise.errors import FileError
from edgewise.inner_paths import reading
from edgewise.store.graph_store import GraphStore
from edgewise.store.manifest import Manifest
from edgewise.store.store_source import source_of

Graph = tuple[Tensor, int]
"""`edge_index` `[2, E]` and the number of nodes."""


class StoredGraph(Sequence[Graph]):
    """The one graph of a set, as `[(edge_index, number of nodes)]`; the store is opened when somebody looks at it.

    `columns` `[m]`, ascending, and `ends` `[2, m]` are what a file kept of it; of a fresh result they are None.
    """

    def __init__(
        self,
        about: Mapping[str, Any],
        sizes: tuple[int, int],
        columns: np.ndarray | None = None,
        ends: np.ndarray | None = None,
    ) -> None:
        self.about, self.num_edges, self.num_nodes = dict(about), *sizes
        """`about`: the path of the store, its digest and, of a typed one, the explained type."""
        self._columns, self._ends = columns, ends

    @classmethod
    def of(cls, source: Any) -> "StoredGraph":
        """The graph of a source that is a store."""
        found = cls(source.about, (source.num_edges, source.num_nodes))
        found.__dict__["_source"] = source
        return found

    @cached_property
    def _source(self) -> Any:
        """The store, if it is still there and the same."""
        path = Path(self.about["path"])
        try:
            same = Manifest.read(path).digest == self.about["digest"]
            store = GraphStore(path) if same else None  # nothing else is read of a folder that only a file has named
        except FileError as error:
            raise FileError(
                f"This result speaks of the graph store {path}, which cannot be opened: {error} Its rows (to_frame) can be "
                f"read without it."
            ) from error
        if store is None:
            raise FileError(
                f"The graph store {path} is another one than when this result was made. Its rows (to_frame) can be read "
                f"without it."
            )
        with reading(path, "the graph of this result"):
            return source_of(store, self.about.get("explained", ""))

    def __len__(self) -> int:
        return 1

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return (self[0],)[place]
        if place not in (0, -1):
            raise IndexError(place)
        return self._source.edge_index, self.num_nodes

    def __iter__(self) -> Iterator[Graph]:
        yield self[0]

    def __reduce__(self) -> Any:
        return StoredGraph, (self.about, (self.num_edges, self.num_nodes), self._columns, self._ends)

    def ends(self, columns: np.ndarray) -> np.ndarray:
        """`[2, n]`: both ends of some columns; those that a file kept need no store."""
        if self._columns is not None and self._ends is not None and len(self._columns):
            place = np.searchsorted(self._columns, columns).clip(max=len(self._columns) - 1)
            if np.array_equal(self._columns[place], columns):
                return self._ends[:, place]
        found: np.ndarray = self._source.ends(columns)
        return found
