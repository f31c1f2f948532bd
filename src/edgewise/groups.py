"""Ranks within groups: the vectorised form of "for each group, the first, second, …"."""

import torch
from torch import Tensor


def rank_in_group(group: Tensor) -> Tensor:
    """How many entries of the same group stand before each one; equal groups must stand together.

    >>> rank_in_group(torch.tensor([4, 4, 4, 7, 7]))
    tensor([0, 1, 2, 0, 1])
    """
    place = torch.arange(len(group), device=group.device)
    starts = torch.ones_like(group, dtype=torch.bool)
    starts[1:] = group[1:] != group[:-1]
    return place - torch.where(starts, place, 0).cummax(0).values if len(group) else place


def occurrence(key: Tensor) -> Tensor:
    """How many equal keys stand before each one, in any order.

    >>> occurrence(torch.tensor([7, 4, 7, 7, 4]))
    tensor([0, 0, 1, 2, 1])
    """
    order = key.argsort(stable=True)
    rank = torch.empty_like(order)
    rank[order] = rank_in_group(key[order])
    return rank
