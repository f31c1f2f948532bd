"""Copies for links: a pair (u, v) sees the neighbourhoods of both its ends, and an edge that lies in both has one weight.

`with_pairs` tells a graph which pairs a pass is asked about. `pair_neighbourhoods` lays the neighbourhoods of many pairs side
by side, `pair_whole_graph` is the graph itself for one pair; both can leave columns out (`LinkColumns`, for `without_itself`).
"""

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.arrays import enumerated, rank_in_group
from edgewise.graph.computation_graph import InEdges, Reach, reach
from edgewise.graph.copies import Copies, laid_out, whole_graph


@dataclass(frozen=True)
class PairList:
    """The pairs of a pass as an attribute of its graph: not a plain tensor, which PyG could take for one of nodes or edges."""

    ends: Tensor
    """`[2, T]`: the first and the second node of each pair."""


def with_pairs(graph: Data, pairs: Tensor) -> Data:
    """The graph (a shallow copy) with the pairs `[T, 2]` that the model is asked about."""
    asked = copy.copy(graph)
    asked.link_pairs = PairList(pairs.t().contiguous().to(graph.edge_index.device))
    return asked


@dataclass(frozen=True)
class LinkColumns:
    """The columns that are the link itself, pair by pair: those of pair t are `column[start[t]:start[t + 1]]`."""

    start: Tensor
    """`[T + 1]`."""
    column: Tensor

    @staticmethod
    def of(pairs: Tensor, edge_index: Tensor, num_nodes: int, there: range | None = None) -> "LinkColumns":
        """All columns u → v and v → u of every pair `[T, 2]`, parallel ones included; of u → v only those in `there`.

        >>> edges = torch.tensor([[0, 1, 0, 2], [1, 0, 1, 0]])
        >>> LinkColumns.of(torch.tensor([[0, 1], [1, 2], [0, 2]]), edges, 3)
        LinkColumns(start=tensor([0, 3, 3, 4]), column=tensor([0, 2, 1, 3]))
        """
        key, order = (edge_index[0] * num_nodes + edge_index[1]).sort(stable=True)
        to, back = pairs[:, 0] * num_nodes + pairs[:, 1], pairs[:, 1] * num_nodes + pairs[:, 0]
        asked = torch.stack([torch.where(to == back, -1, to), back], dim=1).view(-1)  # [2 T]: a self pair has one way
        begin, end = torch.searchsorted(key, asked), torch.searchsorted(key, asked, right=True)
        way, number = enumerated(end - begin)
        column = order[begin[way] + number]
        if there is not None:
            kept = (way % 2 == 1) | ((column >= there.start) & (column < there.stop))
            way, column = way[kept], column[kept]
        counts = torch.bincount(torch.div(way, 2, rounding_mode="floor"), minlength=len(pairs))
        return LinkColumns(torch.cat([counts.new_zeros(1), counts.cumsum(0)]), column)

    @property
    def counts(self) -> Tensor:
        """`[T]`: how many columns each pair has."""
        return self.start.diff()

    def select(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """(place in `positions`, column) of the columns of some pairs, `[R]` each."""
        positions = positions.to(self.start.device)
        row, number = enumerated(self.counts[positions])
        return row, self.column[self.start[positions][row] + number]

    def part(self, positions: Tensor) -> "LinkColumns":
        """The columns of some pairs alone."""
        counts = self.counts[positions.to(self.start.device)]
        return LinkColumns(torch.cat([counts.new_zeros(1), counts.cumsum(0)]), self.select(positions)[1])


def pair_reach(in_edges: InEdges, pairs: Tensor, hops: int) -> Reach:
    """Every node from which a message can arrive at either end of each pair `[T, 2]`, with the fewest hops to one of them.

    >>> path = InEdges.of(torch.tensor([[0, 1, 2], [1, 2, 3]]), 4)                # 0 → 1 → 2 → 3
    >>> near = pair_reach(path, torch.tensor([[3, 1]]), 1)
    >>> near.node.tolist(), near.hops.tolist()
    ([0, 1, 2, 3], [1, 0, 1, 0])
    """
    size, count = in_edges.num_nodes, len(pairs)
    near = reach(in_edges, pairs.t().reshape(-1), hops)
    key, place = ((near.target % max(count, 1)) * size + near.node).unique(return_inverse=True)
    fewest = torch.full_like(key, hops).scatter_reduce(0, place, near.hops, "amin")
    return Reach(key // size, key % size, fewest, key)


def pair_sizes(in_edges: InEdges, pairs: Tensor, hops: int) -> tuple[Tensor, Tensor]:
    """`[T]` each: how many nodes and edges the neighbourhood of each pair has."""
    near = pair_reach(in_edges, pairs, hops)
    degree = in_edges.start.diff()[near.node] * (near.hops < hops)
    edges = torch.bincount(near.target, weights=degree.double(), minlength=len(pairs)).long()
    return torch.bincount(near.target, minlength=len(pairs)), edges


@dataclass(frozen=True)
class _RimReach(Reach):
    """Pairs of which the farthest nodes are left out but for one of each target, which stands for all of them."""

    far: Tensor
    """`[T]`: where that one is; 0 for targets that have none."""

    def find(self, target: Tensor, node: Tensor, num_nodes: int) -> Tensor:
        """Positions of pairs; of one that was left out, that of the node that stands for it."""
        key = target * num_nodes + node
        place = torch.searchsorted(self.key, key).clamp(max=len(self.key) - 1)
        return torch.where(self.key[place] == key, place, self.far[target])

    @staticmethod
    def of(near: Reach, num_targets: int, hops: int) -> "_RimReach":
        """Of the pairs at so many hops, each target keeps the first: only how many edges come from there matters."""
        outer = (near.hops == hops).nonzero().view(-1)
        first = rank_in_group(near.target[outer]) == 0
        kept = near.hops < hops
        kept[outer[first]] = True
        far = torch.zeros(num_targets, dtype=torch.long, device=kept.device)
        far[near.target[outer[first]]] = (kept.long().cumsum(0) - 1)[outer[first]]
        return _RimReach(near.target[kept], near.node[kept], near.hops[kept], near.key[kept], far)


def pair_neighbourhoods(
    graph: Data, in_edges: InEdges, pairs: Tensor, num_layers: int, *, rim: str, left_out: tuple[Tensor, Tensor] | None
) -> Copies:
    """The neighbourhoods of pairs `[T, 2]` side by side, with the pairs as `data.link_pairs`.

    `rim` as for a cut (`graph/cut.py`). `left_out` are (pair, column): columns that the graph of a pair does not have. What
    they led to stays; it gets no message through them.
    """
    hops = num_layers + (1 if rim else 0)
    near = pair_reach(in_edges, pairs, hops)
    if rim == "degrees":
        near = _RimReach.of(near, len(pairs), hops)
    rows = torch.arange(len(pairs), device=pairs.device)
    copies = laid_out(graph, in_edges, near, rows, num_layers, rim=hops - num_layers)
    ends = torch.stack([near.find(rows, pairs[:, i], in_edges.num_nodes) for i in (0, 1)], dim=1)
    copies = replace(copies, data=with_pairs(copies.data, ends))
    return copies if left_out is None else _without(copies, *left_out, graph.edge_index.size(1))


def pair_whole_graph(
    graph: Data, in_edges: InEdges, pair: Tensor, num_layers: int, left_out: Tensor | None = None
) -> Copies:
    """The graph itself for one pair `[2]`, without some columns: every edge has a weight, whatever its distance."""
    first, second = (whole_graph(graph, in_edges, end, num_layers) for end in pair.tolist())
    none = torch.zeros(1, dtype=torch.long, device=pair.device)
    copies = replace(
        first,
        data=with_pairs(graph, pair.view(1, 2)),
        rows=none,
        edge_hops=torch.minimum(first.edge_hops, second.edge_hops),
    )
    if left_out is None or len(left_out) == 0:
        return copies
    return _without(copies, torch.zeros_like(left_out), left_out, graph.edge_index.size(1))


def _without(copies: Copies, row: Tensor, column: Tensor, num_edges: int) -> Copies:
    """The copies without the columns (target, column of the original graph) `[R]` each."""
    edge = copies.edge_id if copies.column_edge is None else copies.column_edge
    owner = copies.owner if copies.column_owner is None else copies.column_owner
    kept = without_columns(owner, edge, row, column, num_edges)  # [columns of the copies]
    place = kept.long().cumsum(0) - 1
    scored = kept[copies.edge_place]
    return replace(
        copies,
        data=_with_columns(copies.data, kept),
        edge_id=copies.edge_id[scored],
        owner=copies.owner[scored],
        edge_place=place[copies.edge_place[scored]],
        edge_hops=copies.edge_hops[scored],
        column_edge=edge[kept],
        column_owner=owner[kept],
    )


def without_columns(owner: Tensor, edge: Tensor, row: Tensor, column: Tensor, num_edges: int) -> Tensor:
    """Which of the columns (target, column of the original graph) are not among those of `row` and `column` `[R]`.

    >>> few = torch.tensor([0, 1]), torch.tensor([5, 5])
    >>> without_columns(torch.tensor([0, 0, 1]), torch.tensor([4, 5, 5]), few[0][:1], few[1][:1], 6)
    tensor([ True, False,  True])
    """
    return ~torch.isin(owner * num_edges + edge, row * num_edges + column)


def without_link(graph: Data, pair: Tensor, columns: Tensor) -> Data:
    """The whole graph without some columns, and the one pair `[2]` that it is asked about."""
    kept = torch.ones(graph.edge_index.size(1), dtype=torch.bool, device=graph.edge_index.device)
    kept[columns] = False
    return with_pairs(_with_columns(graph, kept), pair.view(1, 2))


def _with_columns(graph: Data, kept: Tensor) -> Data:
    """The graph with some of its columns; nodes stay."""
    part = copy.copy(graph)
    for key in graph.keys():  # noqa: SIM118 (Data is not a dict)
        value = graph[key]
        if key != "edge_index" and isinstance(value, Tensor) and graph.is_edge_attr(key):
            part[key] = value[kept]
    part.edge_index = graph.edge_index[:, kept]
    return part
