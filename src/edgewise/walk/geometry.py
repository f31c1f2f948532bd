"""The pairs (sender, receiver) between which something can move in a call; a pair (v, v) is a step that stays on a node.

A walk takes one pair per call. Pairs are ordered by receiver, then by sender, so the pairs into a node stand together.

Example: the triangle of `edgewise.examples.triangle_model`, whose layers have a root weight, so that every node can stay.

>>> edge_index = torch.tensor([[0, 1, 0], [1, 2, 2]])            # columns 0 → 1, 1 → 2, 0 → 2
>>> geometry = Geometry.of(InEdges.of(edge_index, 3), stays=True)
>>> list(zip(geometry.sender.tolist(), geometry.receiver.tolist()))
[(0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)]
>>> geometry.edge_pair.tolist(), geometry.own_pair.tolist()      # the pair of each column, and of each node with itself
([1, 4, 3], [0, 2, 5])
>>> geometry.into(torch.tensor([2]))                             # node 2 receives in the pairs 3, 4 and 5
(tensor([0, 0, 0]), tensor([3, 4, 5]))
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.arrays import group_order
from edgewise.graph.computation_graph import InEdges


@dataclass(frozen=True, eq=False)
class Geometry:
    """P pairs, ordered by receiver, then by sender (not `merged`: by receiver, then by column, staying last)."""

    in_pairs: InEdges
    """The pairs as if they were edges: those into node v are `start[v]:start[v + 1]`."""
    receiver: Tensor
    """`[P]`."""
    is_own: Tensor
    """`[P]`: whether sender and receiver are one node. Not `merged`: only the pairs of staying, not those of loops."""
    edge_pair: Tensor
    """`[E]`: the pair of each column of `edge_index`."""
    own_pair: Tensor
    """`[N]`: the pair in which a node stays; −1 if it cannot."""
    merged: bool = True
    """Whether parallel edges share one pair, and a loop shares the pair of staying."""

    @staticmethod
    def of(in_edges: InEdges, *, stays: bool, merged: bool = True) -> "Geometry":
        """The pairs of a graph.

        Args:
            in_edges: The edges, grouped by receiver.
            stays: Whether every node also receives from itself (added loop, root weight, residual).
            merged: Whether parallel edges share one pair; otherwise every column has a pair of its own, as edge scores need.
        """
        if not merged:
            return _unmerged(in_edges, stays=stays)
        size = in_edges.num_nodes
        receiver = torch.repeat_interleave(torch.arange(size, device=in_edges.start.device), in_edges.start.diff())
        key = torch.empty_like(in_edges.sender)  # [E], in the order of the columns
        key[in_edges.edge] = receiver * size + in_edges.sender
        loops = torch.arange(size, device=key.device) * (size + 1)  # [N]: v · N + v
        pairs, place = torch.unique(torch.cat([key, loops]) if stays else key, return_inverse=True)  # [P], [E (+ N)]
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
        """`[P]`: the sender of each pair."""
        return self.in_pairs.sender

    @property
    def num_nodes(self) -> int:
        """How many nodes the graph has."""
        return self.in_pairs.num_nodes

    def __len__(self) -> int:
        return len(self.receiver)

    def own_places(self, loop_edge: Tensor | None) -> Tensor:
        """`[N]`: the pair of a node with itself. Where pairs are not merged, a loop of the graph that owns it has it.

        `loop_edge` `[N]` is that loop's column, or −1; None: the layer replaces no loops.
        """
        if self.merged or loop_edge is None:
            return self.own_pair
        has = loop_edge >= 0
        place = self.own_pair.clone()
        place[has] = self.edge_pair[loop_edge[has]]
        return place

    def into(self, node: Tensor) -> tuple[Tensor, Tensor]:
        """The pairs into each of some nodes: `[n]` the position in the list of nodes (rising), `[n]` the pair."""
        return self.in_pairs.of_nodes(node)

    def summed(self, of_edges: Tensor | None, of_own: Tensor | None, like: Tensor) -> Tensor:
        """`[P, …]`: numbers of columns `[E, …]` and of staying `[N, …]`, added up in the pair to which they belong.

        Without numbers every column counts 1 (`like` says dtype and device); without `of_own` staying adds nothing.
        """
        if of_edges is None:
            of_edges = like.new_ones(len(self.edge_pair))
        total = of_edges.new_zeros(len(self), *of_edges.shape[1:]).index_add_(0, self.edge_pair, of_edges)
        return total if of_own is None else total.index_add_(0, self.own_pair, of_own)


def _unmerged(in_edges: InEdges, *, stays: bool) -> Geometry:
    """A pair for every column, and one for every node that stays.

    Pairs are first numbered as [columns by receiver, then nodes that stay]; `place` leads from there to the final order.
    """
    size, device = in_edges.num_nodes, in_edges.start.device
    everyone = torch.arange(size if stays else 0, device=device)
    of_edges = torch.repeat_interleave(torch.arange(size, device=device), in_edges.start.diff())
    receiver, sender = torch.cat([of_edges, everyone]), torch.cat([in_edges.sender, everyone])  # [E + N] each
    order = group_order(receiver, size)
    place = torch.empty_like(order)  # the inverse of `order`
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
