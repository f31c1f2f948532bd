"""The few operations that interval arithmetic knows: sums of messages, affine maps, functions with kinks, sums, joins, pools.

An operation (`Messages`, `Affine`, `Rectify`, `Sum`, `Join`, `Pool`) reads values, numbered tables with a row for each node (or
graph), and writes one. `interval_program.py` makes them from a lowered program. Attention is in `attention_operation.py`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.program.intervals import Interval, TwoSided
from edgewise.program.layers.affine import AffineLayer

_ROUNDED = 8  # roundings that a number computed while reading (a scale) may carry


# --- Operations: what a program is made of ------------------------------------------------------------------------------


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
    """x ↦ x Wᵀ + shift with a matrix, or x ↦ x · scale + shift with a number for each column (or each node and column)."""

    matrix: TwoSided | None = None
    scale: Tensor | None = None
    """`[width]`, or `[N, width]`, or one number."""
    shift: Interval | None = None

    def linear(self, rows: Interval, node: Tensor) -> Interval:
        """The map without its shift, as changes and slopes go through it; `node` `[rows]` says whose rows they are."""
        if self.matrix is not None:
            return rows.linear(self.matrix)
        if self.scale is None:
            return rows
        return rows.times(self.scale if self.scale.dim() < 2 else self.scale.index_select(0, node)).outward(_ROUNDED)

    def backward(self, rows: Interval, node: Tensor) -> Interval:
        """From gradients by the output to gradients by the input."""
        return rows.linear(self.matrix.t()) if self.matrix is not None else self.linear(rows, node)


@dataclass(frozen=True, eq=False)
class Rectify(_OfOne):
    """A kink at 0: x ↦ below · x on the left, above · x on the right. With shifts around it any `clamp`."""

    below: Tensor
    """A number, or `[width]`."""
    above: Tensor
    off_at_zero: bool = True
    """Whether the derivative at 0 is that on the left, as for ReLU."""
    on_at_zero: bool = False
    """Whether it is that on the right, as for `clamp(min=0)`; for `abs` it is neither."""

    def __call__(self, rows: Interval) -> Interval:
        """The function itself: its largest and smallest numbers are at the ends of an interval, or at the kink."""
        low, high = (part * torch.where(part > 0, self.above, self.below) for part in (rows.lo, rows.hi))
        found = Interval(torch.minimum(low, high), torch.maximum(low, high)).outward(1)
        kink = (rows.lo < 0) & (rows.hi > 0)
        lo, hi = found.lo.clamp(max=0), found.hi.clamp(min=0)
        return Interval(torch.where(kink, lo, found.lo), torch.where(kink, hi, found.hi))

    def sides(self, rows: Interval) -> tuple[Tensor, Tensor]:
        """Where numbers are surely on the right of the kink, and where surely on the left."""
        on = rows.lo >= 0 if self.on_at_zero else rows.lo > 0
        off = rows.hi <= 0 if self.off_at_zero else rows.hi < 0
        return on, off

    def derivative(self, on: Tensor, off: Tensor) -> tuple[Tensor, Tensor]:
        """Least and greatest derivative: `above` where it is surely on, `below` where it is surely off, else between them."""
        least, most = torch.minimum(self.below, self.above), torch.maximum(self.below, self.above)
        low, high = (
            torch.where(on, self.above, torch.where(off, self.below, other)).expand(on.shape) for other in (least, most)
        )
        return low, high


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


@dataclass(frozen=True, eq=False)
class Pool(_OfOne):
    """One row for each graph from those of its nodes: their sum, or the largest number of each column."""

    largest: bool


@dataclass(frozen=True, eq=False)
class EdgeMessages(_OfOne):
    """A call whose messages have a kink on the edge: out_v = Σ_e relu(x_sender + f_e) + root · x_v (GINE)."""

    call: int
    features: Tensor
    """`[E, width]`."""
    root: Tensor
    kink: Rectify

    def own(self, rows: Interval) -> Interval:
        """The own terms of some nodes."""
        return rows.times(self.root)


# --- Changes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Moved:
    """For each pair, `[pairs, width]`: what a value may differ by from that at weight 1, and its derivative by the weight."""

    change: Interval
    slope: Interval

    def rows(self, index: Tensor) -> "Moved":
        """Some of the pairs."""
        return Moved(self.change.rows(index), self.slope.rows(index))

    def scaled(self, factor: Tensor) -> "Moved":
        """Both times exact numbers; `outward` must have been called before."""
        return Moved(self.change.scaled(factor), self.slope.scaled(factor))

    def outward(self, terms: int) -> "Moved":
        """Both a little wider."""
        return Moved(self.change.outward(terms), self.slope.outward(terms))

    def placed(self, place: Tensor, size: int) -> "Moved":
        """The rows at the given places among `size` rows; the others are zero."""
        return Moved(self.change.placed(place, size), self.slope.placed(place, size))

    def __add__(self, other: "Moved") -> "Moved":
        return Moved(self.change + other.change, self.slope + other.slope)

    def __neg__(self) -> "Moved":
        return Moved(-self.change, -self.slope)


def rectified(kink: Rectify, known: Interval, moved: Moved) -> tuple[Moved, Tensor, Tensor]:
    """Through a kink, from what was there at weight 1; and where it is surely on, and surely off, for all weights of the slot.

    A change is multiplied by a slope between those on the way; where the rectifier stays on or off it is exact.
    """
    change = moved.change
    now = Interval(known.lo + change.lo, known.hi + change.hi).outward(1)
    after, before = kink(now), kink(known)
    bent = Interval(after.lo - before.hi, after.hi - before.lo).outward(1)
    (on, off), (was_on, was_off) = kink.sides(now), kink.sides(known)
    along = change.between(*kink.derivative(on & was_on, off & was_off))
    return Moved(along.intersection(bent), moved.slope.between(*kink.derivative(on, off))), on, off
