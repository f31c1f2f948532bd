"""What a search returns and keeps, and which walks come first: by score, tied ones by their nodes from the explained one back.

Scores within 1e-9 of the target's largest are tied: symmetric molecules have many walks of one score. A search orders walks by
a *key* that is to be large: the score, minus the score or its size, for positive, negative and all walks.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.arrays import rank_in_group

SIGNS = ("positive", "negative", "magnitude")
TIE = 1e-9


@dataclass(frozen=True, eq=False)
class SearchResult:
    """n walks of T targets, ordered by target, best first; and for each target what is known about the walks not listed."""

    target: Tensor
    """`[n]`: the number of the target within its block."""
    score: Tensor
    """`[n]`: the relevance, signed."""
    nodes: Tensor
    """`[n, L + 1]`: source first, explained node last."""
    upper_bound: Tensor
    """`[T]`: no walk that is not listed has a larger key."""
    exact: Tensor
    """`[T]`: whether the list is proven to be the top k."""
    expansions: Tensor
    """`[T]`: how many prefixes were expanded."""
    neurons: Tensor | None = None
    """`[n, L + 1]`: the neuron in each state, for searches of neuron-level walks."""


def keys(score: Tensor, sign: str) -> Tensor:
    """What is to be large: `"positive"` scores, `"negative"` ones negated, or their `"magnitude"`."""
    return {"positive": score, "negative": -score, "magnitude": score.abs()}[sign]


def by_size(target: Tensor, key: Tensor) -> Tensor:
    """`[n]`: the places in the order of the targets, largest keys first, of equal keys the first.

    >>> by_size(torch.tensor([1, 0, 0, 1]), torch.tensor([5.0, 1.0, 3.0, 6.0]))
    tensor([2, 1, 3, 0])
    """
    order = key.argsort(descending=True, stable=True)
    return order[target[order].argsort(stable=True)]


def largest_of_each(group: Tensor, key: Tensor, width: int) -> Tensor:
    """The places of the `width` largest keys of each group, groups in order; of equal ones the first.

    >>> largest_of_each(torch.tensor([1, 0, 0, 1]), torch.tensor([5.0, 1.0, 3.0, 6.0]), 1)
    tensor([2, 3])
    """
    order = by_size(group, key)
    return order[rank_in_group(group[order]) < width]


def best(target: Tensor, key: Tensor, nodes: Tensor, k: int, tolerance: Tensor | None = None) -> Tensor:
    """The places of the k best walks of each target, in order, tied ones by their nodes.

    Args:
        target: `[n]`.
        key: `[n]`, to be large.
        nodes: `[n, L + 1]`, the explained node last.
        k: How many of each target.
        tolerance: `[T]`, what is a tie at least, if larger keys are known than those that are given.

    >>> nodes = torch.tensor([[1, 0], [0, 0], [2, 0]])                     # three walks to node 0, the first two tied
    >>> best(torch.zeros(3).long(), torch.tensor([1.0, 1.0, 2.0]), nodes, k=2)
    tensor([2, 1])
    """
    order = by_size(target, key)
    target, key, nodes = target[order], key[order], nodes[order]
    rank = rank_in_group(target)
    first = torch.arange(len(rank), device=rank.device) - rank  # [n]: where the walk's target begins
    known = None if tolerance is None else tolerance[target]
    tolerance = TIE * key[first].abs()
    tolerance = tolerance if known is None else torch.maximum(tolerance, known)
    kth = key[(first + k - 1).clamp(max=max(len(key) - 1, 0))]  # [n]: the target's k-th key, where it is `full`
    full = target[(first + k - 1).clamp(max=max(len(key) - 1, 0))] == target
    # the k best and all that are tied with the k-th: among these the nodes decide
    kept = ((rank < k) | (full & (key >= kth - tolerance))).nonzero().view(-1)
    order, target, key, nodes, tolerance = order[kept], target[kept], key[kept], nodes[kept], tolerance[kept]
    group = _groups(target, key, tolerance)
    place = torch.arange(len(kept), device=kept.device)
    for column in range(nodes.size(1)):  # the last sort counts most
        place = place[nodes[place, column].argsort(stable=True)]
    place = place[group[place].argsort(stable=True)]
    return order[place[rank_in_group(target[place]) < k]]


def _groups(target: Tensor, key: Tensor, tolerance: Tensor) -> Tensor:
    """`[n]`: numbers of groups of tied walks, rising; walks of different targets are never tied."""
    if len(key) == 0:
        return target
    new = torch.ones_like(target, dtype=torch.bool)
    new[1:] = (target[1:] != target[:-1]) | (key[:-1] - key[1:] > tolerance[1:])
    return new.long().cumsum(0)


class Incumbents:
    """The k best walks of every target so far, and a bound on what was left out.

    Example: k = 2, one target, and walks with the keys 6, 3 and 2 are added in turn. After the first, `full` is False and
    everything above zero is wanted. After the second, `worst` is 3: only prefixes with a bound ≥ 3 (minus rounding and ties)
    are wanted. The third does not enter; `left_out` becomes 2, so no walk that is not listed has more than 2.

    Args of the constructor: `k`; `sign`; `slack` `[T]`, what counts as zero; `steps`, nodes of a walk; `repeats`, whether a
    walk may be added twice.

    `target`, `key`, `score` `[n]` and `nodes` `[n, L + 1]` are the walks, ordered by target, best first.
    """

    def __init__(self, k: int, sign: str, slack: Tensor, steps: int, *, repeats: bool) -> None:
        self.k, self.sign, self.slack, self._repeats = k, sign, slack, repeats
        device = slack.device
        self.target = torch.zeros(0, dtype=torch.long, device=device)
        self.key, self.score = (torch.zeros(0, dtype=torch.double, device=device) for _ in range(2))
        self.nodes = torch.zeros(0, steps, dtype=torch.long, device=device)
        self.worst = slack.clone()
        """`[T]`: the smallest key of the k best walks (tied ones are not ordered by key), or what counts as zero."""
        self.tolerance, self.last_tolerance = (torch.zeros_like(slack) for _ in range(2))
        """`[T]`: what is a tie, now and when the last of the k best was found; the best walk known only gets better."""
        self.full = torch.zeros(len(slack), dtype=torch.bool, device=device)
        """`[T]`: whether a target has k walks."""
        self.last = torch.zeros(len(slack), steps, dtype=torch.long, device=device)
        """`[T, L + 1]`: the nodes of the k-th walk, where there is one."""
        self.left_out = torch.full_like(slack, -torch.inf)
        """`[T]`: the largest key or bound of what is not among the walks."""

    def wanted(self, target: Tensor, bound: Tensor, nodes: Tensor, filled: int) -> Tensor:
        """`[P]`: whether prefixes can still lead to one of the best walks.

        Args:
            target: `[P]`.
            bound: `[P]`, the best that walks with the prefix can have.
            nodes: `[P, L + 1]`, of which the columns from `filled` on are known.
            filled: The first known column.
        """
        worst, tolerance, slack = self.worst[target], self.tolerance[target], self.slack[target]
        wanted = (bound + slack >= worst - tolerance) & (bound > slack)
        tied = wanted & self.full[target] & (bound <= worst + self.last_tolerance[target])
        if bool(tied.any()):  # at best as good as the last of the best: then the order of nodes decides
            place = tied.nonzero().view(-1)
            late = _comes_later(nodes[place, filled:], self.last[target[place], filled:])
            wanted[place[late]] = False
        return wanted

    def leave_out(self, target: Tensor, bound: Tensor) -> None:
        """Note what walks that are not listed have, or what prefixes that are not followed can have."""
        self.left_out.scatter_reduce_(0, target, bound, "amax")

    def add(self, target: Tensor, score: Tensor, nodes: Tensor, parent: Tensor, source: Tensor) -> None:
        """Add complete walks and keep the k best of each target.

        Args:
            target: `[n]`.
            score: `[n]`.
            nodes: `[P, L + 1]`, the prefixes.
            parent: `[n]`, the prefix of each walk.
            source: `[n]`, the source of each walk.
        """
        key = score.abs() if self.sign == "magnitude" else score
        good = (key >= self.worst[target] - self.tolerance[target]) & (key > self.slack[target])
        self.leave_out(target[~good], key[~good])
        place = good.nonzero().view(-1)
        if len(place) == 0:
            return
        walks = nodes[parent[place]]
        walks[:, 0] = source[place]
        target, key, score = (torch.cat(both) for both in (
            (self.target, target[place]), (self.key, key[place]), (self.score, score[place])))  # fmt: skip
        walks = torch.cat([self.nodes, walks])
        if self._repeats:
            target, key, score, walks = _without_repeats(target, key, score, walks)
        order = best(target, key, walks, self.k, self.tolerance)
        rest = torch.ones_like(target, dtype=torch.bool)
        rest[order] = False
        self.leave_out(target[rest], key[rest])
        self.target, self.key, self.score, self.nodes = target[order], key[order], score[order], walks[order]
        self.tolerance.scatter_reduce_(0, self.target, TIE * self.key, "amax")
        last = rank_in_group(self.target) == self.k - 1
        full = self.target[last]  # targets that have k walks now
        smallest = torch.full_like(self.worst, torch.inf).scatter_reduce_(0, self.target, self.key, "amin")
        self.full[full] = True
        self.worst[full], self.last[full] = smallest[full], self.nodes[last]
        self.last_tolerance[full] = self.tolerance[full]

    def forget(self) -> None:
        """Drop the walks, not what is known about how good they are."""
        self.target, self.key, self.score, self.nodes = (
            column[:0] for column in (self.target, self.key, self.score, self.nodes)
        )


def _comes_later(nodes: Tensor, others: Tensor) -> Tensor:
    """`[n]`: whether rows of nodes come after others in the order of tied walks: read from the last column back."""
    difference = (nodes - others).flip(1)
    first = (difference != 0).long().argmax(dim=1, keepdim=True)
    return difference.gather(1, first).view(-1) > 0


def _without_repeats(target: Tensor, key: Tensor, score: Tensor, walks: Tensor) -> tuple[Tensor, ...]:
    """Each walk once: the beam and the search may find the same one."""
    rows, inverse = torch.unique(torch.cat([target.view(-1, 1), walks], dim=1), dim=0, return_inverse=True)
    if len(rows) == len(target):
        return target, key, score, walks
    place = torch.zeros(len(rows), dtype=torch.long, device=target.device)
    place[inverse] = torch.arange(len(target), device=target.device)
    return target[place], key[place], score[place], walks[place]
