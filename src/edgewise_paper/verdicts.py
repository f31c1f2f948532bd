"""Does a published number lie where one more network of the same recipe would? Student's prediction intervals over the seeds.

For a network that could be rebuilt there is a difference, not a verdict. For any other, the published one is one more draw of
the recipe if the recipe is right: of n seeds it lies in the 95% interval mean ± t · s · √(1 + 1/n) 19 times in 20, and between
the lowest and the highest in n − 1 of n + 1 cases. Cosines are measured on Fisher's scale (atanh), shares on the logit scale,
where they may be taken for normal. An interval that is wider than `WIDEST` says nothing, and gets no verdict.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, stdev

from edgewise.student_intervals import student_quantile

CONFIDENCE, WIDEST, LEAST_SEEDS = 0.95, 0.3, 10
INSIDE, OUTSIDE, TOO_WIDE, TOO_FEW = "inside", "outside", "too wide", "too few seeds"
ROUNDED = {"accuracy": 1e-4, "AUROC": 1e-4}
"""Accuracies were printed with four digits, some of them cut; all other points have five."""
_FIVE_DIGITS = 5e-6
_ALMOST_ONE = 1 - 1e-6  # cosines beyond it are 1 up to rounding


def prediction_interval(values: Sequence[float], quantity: str, count: int = 0) -> tuple[float, float]:
    """Where one more value would lie, 19 times in 20.

    Args:
        values: One for each seed; at least two.
        quantity: `"cosine"` is taken to Fisher's scale, everything else is a share and taken to logits.
        count: What a share is a share of: 0 and 1 are moved by half of one.

    >>> low, high = prediction_interval([0.5, 0.6, 0.55, 0.52], "cosine")
    >>> round(low, 2), round(high, 2)
    (0.37, 0.68)
    >>> prediction_interval([0.0, 0.0, 0.0], "sign flips", 100)
    (0.0, 0.0)
    """
    if min(values) == max(values):
        return values[0], values[0]
    edge = 1 - _ALMOST_ONE if quantity == "cosine" else 1 / (2 * max(count, 500))
    there = [_scaled(value, quantity, edge) for value in values]
    number = len(there)
    reach = _quantile(number - 1) * stdev(there) * math.sqrt(1 + 1 / number)
    low, high = (_back(fmean(there) + side * reach, quantity) for side in (-1, 1))
    return (low if low > edge else 0.0 if quantity != "cosine" else low), (high if high < 1 - edge else 1.0)


@cache
def _quantile(freedom: int) -> float:
    """Student's 97.5% point."""
    return student_quantile((1 + CONFIDENCE) / 2, freedom)


def _scaled(value: float, quantity: str, edge: float) -> float:
    if quantity == "cosine":
        return math.atanh(max(min(value, 1 - edge), edge - 1))
    inside = max(min(value, 1 - edge), edge)
    return math.log(inside / (1 - inside))


def _back(value: float, quantity: str) -> float:
    return math.tanh(value) if quantity == "cosine" else 1 / (1 + math.exp(-value))


@dataclass(frozen=True)
class HeldPoint:
    """A published number beside the seeds of ours."""

    published: float
    values: tuple[float, ...]
    low: float
    high: float
    rounded: float = _FIVE_DIGITS

    @staticmethod
    def of(published: float, values: Sequence[float], quantity: str, count: int = 0) -> "HeldPoint":
        """Judge a number; `count` as for `prediction_interval`."""
        known = tuple(value for value in values if not math.isnan(value))
        low, high = prediction_interval(known, quantity, count) if len(known) > 1 else (math.nan, math.nan)
        return HeldPoint(published, known, low, high, ROUNDED.get(quantity, _FIVE_DIGITS))

    @property
    def mean(self) -> float:
        """Of the seeds."""
        return fmean(self.values)

    @property
    def width(self) -> float:
        """Of the interval."""
        return self.high - self.low

    @property
    def verdict(self) -> str:
        """`inside` or `outside` the interval; or why there is none: `too wide`, `too few seeds`."""
        if len(self.values) < LEAST_SEEDS:
            return TOO_FEW
        if self.width > WIDEST:
            return TOO_WIDE
        return INSIDE if self.low - self.rounded <= self.published <= self.high + self.rounded else OUTSIDE

    @property
    def in_range(self) -> bool:
        """Whether it lies between the lowest and the highest seed."""
        return min(self.values) - self.rounded <= self.published <= max(self.values) + self.rounded


@dataclass(frozen=True)
class ShareOfNetworks:
    """How many published points of some networks lie inside; the points of one network are dependent, so networks count."""

    networks: int
    points: int
    inside: float
    """Mean over networks of the share of their points inside the interval, of those with a verdict."""
    in_range: float
    """The same for the range of the seeds, of all points."""
    seeds: int
    distance: float
    """Mean distance of published points to our means."""
    no_verdict: int
    """Points whose interval is too wide."""

    @property
    def expected_in_range(self) -> float:
        """What one more seed would give: (n − 1) / (n + 1)."""
        return (self.seeds - 1) / (self.seeds + 1)

    @staticmethod
    def of(networks: Iterable[Sequence[HeldPoint]]) -> "ShareOfNetworks | None":
        """Count the points of each network; None if none has enough seeds."""
        known = [[one for one in points if one.verdict != TOO_FEW] for points in networks]
        known = [points for points in known if points]
        if not known:
            return None
        judged = [[one for one in points if one.verdict != TOO_WIDE] for points in known]
        every = [one for points in known for one in points]
        return ShareOfNetworks(
            len(known),
            len(every),
            fmean([fmean([one.verdict == INSIDE for one in points]) for points in judged if points] or [math.nan]),
            fmean([fmean([one.in_range for one in points]) for points in known]),
            min(len(one.values) for one in every),
            fmean([abs(one.mean - one.published) for one in every]),
            sum(one.verdict == TOO_WIDE for one in every),
        )
