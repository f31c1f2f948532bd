"""Confidence sets of ranks: which places can a method have, given what was measured on some networks?

For every two methods a and b, "a is not better than b" is tested with the paired differences of their means over networks
(Student's t, one-sided), and Holm's correction holds over all of these tests. The set of ranks of a method then runs from one
more than the number of methods that are better for sure, to one less than the place that those worse for sure leave it. All
sets hold together with the stated confidence. Ranks are not resampled: near ties that fails (Mogstad, Romano, Shaikh and
Wilhelm, Review of Economic Studies 2024).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from edgewise.student_intervals import LEAST, student_share


class RankSet(NamedTuple):
    """The places that a method can have, the best one first."""

    best: int
    worst: int

    def __str__(self) -> str:
        return str(self.best) if self.best == self.worst else f"{self.best}–{self.worst}"


def rank_sets(values: Tensor, confidence: float = 0.95) -> list[RankSet]:
    """The set of each method; `values` `[methods, networks, targets]` are higher for better ones, NaN where there is none.

    Two methods are compared on the targets that both have a number for: one that is undefined on the hard ones gains nothing.

    >>> apart = torch.tensor([[0.9, 0.8, 0.9, 0.85], [0.2, 0.1, 0.25, 0.2], [0.21, 0.1, 0.24, 0.2]])
    >>> [str(found) for found in rank_sets(apart.unsqueeze(2))]
    ['1', '2–3', '2–3']
    """
    count = len(values)
    better = _surely_better(values, confidence)
    return [RankSet(1 + int(better[:, i].sum()), count - int(better[i].sum())) for i in range(count)]


def _surely_better(values: Tensor, confidence: float) -> Tensor:
    """`[methods, methods]`: whether the first is better than the second for sure."""
    count = len(values)
    chance = torch.ones(count, count, dtype=torch.double)
    for a in range(count):
        for b in range(count):
            if a != b:
                chance[a, b] = p_value((values[a] - values[b]).nanmean(dim=1))
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    kept = holm([float(chance[a, b]) for a, b in pairs], 1 - confidence)
    found = torch.zeros(count, count, dtype=torch.bool)
    for (a, b), sure in zip(pairs, kept, strict=True):
        found[a, b] = sure
    return found


def p_value(differences: Tensor) -> float:
    """How likely differences `[networks]` are that speak as much for a mean above 0, if it is not; NaN is left out.

    Differences that do not vary have no deviation to be compared with; then no more is claimed than a test of signs gives.

    >>> p_value(torch.tensor([0.5, 0.5, 0.5])), round(p_value(torch.tensor([1.0, 2.0, 3.0])), 4)
    (0.125, 0.0371)
    """
    known = differences[~differences.isnan()].double()
    if len(known) < LEAST:
        return 1.0
    mean, deviation = float(known.mean()), float(known.std())
    if deviation <= 1e-12 * max(1.0, abs(mean)):
        return 0.5 ** len(known) if mean > 1e-12 else 1.0
    return 1 - student_share(mean / (deviation / math.sqrt(len(known))), len(known) - 1)


def holm(chances: Sequence[float], level: float) -> list[bool]:
    """Which tests are rejected by Holm's rule: the smallest against level/m, the next against level/(m − 1), and so on.

    >>> holm([0.04, 0.001, 0.03], 0.05)
    [False, True, False]
    """
    order = sorted(range(len(chances)), key=lambda number: chances[number])
    found = [False] * len(chances)
    for place, number in enumerate(order):
        if chances[number] > level / (len(chances) - place):
            break
        found[number] = True
    return found
