"""Interval arithmetic that also holds for floating-point numbers: sign proofs and the bounds of walks both use it.

A computed sum of n products is the sum of the true products, each times 1 + δ with |δ| below (n + 1) · 2⁻⁵³. So it is enough to
push every *term* outwards by a little more than that, relative to its size, before summing. Zeros stay zeros: what cannot
change at all keeps the interval [0, 0]. Everything is float64; underflow is left out of account.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

UNIT = 2.0**-53


@dataclass(frozen=True, eq=False)
class Interval:
    """Numbers that lie between `lo` and `hi`, entry by entry.

    >>> import torch
    >>> x = Interval(torch.tensor([[-1.0, 2.0]]).double(), torch.tensor([[1.0, 3.0]]).double())
    >>> y = x.linear(TwoSided.of(torch.tensor([[1.0, -1.0]]).double()))        # x₀ − x₁
    >>> y.lo.round().item(), y.hi.round().item()
    (-4.0, -1.0)
    """

    lo: Tensor
    hi: Tensor

    @staticmethod
    def point(rows: Tensor) -> "Interval":
        """Intervals that contain exactly these numbers."""
        return Interval(rows, rows)

    @staticmethod
    def stack(parts: Sequence["Interval"]) -> "Interval":
        """The rows of several intervals, one below the other."""
        return Interval(torch.cat([part.lo for part in parts]), torch.cat([part.hi for part in parts]))

    @staticmethod
    def join(parts: Sequence["Interval"]) -> "Interval":
        """The columns of several intervals, side by side."""
        return Interval(torch.cat([part.lo for part in parts], dim=1), torch.cat([part.hi for part in parts], dim=1))

    def __len__(self) -> int:
        return len(self.lo)

    def rows(self, index: Tensor) -> "Interval":
        """Some of the rows."""
        return Interval(self.lo.index_select(0, index), self.hi.index_select(0, index))

    def put(self, index: Tensor, new: "Interval") -> "Interval":
        """The rows with some of them replaced."""
        return Interval(self.lo.index_copy(0, index, new.lo), self.hi.index_copy(0, index, new.hi))

    def placed(self, place: Tensor, size: int) -> "Interval":
        """The rows at the given places among `size` rows of zeros."""
        return Interval.point(self.lo.new_zeros(size, *self.lo.shape[1:])).put(place, self)

    def outward(self, terms: int) -> "Interval":
        """A little wider: sums of up to so many of these numbers, times constants, then bound the true sums."""
        push = 2 * (terms + 3) * UNIT
        lo, hi = torch.sub(self.lo, self.lo.abs(), alpha=push), torch.add(self.hi, self.hi.abs(), alpha=push)
        return Interval(lo, hi)

    def __add__(self, other: "Interval") -> "Interval":
        return Interval(self.lo + other.lo, self.hi + other.hi).outward(1)

    def __neg__(self) -> "Interval":
        return Interval(-self.hi, -self.lo)

    def times(self, factor: Tensor) -> "Interval":
        """Times exact numbers (broadcast), of any sign."""
        return self.scaled(factor).outward(1)

    def scaled(self, factor: Tensor) -> "Interval":
        """Times exact numbers, without `outward`: for intervals that were pushed outwards already, to be summed."""
        a, b = self.lo * factor, self.hi * factor
        if bool((factor >= 0).all()):
            return Interval(a, b)
        return Interval(torch.minimum(a, b), torch.maximum(a, b))

    def between(self, low: Tensor, high: Tensor) -> "Interval":
        """Times something between two exact numbers (broadcast), low ≤ high."""
        if bool((low >= 0).all()):
            lo = self.lo * torch.where(self.lo >= 0, low, high)
            hi = self.hi * torch.where(self.hi >= 0, high, low)
            return Interval(lo, hi).outward(1)
        a, b = self.scaled(low), self.scaled(high)
        return Interval(torch.minimum(a.lo, b.lo), torch.maximum(a.hi, b.hi)).outward(1)

    def product(self, other: "Interval") -> "Interval":
        """Number by number, times another interval (broadcast).

        >>> x = Interval(torch.tensor([-1.0]).double(), torch.tensor([2.0]).double())
        >>> x.product(x).lo.round().item(), x.product(x).hi.round().item()             # two numbers, not a square
        (-2.0, 4.0)
        """
        corners = [a * b for a in (self.lo, self.hi) for b in (other.lo, other.hi)]
        low, high = torch.minimum(corners[0], corners[1]), torch.maximum(corners[0], corners[1])
        for corner in corners[2:]:
            low, high = torch.minimum(low, corner), torch.maximum(high, corner)
        return Interval(low, high).outward(1)

    def widened(self, by: Tensor) -> "Interval":
        """A little wider by given numbers, not relative to its own size."""
        return Interval(self.lo - by, self.hi + by).outward(1)

    @property
    def size(self) -> Tensor:
        """The largest absolute number in each interval."""
        return torch.maximum(self.lo.abs(), self.hi.abs())

    def intersection(self, other: "Interval") -> "Interval":
        """What lies in both."""
        return Interval(torch.maximum(self.lo, other.lo), torch.minimum(self.hi, other.hi))

    def linear(self, matrix: "TwoSided") -> "Interval":
        """Rows times matrixᵀ: `[rows, in]` to `[rows, out]`."""
        wide = self.outward(2 * self.lo.size(1))
        both = torch.cat([wide.lo, wide.hi], dim=1) @ matrix.both
        width = both.size(1) // 2
        return Interval(both[:, :width], both[:, width:])

    def sums(self, place: Tensor, size: int) -> "Interval":
        """`[size, width]`: rows added up by place. Call `outward` before, with the most rows that meet in one place."""
        lo, hi = (self.lo.new_zeros(size, self.lo.size(1)).index_add_(0, place, part) for part in (self.lo, self.hi))
        return Interval(lo, hi)

    def dot(self, other: "Interval") -> "Interval":
        """`[rows]`: Σ over the columns of the products with another interval."""
        wide = self.outward(self.lo.size(1))
        corners = torch.stack([a * b for a in (wide.lo, wide.hi) for b in (other.lo, other.hi)])
        return Interval(corners.amin(dim=0).sum(dim=1), corners.amax(dim=0).sum(dim=1))

    def is_zero(self) -> Tensor:
        """`[rows]`: where every number is exactly 0."""
        return ((self.lo == 0) & (self.hi == 0)).all(dim=1)


@dataclass(frozen=True, eq=False)
class TwoSided:
    """A matrix split by sign, so that one product maps both ends of an interval."""

    both: Tensor
    """`[2 in, 2 out]`: from (lo, hi) to (lo, hi)."""

    def t(self) -> "TwoSided":
        """The transposed matrix, split by sign; the parts keep their places."""
        return TwoSided(self.both.t())

    @staticmethod
    def of(matrix: Tensor) -> "TwoSided":
        """Split a matrix `[out, in]`.

        >>> TwoSided.of(torch.tensor([[2.0, -1.0]])).both        # out.lo = 2 lo₀ − hi₁, out.hi = 2 hi₀ − lo₁
        tensor([[ 2.,  0.],
                [ 0., -1.],
                [ 0.,  2.],
                [-1.,  0.]])
        """
        plus, minus = matrix.clamp(min=0).t(), matrix.clamp(max=0).t()
        return TwoSided(torch.cat([torch.cat([plus, minus], dim=1), torch.cat([minus, plus], dim=1)]))
