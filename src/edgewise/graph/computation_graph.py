"""Computation graphs of many targets at once: which nodes and edges can reach which target, and from how far.

`InEdges` is the graph sorted by receiver (CSR); `reach` walks backwards from the targets. Everything is a pair (target, node),
written as the number target · N + node and kept sorted, so that a set of pairs is a sorted vector and nothing is as large as
targets × nodes.

The path 0 → 1 → 2 with targets (2, 1): node 1 as seen from the first target (position 0) is the pair 0 · 3 + 1 = 1, as seen
from the second (position 1) it is 1 · 3 + 1 = 4.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from edgewise.arrays import group_order


@dataclass(frozen=True)
class InEdges:
    """The edges of a graph, grouped by receiver: those of node v are `edge[start[v]:start[v + 1]]`, in column order.

    >>> edge_index = torch.tensor([[1, 0, 0], [2, 2, 1]])       # columns: 1 → 2, 0 → 2, 0 → 1
    >>> graph = InEdges.of(edge_index, 3)
    >>> graph.start.tolist()                                    # node 0 receives nothing, node 1 once, node 2 twice
    [0, 0, 1, 3]
    >>> graph.edge.tolist(), graph.sender.tolist()
    ([2, 0, 1], [0, 1, 0])
    """

    start: Tensor
    """`[N + 1]`: where the edges of each receiver begin; the last entry is E."""
    edge: Tensor
    """`[E]`: columns of `edge_index`, sorted by receiver."""
    sender: Tensor
    """`[E]`: the sender of `edge[i]`."""
    num_nodes: int
    both_ways: bool = False
    """Whether messages run along columns and against them: a column stands at both its ends, a loop once."""

    @staticmethod
    def of(edge_index: Tensor, num_nodes: int, flow: str | None = "source_to_target") -> "InEdges":
        """From the columns of a graph, `[2, E]`; `flow` says which end sends, None: either.

        >>> both = InEdges.of(torch.tensor([[0, 1], [1, 1]]), 2, flow=None)             # 0 → 1 and a loop on 1
        >>> both.start.tolist(), both.edge.tolist(), both.sender.tolist()
        ([0, 1, 3], [0, 0, 1], [1, 0, 1])
        """
        sender, receiver = edge_index if flow != "target_to_source" else edge_index.flip(0)
        if flow is None:
            apart = (sender != receiver).nonzero().view(-1)
            column = torch.cat([torch.arange(len(receiver), device=edge_index.device), apart])
            sender, receiver = torch.cat([sender, receiver[apart]]), torch.cat([receiver, sender[apart]])
        order = group_order(receiver, num_nodes)
        start = torch.zeros(num_nodes + 1, dtype=torch.long, device=edge_index.device)
        start[1:] = torch.bincount(receiver, minlength=num_nodes).cumsum(0)
        edge = order if flow is not None else column.index_select(0, order)
        return InEdges(start, edge, sender.index_select(0, order), num_nodes, both_ways=flow is None)

    @cached_property
    def on_cpu(self) -> "InEdges":
        """The same on the CPU, where a few nodes are followed faster than on a GPU."""
        return InEdges(self.start.cpu(), self.edge.cpu(), self.sender.cpu(), self.num_nodes, self.both_ways)

    def of_nodes(self, node: Tensor) -> tuple[Tensor, Tensor]:
        """For each in-edge of each listed node: the position in the list, and where it stands in `edge`.

        Nodes may repeat, and come in any order. With k listed nodes that have n in-edges together, both results are `[n]`.

        >>> path = InEdges.of(torch.tensor([[0, 1, 0], [1, 2, 2]]), 3)       # 0 → 1, 1 → 2, 0 → 2
        >>> position, place = path.of_nodes(torch.tensor([2, 0, 1]))
        >>> position.tolist()                               # two edges end in node 2, none in node 0, one in node 1
        [0, 0, 2]
        >>> path.sender[place].tolist()
        [1, 0, 0]
        """
        if not node.is_cuda:  # numpy's calls cost a fifth of torch's, which counts where few nodes are listed
            start, listed = self.start.numpy(), node.numpy()
            first, degree = start[listed], start[listed + 1] - start[listed]  # [k] each
            row = np.repeat(np.arange(len(listed)), degree)
            where = np.arange(len(row)) + (first - degree.cumsum() + degree)[row]
            return torch.from_numpy(row), torch.from_numpy(where)
        begin, count = self.start[node], self.start[node + 1] - self.start[node]  # [k] each
        position = torch.repeat_interleave(torch.arange(len(node), device=node.device), count)
        offset = begin - torch.cat(
            [count.new_zeros(1), count.cumsum(0)[:-1]]
        )  # [k]: from a number in 0 … n − 1 to a place
        return position, torch.arange(len(position), device=node.device) + offset[position]


@dataclass(frozen=True)
class Reach:
    """The P pairs (target, node) within some hops of the targets, sorted by `key`."""

    target: Tensor
    """`[P]`: the position of the target in the list of targets."""
    node: Tensor
    """`[P]`: the node of the graph."""
    hops: Tensor
    """`[P]`: fewest edges from the node to its target."""
    key: Tensor
    """`[P]`: target · N + node, ascending."""

    def find(self, target: Tensor, node: Tensor, num_nodes: int) -> Tensor:
        """Positions of pairs that are known to be present."""
        return torch.searchsorted(self.key, target * num_nodes + node)


def reach(in_edges: InEdges, targets: Tensor, hops: int) -> Reach:
    """Every node from which a message can arrive at each target in at most `hops` calls.

    Breadth first, all targets together: the frontier is a set of pairs, and a hop replaces each pair (t, v) by (t, u) for all
    edges u → v. Pairs that are known already are left out, so that each keeps its smallest number of hops.

    >>> import torch
    >>> chain = InEdges.of(torch.tensor([[0, 1, 2], [1, 2, 3]]), 4)      # 0 → 1 → 2 → 3
    >>> near = reach(chain, torch.tensor([3, 1]), 2)                     # from node 3: 1, 2, 3; from node 1: 0, 1
    >>> near.node.tolist(), near.hops.tolist()
    ([1, 2, 3, 0, 1], [2, 1, 0, 1, 0])
    >>> near.key.tolist()                                                # 4 · target + node
    [1, 2, 3, 4, 5]
    """
    size = in_edges.num_nodes
    frontier = torch.arange(len(targets), device=targets.device) * size + targets  # keys
    known, distance = frontier, torch.zeros_like(frontier)  # [pairs so far] each, sorted by key
    for hop in range(1, hops + 1):
        position, place = in_edges.of_nodes(frontier % size)  # [in-edges of the frontier] each
        senders = (frontier - frontier % size)[position] + in_edges.sender[
            place
        ]  # keys: the same target, one edge back
        frontier = _not_in(torch.unique(senders), known)
        known, order = torch.cat([known, frontier]).sort()
        distance = torch.cat([distance, torch.full_like(frontier, hop)])[order]
        if len(frontier) == 0:
            break
    return Reach(known // size, known % size, distance, known)


def nearest_once(key: Tensor, hops: Tensor) -> Tensor:
    """Places of the keys, each once and ascending: where a column was met from both its ends, that of the nearer one.

    >>> nearest_once(torch.tensor([7, 3, 7]), torch.tensor([2, 1, 1]))
    tensor([1, 2])
    """
    order = hops.argsort(stable=True)
    order = order[key[order].argsort(stable=True)]
    new = torch.ones_like(order, dtype=torch.bool)
    new[1:] = key[order].diff() != 0
    return order[new]


def _not_in(candidate: Tensor, known: Tensor) -> Tensor:
    """The candidates that are not among the `known`, which are sorted: (1, 4, 6) without (2, 4) is (1, 6)."""
    place = torch.searchsorted(known, candidate).clamp(max=len(known) - 1)
    return candidate[known[place] != candidate]
