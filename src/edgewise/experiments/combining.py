"""Arithmetic on sets of explanations."""

from dataclasses import replace

import torch

import edgewise as ew
from edgewise.entries import Entries, Part


def difference(one: ew.ExplanationSet, other: ew.ExplanationSet) -> ew.ExplanationSet:
    """Scores of the one minus scores of the other, for the same targets in the same order."""
    first, second = one.edges, other.edges
    assert first is not None
    assert second is not None
    row, place = (torch.cat(parts) for parts in ((first.rows(), second.rows()), (first.place, second.place)))
    stride = int(place.max()) + 1 if len(place) else 1
    key, where = (row * stride + place).unique(return_inverse=True)
    score = first.score.new_zeros(len(key)).index_add_(0, where, torch.cat([first.score, -second.score]))
    part = Part(key.div(stride, rounding_mode="floor"), key % stride, score)
    return replace(one, method=f"{one.method} − reversed", edges=Entries([part], len(one)), own=None)
