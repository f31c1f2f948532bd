"""The edges of a graph on disk, grouped by one of their ends (CSR): made in pieces, looked up for many nodes at once.

Grouping goes over the columns twice: first every node's edges are counted, then every column is put where it belongs. In memory
are a counter for each node and a piece of the columns, whatever the number of edges.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgewise.errors import FileError
from edgewise.store.array_files import filled_array, pieces

Found = tuple[np.ndarray, np.ndarray, np.ndarray]
"""For each edge that was found: the position of its node in the list, its column, and the node at its other end."""


@dataclass(frozen=True, eq=False)
class EdgeOrder:
    """Columns grouped by node: those of node v are `column[start[v]:start[v + 1]]`, ascending.

    >>> order = EdgeOrder(np.array([0, 0, 1, 3]), np.array([2, 0, 1]), np.array([0, 1, 0]), 3)    # 1 → 2, 0 → 2, 0 → 1
    >>> position, column, other = order.of(np.array([2, 1]))
    >>> position.tolist(), column.tolist(), other.tolist()
    ([0, 0, 1], [0, 1, 2], [1, 0, 0])
    """

    start: np.ndarray
    """`[nodes + 1]`."""
    column: np.ndarray
    """`[E]`: columns of `edge_index`."""
    other: np.ndarray
    """`[E]`: the node at the other end of `column[i]`."""
    others: int
    """How many nodes there are at the other ends: what is read is checked against it."""

    def of(self, nodes: np.ndarray) -> Found:
        """All edges of the listed nodes, one after the other, `[n]` each.

        Raises:
            FileError: If the numbers cannot be those of the graph: the file was altered.
        """
        begin, count = self._ranges(nodes)
        position = np.repeat(np.arange(len(nodes)), count)
        place = np.arange(int(count.sum())) + (begin - count.cumsum() + count)[position]
        return position, *self._at(place)

    def some(self, node: int, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """Columns and other ends of some of the edges of one node.

        >>> order = EdgeOrder(np.array([0, 0, 1, 3]), np.array([2, 0, 1]), np.array([0, 1, 0]), 3)
        >>> column, other = order.some(2, slice(1, 9))
        >>> column.tolist(), other.tolist()
        ([1], [0])
        """
        begin, count = self._ranges(np.array([node]))
        place = range(int(begin[0]), int(begin[0] + count[0]))[part]
        return self._at(np.arange(place.start, place.stop))

    def _ranges(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`[listed]` each: where the edges of each listed node begin, and how many there are, checked."""
        begin, end = self.start[nodes].astype(np.int64), self.start[nodes + 1].astype(np.int64)
        if not ((begin >= 0) & (begin <= end) & (end <= len(self.column))).all():
            raise altered()
        return begin, end - begin

    def _at(self, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Columns and other ends at some places, checked."""
        column, other = self.column[place].astype(np.int64), self.other[place].astype(np.int64)
        if len(place) and (
            min(int(column.min()), int(other.min())) < 0
            or int(other.max()) >= self.others
            or int(column.max()) >= len(self.column)
        ):
            raise altered()
        return column, other

    def counts(self, nodes: np.ndarray) -> np.ndarray:
        """`[listed]`: how many edges each listed node has."""
        return self._ranges(nodes)[1]


def altered() -> FileError:
    """Numbers on the disk cannot be those of the graph."""
    return FileError("The edges of the store are not what was written: a file was altered. Build the store again.")


def smallest(most: int) -> type:
    """The integers that are wide enough: half the room on disk, where that will do."""
    return np.int32 if most < 2**31 else np.int64


def find_loops(edge_index: np.ndarray) -> np.ndarray:
    """`[2, n]`: the nodes that have edges to themselves, ascending, and how many; `edge_index` `[2, E]` is on disk.

    >>> find_loops(np.array([[0, 2, 1, 2], [1, 2, 0, 2]]))
    array([[2],
           [2]])
    """
    found = [np.zeros(0, dtype=np.int64)]
    for part in pieces(edge_index.shape[1], 16):
        ends = edge_index[:, part]
        found.append(ends[0][ends[0] == ends[1]])
    return np.stack(np.unique(np.concatenate(found), return_counts=True))


def order_edges(edge_index: np.ndarray, by: int, sizes: tuple[int, int], files: Mapping[str, Path]) -> None:
    """Group the columns of `edge_index` `[2, E]`, which is on disk, by row `by`; `sizes` count the nodes of both ends.

    Writes the `files` of `start`, `column` and `other`.
    """
    ends, others, total = edge_index[by], edge_index[1 - by], edge_index.shape[1]
    counted = np.zeros(sizes[by] + 1, dtype=np.int64)
    for part in pieces(total, 8):
        counted[1:] += np.bincount(ends[part], minlength=sizes[by])
    kinds = {"start": np.int64, "column": smallest(total), "other": smallest(sizes[1 - by])}
    with ExitStack() as stack:
        start, column, other = (
            stack.enter_context(filled_array(files[name], kind, (sizes[by] + 1 if name == "start" else total,)))
            for name, kind in kinds.items()
        )
        start[:] = np.cumsum(counted)
        _fill(column, other, np.array(start[:-1]), ends, others)


def _fill(column: np.ndarray, other: np.ndarray, free: np.ndarray, ends: np.ndarray, others: np.ndarray) -> None:
    """Put every column where it belongs; `free` `[nodes]` is where the next edge of each node goes."""
    for part in pieces(len(ends), 8):
        node = np.asarray(ends[part])
        order = node.argsort(kind="stable")
        node = node[order]
        first = np.flatnonzero(np.diff(node, prepend=-1))  # where each node begins in the piece
        count = np.diff(first, append=len(node))
        place = np.repeat(free[node[first]] - first, count) + np.arange(len(node))
        column[place], other[place] = order + part.start, others[part][order]
        free[node[first]] += count
