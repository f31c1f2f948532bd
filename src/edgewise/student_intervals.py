"""Student's intervals of means: how far a mean may be from what it estimates, when few values were measured.

For values from a normal population the interval holds with the stated chance from three values on. For skewed values, such as
cosines near 1, it does not: `held` says how often such intervals held on pools that were measured (docs/trust.md).
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

LEAST = 3
"""Fewer values than this get no interval."""
_HELD = {3: 0.91, 5: 0.88, 10: 0.88, 20: 0.88, 50: 0.91, 100: 0.91}
"""From a number of targets to the share of 95% intervals that held, on the worst measured pool of cosines up to 0.9."""
_HELD_NEAR_ONE = {3: 0.62, 5: 0.57, 10: 0.62, 20: 0.63, 50: 0.61, 100: 0.56}
"""The same for means above 0.9: almost all targets are alike, and the few others are seldom drawn."""


@lru_cache(maxsize=64)  # one costs as much as a small explanation
def student_quantile(share: float, freedom: float) -> float:
    """The number below which Student's t with so many degrees of freedom stays with the chance `share`, 0.5 < share < 1.

    >>> round(student_quantile(0.975, 2), 4), round(student_quantile(0.975, 19), 4)
    (4.3027, 2.093)
    """
    low, high = 0.0, 1.0
    while _below(high, freedom) < share:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, freedom) < share else (low, middle)
    return (low + high) / 2


def _below(t: float, freedom: float) -> float:
    """The chance that Student's t is below t ≥ 0: 1 − I_x(ν/2, ½) / 2 with x = ν / (ν + t²)."""
    return 1 - _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction (Abramowitz and Stegun, 26.5.8)."""
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    fraction = 1.0
    for step in range(200, 0, -1):  # from the inside out: 1 + d_1 / (1 + d_2 / (1 + …))
        half = step // 2
        if step % 2:
            part = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            part = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        fraction = 1 + part / fraction
    return front / (a * fraction)


def student_share(t: float, freedom: float) -> float:
    """The chance that Student's t with so many degrees of freedom is below `t`.

    >>> round(student_share(2.093, 19), 4), round(student_share(-2.093, 19), 4)
    (0.975, 0.025)
    """
    return _below(t, freedom) if t >= 0 else 1 - _below(-t, freedom)


def interval_of_mean(values: Tensor, confidence: float) -> tuple[float, float]:
    """The interval of the mean of values `[n]`; NaN is left out, and fewer than three values have none.

    >>> interval_of_mean(torch.tensor([1.0, 2.0, 3.0]), 0.95)
    (-0.4841..., 4.4841...)
    """
    known = values[~values.isnan()].double()
    if len(known) < LEAST:
        return math.nan, math.nan
    half = student_quantile((1 + confidence) / 2, len(known) - 1) * float(known.std()) / math.sqrt(len(known))
    return float(known.mean()) - half, float(known.mean()) + half


def interval_over_pairs(means: Tensor, pairs: Tensor, confidence: float) -> tuple[float, float]:
    """The interval of a mean over pairs of runs, `means` `[pairs]`: runs are drawn, so a run is left out at a time (jackknife).

    `pairs` `[2, pairs]` are the runs of each pair. Fewer than three runs have no interval.

    >>> runs = torch.tensor([[0, 0, 1], [1, 2, 2]])
    >>> interval_over_pairs(torch.tensor([0.5, 0.5, 0.5]), runs, 0.95)
    (0.5, 0.5)
    """
    known = ~means.isnan()
    means, pairs = means[known].double(), pairs[:, known]
    runs = pairs.unique()
    if len(runs) < LEAST:
        return math.nan, math.nan
    without = torch.stack([means[(pairs != run).all(dim=0)].mean() for run in runs])
    if bool(without.isnan().any()):
        return math.nan, math.nan
    count, middle = len(runs), float(means.mean())
    variance = (count - 1) / count * float((without - without.mean()).square().sum())
    half = student_quantile((1 + confidence) / 2, count - 1) * math.sqrt(variance)
    return middle - half, middle + half


def held(count: int, mean: float) -> float:
    """How often a 95% interval of so many targets held on the worst of the pools that were measured; `mean` is the cosine.

    >>> held(5, 0.3), held(5, 0.97)
    (0.88, 0.57)
    """
    table = _HELD_NEAR_ONE if abs(mean) > 0.9 else _HELD
    return next((share for least, share in sorted(table.items(), reverse=True) if count >= least), 0.0)
