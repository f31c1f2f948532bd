"""Pools in interval arithmetic: what a graph's sum, or its largest number in each column, changes by when some nodes change."""

import torch
from torch import Tensor

from edgewise.program.intervals import Interval
from edgewise.program.pair_numbers import Pairs
from edgewise.trust.interval_operations import Moved
from edgewise.trust.varied_edges import find


def summed(moved: Moved, pairs: Pairs, size: int, most: int) -> Moved:
    """`[slots, width]`: the changes and slopes of the pairs of each slot, added up."""
    wide = moved.outward(most)
    return Moved(wide.change.sums(pairs.slot, size), wide.slope.sums(pairs.slot, size))


def largest(
    moved: Moved, pairs: Pairs, known: Interval, pooled: Interval, owner: Tensor, graph: Tensor
) -> tuple[Moved, tuple[Tensor, Tensor]]:
    """`[slots, width]`: changes and slopes of the largest number of each column; and each moved pair's share of them.

    A node may be the largest if its highest number is no less than the lowest number of every other. Nodes 0 and 1 with the
    numbers 3 and 1, of which the first moves by something in [−1, 0]: it stays the largest, so the maximum moves as it does.

    Args:
        moved: Changes and slopes of the pairs, `[pairs, width]`.
        pairs: Pairs (slot, node).
        known: `[N, width]`: all nodes at weight 1.
        pooled: `[graphs, width]`: the maximum at weight 1.
        owner: `[N]`: the graph of each node.
        graph: `[slots]`: the graph of each slot.
    """
    slot, node = _members(owner, graph)
    place = find(pairs.key, slot * pairs.num_nodes + node)
    hit = (place >= 0).nonzero().view(-1)
    now, slope = known.rows(node), Interval.point(known.lo.new_zeros(len(node), known.lo.size(1)))
    now = now.put(hit, now.rows(hit) + moved.change.rows(place[hit]))
    slope = slope.put(hit, moved.slope.rows(place[hit]))
    index, size = slot.view(-1, 1).expand_as(now.lo), (len(graph), now.lo.size(1))

    def highest(part: Tensor) -> Tensor:
        return part.new_full(size, -torch.inf).scatter_reduce(0, index, part, "amax")

    top_low, top_high = highest(now.lo), highest(now.hi)
    old = pooled.rows(graph)
    apart = Interval(top_low - old.hi, top_high - old.lo).outward(1)
    changes = [part.index_select(0, place[hit]) for part in (moved.change.lo, moved.change.hi)]
    among = index[hit]
    low = changes[0].new_zeros(size).scatter_reduce(0, among, changes[0], "amin")
    high = changes[1].new_zeros(size).scatter_reduce(0, among, changes[1], "amax")
    may = now.hi >= top_low[slot]
    count = torch.zeros(size, device=slot.device).index_add_(0, slot, may.float())
    only = may & (count[slot] == 1)
    slopes = Interval(
        -highest(torch.where(may, -slope.lo, -torch.inf)), highest(torch.where(may, slope.hi, -torch.inf))
    )
    share = [known.lo.new_zeros(len(pairs), size[1]) for _ in range(2)]
    share[0][place[hit]], share[1][place[hit]] = only[hit].to(share[0].dtype), may[hit].to(share[0].dtype)
    return Moved(apart.intersection(Interval(low, high)), slopes), (share[0], share[1])


def _members(owner: Tensor, graph: Tensor) -> tuple[Tensor, Tensor]:
    """All nodes of the graph of each slot: the slot and the node, `[n]` each.

    >>> _members(torch.tensor([0, 0, 1]), torch.tensor([1, 0]))
    (tensor([0, 1, 1]), tensor([2, 0, 1]))
    """
    order = owner.argsort(stable=True)
    count = torch.bincount(owner, minlength=int(graph.max()) + 1 if len(graph) else 1)
    start = count.cumsum(0) - count
    slot = torch.repeat_interleave(torch.arange(len(graph), device=owner.device), count[graph])
    offset = torch.arange(len(slot), device=owner.device) - (count[graph].cumsum(0) - count[graph])[slot]
    return slot, order[start[graph][slot] + offset]
