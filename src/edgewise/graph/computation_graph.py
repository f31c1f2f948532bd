"""Computation graphs of many targets at once: which nodes and edges can reach which target, and from how far.

Everything is a pair (target, node), written as the number target · N + node and kept sorted, so that a set of pairs is a
sorted vector and nothing is as large as targets × nodes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class InEdges:
    """The edges of a graph, grouped by receiver: those of node v are `edge[start[v]:start[v + 1]]`, in column order."""

    start: Tensor
    edge: Tensor
    sender: Tensor
    """`[E]`: the sender of `edge[i]`."""
    num_nodes: int

    @staticmethod
    def of(edge_index: Tensor, num_nodes: int, flow: str = "source_to_target") -> "InEdges":
        """From the columns of a graph; `flow` says which end sends."""
        sender, receiver = edge_index if flow == "source_to_target" else edge_index.flip(0)
        edge = receiver.argsort(stable=True)
        start = torch.zeros(num_nodes + 1, dtype=torch.long, device=edge_index.device)
        start[1:] = torch.bincount(receiver, minlength=num_nodes).cumsum(0)
        return InEdges(start, edge, sender[edge], num_nodes)

    def of_nodes(self, node: Tensor) -> tuple[Tensor, Tensor]:
        """For each in-edge of each listed node: the position in the list, and where it stands in `edge`."""
        begin, count = self.start[node], self.start[node + 1] - self.start[node]
        position = torch.repeat_interleave(torch.arange(len(node), device=node.device), count)
        offset = begin - torch.cat([count.new_zeros(1), count.cumsum(0)[:-1]])
        return position, torch.arange(len(position), device=node.device) + offset[position]


@dataclass(frozen=True)
class Reach:
    """The pairs (target, node) within some hops of the targets."""

    target: Tensor
    node: Tensor
    hops: Tensor
    """Fewest edges from the node to its target."""
    key: Tensor
    """target · N + node, sorted."""

    def find(self, target: Tensor, node: Tensor, num_nodes: int) -> Tensor:
        """Positions of pairs that are known to be present."""
        return torch.searchsorted(self.key, target * num_nodes + node)


def _not_in(candidate: Tensor, known: Tensor) -> Tensor:
    place = torch.searchsorted(known, candidate).clamp(max=len(known) - 1)
    return candidate[known[place] != candidate]


def reach(in_edges: InEdges, targets: Tensor, hops: int) -> Reach:
    """Every node from which a message can arrive at each target in at most `hops` calls.

    >>> import torch
    >>> chain = InEdges.of(torch.tensor([[0, 1, 2], [1, 2, 3]]), 4)      # 0 → 1 → 2 → 3
    >>> reach(chain, torch.tensor([3, 1]), 2).node.tolist()              # of node 3: 1, 2, 3; of node 1: 0, 1
    [1, 2, 3, 0, 1]
    """
    size = in_edges.num_nodes
    frontier = torch.arange(len(targets), device=targets.device) * size + targets
    known, distance = frontier, torch.zeros_like(frontier)
    for hop in range(1, hops + 1):
        position, place = in_edges.of_nodes(frontier % size)
        senders = (frontier - frontier % size)[position] + in_edges.sender[place]
        frontier = _not_in(torch.unique(senders), known)
        known, order = torch.cat([known, frontier]).sort()
        distance = torch.cat([distance, torch.full_like(frontier, hop)])[order]
        if len(frontier) == 0:
            break
    return Reach(known // size, known % size, distance, known)
