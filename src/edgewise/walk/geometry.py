"""Pairs of nodes between which something can move in a call: edges (parallel ones together), and a node with itself."""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.graph.computation_graph import InEdges


@dataclass(frozen=True, eq=False)
class Geometry:
    """Pairs ordered by receiver, then by sender."""

    in_pairs: InEdges
    receiver: Tensor
    is_own: Tensor
    """`[pairs]`: whether a node stays."""
    edge_pair: Tensor
    """`[E]`: the pair of each column."""
    own_pair: Tensor
    """`[N]`: the pair in which a node stays; −1: it cannot."""
    merged: bool = True

    @staticmethod
    def of(in_edges: InEdges, *, stays: bool, merged: bool = True) -> "Geometry":
        """Of a graph; `stays`: whether every node hears itself; not `merged`: a pair for every column, and for staying."""
        if not merged:
            return _unmerged(in_edges, stays=stays)
        size = in_edges.num_nodes
        receiver = torch.repeat_interleave(torch.arange(size, device=in_edges.start.device), in_edges.start.diff())
        key = torch.empty_like(in_edges.sender)
        key[in_edges.edge] = receiver * size + in_edges.sender
        loops = torch.arange(size, device=key.device) * (size + 1)
        pairs, place = torch.unique(torch.cat([key, loops]) if stays else key, return_inverse=True)
        receiver, sender = pairs // size, pairs % size
        start = torch.zeros(size + 1, dtype=torch.long, device=key.device)
        start[1:] = torch.bincount(receiver, minlength=size).cumsum(0)
        own = torch.full((size,), -1, dtype=torch.long, device=key.device)
        is_own = receiver == sender
        own[receiver[is_own]] = is_own.nonzero().view(-1)
        return Geometry(
            InEdges(start, torch.arange(len(pairs), device=key.device), sender, size),
            receiver, is_own, place[: len(key)], own,
        )  # fmt: skip

    @property
    def sender(self) -> Tensor:
        """`[pairs]`."""
        return self.in_pairs.sender

    @property
    def num_nodes(self) -> int:
        """Of the graph."""
        return self.in_pairs.num_nodes

    def __len__(self) -> int:
        return len(self.receiver)

    def into(self, node: Tensor) -> tuple[Tensor, Tensor]:
        """The pairs that end at each of some nodes: which of them, and the pair."""
        position, place = self.in_pairs.of_nodes(node)
        return position, place

    def summed(self, of_edges: Tensor | None, of_own: Tensor | None, like: Tensor) -> Tensor:
        """What parallel edges (and staying) have in one pair; columns without a number count 1."""
        if of_edges is None:
            of_edges = like.new_ones(len(self.edge_pair))
        total = of_edges.new_zeros(len(self), *of_edges.shape[1:]).index_add_(0, self.edge_pair, of_edges)
        return total if of_own is None else total.index_add_(0, self.own_pair, of_own)


def _unmerged(in_edges: InEdges, *, stays: bool) -> Geometry:
    size, device = in_edges.num_nodes, in_edges.start.device
    everyone = torch.arange(size if stays else 0, device=device)
    of_edges = torch.repeat_interleave(torch.arange(size, device=device), in_edges.start.diff())
    receiver, sender = torch.cat([of_edges, everyone]), torch.cat([in_edges.sender, everyone])
    order = receiver.argsort(stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=device)
    start = torch.zeros(size + 1, dtype=torch.long, device=device)
    start[1:] = torch.bincount(receiver, minlength=size).cumsum(0)
    edge_pair = torch.empty_like(in_edges.edge)
    edge_pair[in_edges.edge] = place[: len(of_edges)]
    own = torch.full((size,), -1, dtype=torch.long, device=device)
    own[everyone] = place[len(of_edges) :]
    is_own = torch.zeros(len(order), dtype=torch.bool, device=device)
    is_own[place[len(of_edges) :]] = True
    pairs = InEdges(start, torch.arange(len(order), device=device), sender[order], size)
    return Geometry(pairs, receiver[order], is_own, edge_pair, own, merged=False)
