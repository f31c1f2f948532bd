"""The edges into many nodes, read from a source block by block: no more than so many at once, whatever the degrees are."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgewise.graph.source import GraphSource


@dataclass(frozen=True, eq=False)
class EdgeBlock:
    """The edges into some nodes of a list, and a table of all nodes at their ends: those that receive come first."""

    begin: int
    """The receivers are `nodes[begin:end]` of the list."""
    end: int
    is_first: bool
    """Whether earlier blocks have none of the edges of these receivers; of a node that was split, the first part."""
    is_split: bool
    """Whether it is one node, some of whose edges are in other blocks."""
    node: np.ndarray
    """`[table]`: the receivers, in order, then whoever else sends, ascending."""
    start: np.ndarray
    """`[receivers + 1]`: where the edges of each begin."""
    sender: np.ndarray
    """`[edges]`: rows of the table; the columns of a receiver are ascending."""
    column: np.ndarray
    """`[edges]`."""

    @property
    def receiver(self) -> np.ndarray:
        """`[edges]`: rows of the table."""
        return np.repeat(np.arange(self.end - self.begin), np.diff(self.start))


def edge_blocks(source: GraphSource, nodes: np.ndarray, most: int) -> Iterator[EdgeBlock]:
    """The edges into `nodes` `[n]`, each listed once, in blocks of at most `most` edges and receivers.

    >>> import tempfile, torch; from torch_geometric.data import Data; from edgewise.store.graph_store import GraphStore
    >>> from edgewise.store.store_source import source_of
    >>> star = Data(x=torch.zeros(4, 1), edge_index=torch.tensor([[3, 1, 2, 0], [0, 0, 0, 1]]))   # 3, 1, 2 → 0 and 0 → 1
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     source = source_of(GraphStore.build(f"{folder}/star", star))
    ...     for block in edge_blocks(source, np.array([0, 1]), 2):
    ...         block.begin, block.is_first, block.node.tolist(), block.sender.tolist(), block.column.tolist()
    (0, True, [0, 1, 3], [2, 1], [0, 1])
    (0, False, [0, 2], [1], [2])
    (1, True, [1, 0], [1], [3])
    """
    counts = source.counts(nodes)
    ends, begin = np.concatenate([[0], counts.cumsum()]), 0
    while begin < len(nodes):
        end = int(np.searchsorted(ends, ends[begin] + most, side="right")) - 1
        end = min(max(end, begin + 1), begin + most)
        if counts[begin] > most:
            for first in range(0, int(counts[begin]), most):
                column, sender = source.some_edges_of(int(nodes[begin]), slice(first, first + most))
                yield _block(nodes, begin, begin + 1, np.zeros(len(column), int), column, sender, part=first)
        else:
            yield _block(nodes, begin, end, *source.edges_of(nodes[begin:end], "source_to_target"))
        begin = end


def _block(
    nodes: np.ndarray,
    begin: int,
    end: int,
    position: np.ndarray,
    column: np.ndarray,
    sender: np.ndarray,
    part: int | None = None,
) -> EdgeBlock:
    """A block; `position` `[edges]` are the receivers, from 0, and `part` says where in a split node's edges it begins."""
    order = np.lexsort([column, position])
    column, sender = column[order], sender[order]
    receivers = nodes[begin:end]
    node = np.concatenate([receivers, np.setdiff1d(sender, receivers)])
    by_number = node.argsort()
    place = by_number[np.searchsorted(node, sender, sorter=by_number)]
    start = np.concatenate([[0], np.bincount(position, minlength=end - begin).cumsum()])
    return EdgeBlock(begin, end, not part, part is not None, node, start, place, column)


def nodes_within(source: GraphSource, target: int, hops: int, most: int) -> tuple[np.ndarray, list[int]]:
    """The nodes from which a message reaches `target` within some hops, nearest first, and how many are within 0, 1, … hops."""
    near, ends = [np.array([target])], [1]
    seen = near[0]
    for _ in range(hops):
        found = np.zeros(0, dtype=np.int64)
        for block in edge_blocks(source, near[-1], most):
            found = np.union1d(found, block.node[~_among(block.node, seen)])
        near.append(found)
        ends.append(ends[-1] + len(found))
        seen = np.union1d(seen, found)
    return np.concatenate(near), ends


def _among(some: np.ndarray, known: np.ndarray) -> np.ndarray:
    """`[n]`: which numbers are among those of an ascending list, without another list of that length."""
    return np.asarray(known[np.searchsorted(known, some).clip(max=len(known) - 1)] == some)
