"""The few operations that interval arithmetic knows: sums of messages, affine maps, rectifiers, sums and joins.

An operation reads values (numbered tables of rows, one for each node) and writes one. `interval_program.py` makes a `Plan` of
them from a lowered program.
"""

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from edgewise.program.layers.affine import AffineLayer
from edgewise.trust.intervals import Interval, TwoSided

ROUNDED = 8  # roundings that a number computed while reading (a scale) may carry


@dataclass(frozen=True, eq=False)
class _OfOne:
    """An operation that reads one value."""

    source: int
    output: int

    @property
    def reads(self) -> tuple[int, ...]:
        """The numbers of the values that it reads."""
        return (self.source,)


@dataclass(frozen=True, eq=False)
class Messages(_OfOne):
    """A message-passing call: out_v = Σ_e c_e · W x_sender + own terms + bias."""

    call: int
    layer: AffineLayer
    matrix: TwoSided | None
    root: TwoSided | None

    def sent(self, rows: Interval) -> Interval:
        """W x: what nodes send, before the edges' coefficients."""
        return rows if self.matrix is None else rows.linear(self.matrix)

    def own(self, sent: Interval, rows: Interval, node: Tensor) -> Interval | None:
        """The own terms of some nodes (self-loop and root weight); None if the layer has none."""
        total: Interval | None = None
        if self.layer.loop is not None:
            total = sent.times(self.layer.loop.index_select(0, node).view(-1, 1))
        if self.layer.root is not None:
            through = sent.times(sent.lo.new_tensor(self.layer.root)) if self.root is None else rows.linear(self.root)
            total = through if total is None else total + through
        return total

    def coefficients(self, edge: Tensor) -> Tensor:
        """`[edges, 1]`: the coefficients c_e of some edges, float64."""
        return self.layer.coefficients(edge, torch.ones(0, dtype=torch.double, device=edge.device)).view(-1, 1)


@dataclass(frozen=True, eq=False)
class Affine(_OfOne):
    """x ↦ x Wᵀ + shift with a matrix, or x ↦ x · scale + shift with a number for each column."""

    matrix: TwoSided | None = None
    scale: Tensor | None = None
    shift: Interval | None = None

    def linear(self, rows: Interval) -> Interval:
        """The map without its shift, as changes and slopes go through it."""
        if self.matrix is not None:
            return rows.linear(self.matrix)
        return rows if self.scale is None else rows.times(self.scale).outward(ROUNDED)

    def backward(self, rows: Interval) -> Interval:
        """From gradients by the output to gradients by the input."""
        return rows.linear(self.matrix.t()) if self.matrix is not None else self.linear(rows)


@dataclass(frozen=True, eq=False)
class Rectify(_OfOne):
    """ReLU (slope 0) or LeakyReLU (slope between 0 and 1)."""

    slope: float

    def __call__(self, rows: Interval) -> Interval:
        """The function itself; it is monotone, so the ends of an interval go to the ends."""
        bent = Interval(rows.lo * self.slope, rows.hi * self.slope).outward(1)
        return Interval(torch.where(rows.lo > 0, rows.lo, bent.lo), torch.where(rows.hi > 0, rows.hi, bent.hi))

    def derivative(self, on: Tensor, off: Tensor) -> tuple[Tensor, Tensor]:
        """Least and greatest derivative: 1 where it is surely on, `slope` where it is surely off."""
        one = torch.ones(on.shape, dtype=torch.double, device=on.device)
        return torch.where(on, one, self.slope), torch.where(off, self.slope * one, 1.0)


@dataclass(frozen=True, eq=False)
class Sum:
    """A ± b."""

    reads: tuple[int, int]
    output: int
    sign: float


@dataclass(frozen=True, eq=False)
class Join:
    """Columns side by side."""

    reads: tuple[int, ...]
    output: int


Operation: TypeAlias = Messages | Affine | Rectify | Sum | Join
