"""Which walks come first: by score, and tied ones by their nodes, read from the explained node back.

Scores within 1e-9 of the target's largest are tied: symmetric molecules have many walks of one score.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.groups import rank_in_group

SIGNS = ("positive", "negative", "magnitude")
TIE = 1e-9


def by_size(target: Tensor, key: Tensor) -> Tensor:
    """An order: targets together, largest keys first."""
    order = key.argsort(descending=True, stable=True)
    return order[target[order].argsort(stable=True)]


def largest_of_each(group: Tensor, key: Tensor, width: int) -> Tensor:
    """The places of the `width` largest keys of each group, groups in order; of equal ones the first."""
    order = by_size(group, key)
    return order[rank_in_group(group[order]) < width]


def best(target: Tensor, key: Tensor, nodes: Tensor, k: int, tolerance: Tensor | None = None) -> Tensor:
    """The places of the k best of each target, in order; `nodes` are `[n, L + 1]`, the explained node last.

    `tolerance` `[T]`: what is a tie at least, if larger keys are known than those that are given.
    """
    order = by_size(target, key)
    target, key, nodes = target[order], key[order], nodes[order]
    rank = rank_in_group(target)
    first = torch.arange(len(rank), device=rank.device) - rank
    known = None if tolerance is None else tolerance[target]
    tolerance = TIE * key[first].abs()
    tolerance = tolerance if known is None else torch.maximum(tolerance, known)
    kth = key[(first + k - 1).clamp(max=max(len(key) - 1, 0))]
    full = target[(first + k - 1).clamp(max=max(len(key) - 1, 0))] == target
    kept = ((rank < k) | (full & (key >= kth - tolerance))).nonzero().view(-1)
    order, target, key, nodes, tolerance = order[kept], target[kept], key[kept], nodes[kept], tolerance[kept]
    group = _groups(target, key, tolerance)
    place = torch.arange(len(kept), device=kept.device)
    for column in range(nodes.size(1)):  # the last sort counts most
        place = place[nodes[place, column].argsort(stable=True)]
    place = place[group[place].argsort(stable=True)]
    return order[place[rank_in_group(target[place]) < k]]


def _groups(target: Tensor, key: Tensor, tolerance: Tensor) -> Tensor:
    """Numbers of tied groups, rising; targets stay apart."""
    if len(key) == 0:
        return target
    new = torch.ones_like(target, dtype=torch.bool)
    new[1:] = (target[1:] != target[:-1]) | (key[:-1] - key[1:] > tolerance[1:])
    return new.long().cumsum(0)


# --- What a search gives back ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Found:
    """Walks of many targets: ordered by target, best first; and for each target what is known about the others."""

    target: Tensor
    score: Tensor
    nodes: Tensor
    upper_bound: Tensor
    exact: Tensor
    expansions: Tensor
    neurons: Tensor | None = None
