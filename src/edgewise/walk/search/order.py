"""What a search returns, and which walks come first: by score, and tied ones by their nodes, from the explained node back.

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
