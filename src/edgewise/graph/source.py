"""Sources of cuts: whoever can say which edges end in some nodes, and hand out the attributes of some nodes and edges.

A graph on disk (`store/`), a PyG `GraphStore` with its `FeatureStore`, or a graph in memory are the same thing here. `cut_from`
asks hop by hop, so that its cost, and all that is ever read, depends on the neighbourhood alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.graph.cut import Cut
from edgewise.graph.neighbour_sample import Bounds, LargeNeighbourhoodError

_EDGE_BYTES = 64  # a column and its ends, twice, and their order
Found = tuple[np.ndarray, np.ndarray, np.ndarray]
"""For each edge that was found: the position of its node in the list, its column, and the node at its other end."""


class GraphSource(ABC):
    """Somebody who hands out cuts. Nodes and columns have the numbers of the whole graph."""

    num_nodes: int
    num_edges: int
    data: Any
    """The graph for those who look at single attributes; its tensors may be mapped."""

    def __init__(self) -> None:
        self._tables: list[np.ndarray] = []

    @abstractmethod
    def edges_of(self, nodes: np.ndarray, flow: str) -> Found:
        """The edges along which messages come to some nodes, in any order; `flow` says which end sends."""

    def some_edges_of(self, node: int, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """Columns and senders of some of the edges into one node, which are numbered by column."""
        _, column, sender = self.edges_of(np.array([node]), "source_to_target")
        order = column.argsort()[part]
        return column[order], sender[order]

    @abstractmethod
    def counts(self, nodes: np.ndarray) -> np.ndarray:
        """`[n]`: how many edges end in each of some nodes."""

    @abstractmethod
    def loops(self, nodes: np.ndarray) -> np.ndarray:
        """`[n]`: how many edges each of some nodes has to itself."""

    @abstractmethod
    def part(self, node_id: Tensor, edge_id: Tensor, edge_index: Tensor) -> Data:
        """The attributes of some nodes and columns, both ascending; `edge_index` has the ends, numbered in the part."""

    @abstractmethod
    def ends(self, columns: np.ndarray) -> np.ndarray:
        """`[2, n]`: both ends of some columns."""

    @property
    @abstractmethod
    def edge_index(self) -> Tensor:
        """`[2, E]`: all edges, for results; not read unless somebody looks at it."""

    @property
    @abstractmethod
    def row_bytes(self) -> int:
        """What the attributes of one node take, about."""

    @property
    @abstractmethod
    def num_bytes(self) -> int:
        """About what all of it would take in memory."""

    @abstractmethod
    def changed(self) -> str:
        """What is another than it was, in words; empty if nothing is."""

    def whole(self) -> Data:
        """All of it in memory: only for graphs that are small."""
        nodes, columns = torch.arange(self.num_nodes), torch.arange(self.num_edges)
        return self.part(nodes, columns, torch.from_numpy(self.ends(columns.numpy())))

    @contextmanager
    def numbering(self) -> Iterator[np.ndarray]:
        """`[N]` zeros, to be given back as zeros: pages that nobody touches take no memory, and are not cleared each time."""
        table = self._tables.pop() if self._tables else np.zeros(self.num_nodes, dtype=np.int64)
        try:
            yield table
        except LargeNeighbourhoodError:  # it was cleared; after any other error it is not used again
            self._tables.append(table)
            raise
        self._tables.append(table)


def cut_from(
    source: GraphSource, targets: Tensor, hops: int, *, flow: str | None, rim: str = "", bounds: Bounds | None = None
) -> Cut:
    """What `cut.cut_out` finds, from a source: nodes that reach a target within some hops, and the edges into all but the last.

    `rim` as there: `"nodes"` is one hop further, `"degrees"` that hop's edges alone, all from one far node. `bounds` say how
    large it may be; of a sample, `Cut.left_out` counts the edges that are not in it.
    """
    hops = hops + 1 if rim else hops
    fresh = np.unique(targets.cpu().numpy())
    left_out = taken = 0
    with source.numbering() as table:
        table[fresh] = -1
        nodes, found = [fresh], []
        for hop in range(hops):
            if bounds is not None:
                taken += size_of(source, len(fresh), int(source.counts(fresh).sum()))
                _check(bounds, taken, table, nodes)
            column, sender, receiver = _edges_into(source, fresh, flow)
            kept = None if bounds is None else bounds.kept(hop, receiver, column)
            if kept is not None:
                left_out += len(column) - len(kept)
                column, sender, receiver = column[kept], sender[kept], receiver[kept]
            found.append((column, sender, receiver))
            fresh = _unseen(sender if flow else np.concatenate([sender, receiver]), table)
            if len(fresh) == 0:
                break
            nodes.append(fresh)
        far = int(nodes[-1].min()) if rim == "degrees" and flow and len(nodes) > hops else None
        inside = nodes if far is None else [*nodes[:-1], np.array([far])]
        node_id = np.sort(np.concatenate(inside))
        edge_id, ends = _in_order([np.concatenate(parts) for parts in zip(*found, strict=True)] if found else [], flow)
        everyone = np.concatenate(nodes)
        if far is not None:
            table[nodes[-1]] = np.searchsorted(node_id, far)
        table[node_id] = np.arange(len(node_id))
        local = table[ends]
        table[everyone] = 0
    if far is not None:
        _without_new_loops(local, ends, len(node_id))
    tensors = [torch.from_numpy(part) for part in (node_id, edge_id, local)]
    part = source.part(*tensors)
    return Cut(part, source.num_nodes, source.num_edges, tensors[0], tensors[1], left_out)


def size_of(source: GraphSource, nodes: int, edges: int) -> int:
    """About how many bytes so many nodes and edges of a cut take."""
    return nodes * source.row_bytes + edges * _EDGE_BYTES


def _check(bounds: Bounds, taken: int, table: np.ndarray, nodes: list[np.ndarray]) -> None:
    """Refuse a neighbourhood that is too large; the table is given back as it was."""
    try:
        bounds.check(taken)
    except LargeNeighbourhoodError:
        table[np.concatenate(nodes)] = 0
        raise


def _without_new_loops(local: np.ndarray, ends: np.ndarray, size: int) -> None:
    """Edges of the far node that would begin where they end begin elsewhere: a layer may treat loops in a way of its own.

    >>> local, ends = np.array([[2, 2, 2], [1, 2, 2]]), np.array([[9, 8, 7], [5, 7, 7]])   # 7 → 7 is a true loop
    >>> _without_new_loops(local, ends, 3); local
    array([[2, 0, 2],
           [1, 2, 2]])
    """
    made = (local[0] == local[1]) & (ends[0] != ends[1])
    local[0, made] = (local[0, made] + 1) % size


def _edges_into(source: GraphSource, fresh: np.ndarray, flow: str | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(column, source end, receiving end) of the edges of one hop: those into some nodes or, without `flow`, at them."""
    ways = [flow] if flow else ["source_to_target", "target_to_source"]
    parts = []
    for way in ways:
        position, column, other = source.edges_of(fresh, way)
        own = fresh[position]
        parts.append((column, other, own) if way == "source_to_target" else (column, own, other))
    column, first, second = (np.concatenate(part) for part in zip(*parts, strict=True))
    if flow == "target_to_source":
        return column, second, first  # whoever sends comes first
    return column, first, second


def _unseen(nodes: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Those that the table has not marked yet, each once and ascending; they are marked then.

    >>> table = np.array([0, -1, 0, 0])
    >>> _unseen(np.array([3, 1, 3, 2]), table), table
    (array([2, 3]), array([ 0, -1, -1, -1]))
    """
    new = nodes[table[nodes] == 0]
    number = np.arange(1, len(new) + 1)
    table[new] = number  # of equal ones the last stays
    new = np.sort(new[table[new] == number])
    table[new] = -1
    return new


def _in_order(found: list[np.ndarray], flow: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Columns ascending, each once, and their ends `[2, n]` as in `edge_index`."""
    if not found:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, np.zeros((2, 0), dtype=np.int64)
    column, first, second = found
    if flow == "target_to_source":
        first, second = second, first
    order = column.argsort(kind="stable")
    column = column[order]
    if flow is None:
        once = np.flatnonzero(np.diff(column, prepend=-1))
        column, order = column[once], order[once]
    return column, np.stack([first[order], second[order]])


def tiny_cut(source: GraphSource, targets: Tensor, most: int, strangers: tuple[Tensor, Tensor]) -> Cut:
    """Some columns that end in targets, and some nodes and columns besides: enough to see which layers a model has."""
    first = targets[:most].numpy()  # each of them adds at most what it receives
    _, columns, _ = source.edges_of(first, "source_to_target")
    edge_id = np.unique(np.concatenate([np.sort(columns)[:most], strangers[1].numpy()]))
    ends = source.ends(edge_id)
    node_id = np.unique(np.concatenate([ends.reshape(-1), first[:1], strangers[0].numpy()]))
    tensors = [torch.from_numpy(part) for part in (node_id, edge_id, np.searchsorted(node_id, ends))]
    return Cut(source.part(*tensors), source.num_nodes, source.num_edges, tensors[0], tensors[1])
