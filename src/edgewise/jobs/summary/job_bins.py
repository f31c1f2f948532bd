"""Distributions as tables of bars, which read well on any screen, on paper, and aloud."""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_BINS = 10


class Bin(NamedTuple):
    """A bar: what it counts, and how much."""

    name: str
    height: int


def bin_table(bins: Sequence[Bin]) -> str:
    """A table with a bar in each row.

    >>> bin_table([Bin("<1", 3)]).count("&lt;1")
    1
    """
    most = max((one.height for one in bins), default=0) or 1
    rows = "".join(
        f"<tr{' class=none' if not one.height else ''}><th scope='row'>{escape(one.name)}</th>"
        f"<td><i style='width:{100 * one.height / most:.1f}%'></i></td><td class='number'>{one.height:,}</td></tr>"
        for one in bins
    )
    return f"<table class='bins'><tbody>{rows}</tbody></table>"


def bins_of_shares(values: Tensor, low: float, high: float) -> list[Bin]:
    """Ten bins of equal width from `low` to `high`; what lies below or above has a bin of its own, where there is any.

    >>> bins = bins_of_shares(torch.tensor([0.05, 0.97, 1.0, 2.0]), 0.0, 1.0)
    >>> bins[0], bins[-2], bins[-1]
    (Bin(name='0.0 – 0.1', height=1), Bin(name='0.9 – 1.0', height=2), Bin(name='above 1.0', height=1))
    """
    width = (high - low) / _BINS
    place = ((values.double() - low) / width - 1e-9).floor().clamp(-1, _BINS).long()
    place[(values >= low) & (place < 0)] = 0
    counts = torch.bincount(place + 1, minlength=_BINS + 2).tolist()
    inside = [
        Bin(f"{low + at * width:.1f} – {low + (at + 1) * width:.1f}".replace("-", "−"), count)
        for at, count in enumerate(counts[1:-1])
    ]
    below = [Bin(f"below {low:.1f}", counts[0])] if counts[0] else []
    above = [Bin(f"above {high:.1f}", counts[-1])] if counts[-1] else []
    return [*below, *inside, *above]


def bins_of_counts(values: Tensor) -> list[Bin]:
    """Whole numbers: each one by itself where there are few, else powers of two.

    >>> bins_of_counts(torch.tensor([1, 2, 2]))
    [Bin(name='1', height=1), Bin(name='2', height=2)]
    >>> [one.name for one in bins_of_counts(torch.tensor([0, 1, 3, 100]))]
    ['0', '1', '2 – 3', '4 – 7', '8 – 15', '16 – 31', '32 – 63', '64 – 127']
    """
    if not len(values):
        return []
    low, high = int(values.min()), int(values.max())
    if high - low <= _BINS:
        return [Bin(str(number), int((values == number).sum())) for number in range(low, high + 1)]
    edges = [0, 1, *(2**power for power in range(1, high.bit_length() + 1))]
    names = [f"{one}" if one + 1 == other else f"{one} – {other - 1}" for one, other in pairwise(edges)]
    counts = [int(((values >= one) & (values < other)).sum()) for one, other in pairwise(edges)]
    found = [Bin(name, count) for name, count in zip(names, counts, strict=True)]
    return found[next(at for at, one in enumerate(found) if one.height) :]
