"""Ranks within groups: the vectorised form of "for each group, the first, second, …"."""

import torch
from torch import Tensor


def rank_in_group(group: Tensor) -> Tensor:
    """`[n]`: how many entries of the same group stand before each one; the entries of a group must stand together.

    >>> rank_in_group(torch.tensor([4, 4, 4, 7, 7]))
    tensor([0, 1, 2, 0, 1])
    """
    place = torch.arange(len(group), device=group.device)
    starts = torch.ones_like(group, dtype=torch.bool)
    starts[1:] = group[1:] != group[:-1]
    return place - torch.where(starts, place, 0).cummax(0).values if len(group) else place


def occurrence(key: Tensor) -> Tensor:
    """`[n]`: how many equal keys stand before each one; the keys may come in any order.

    >>> occurrence(torch.tensor([7, 4, 7, 7, 4]))
    tensor([0, 0, 1, 2, 1])
    """
    order = key.argsort(stable=True)
    rank = torch.empty_like(order)
    rank[order] = rank_in_group(key[order])
    return rank


def enumerated(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Groups of these sizes one after the other: the group of each entry, and its number within the group.

    >>> [part.tolist() for part in enumerated(torch.tensor([2, 0, 3]))]
    [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    """
    owner = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    start = torch.cat([counts.new_zeros(1), counts.cumsum(0)[:-1]])
    return owner, torch.arange(len(owner), device=counts.device) - start[owner]
