"""What `spreading.py` carries from call to call, and what it leaves for the way back."""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.trust.intervals import Interval


@dataclass(frozen=True, eq=False)
class Slots:
    """Edges, in which call their weight is varied (−1: in all of them), and between which numbers it lies."""

    edge: Tensor
    call: Tensor
    low: Tensor
    high: Tensor

    def __len__(self) -> int:
        return len(self.edge)

    def active(self, call: int) -> Tensor:
        """Whether a slot's weight is varied in a call."""
        return (self.call == call) | (self.call < 0)


@dataclass(frozen=True, eq=False)
class Slopes:
    """Bounds of ∂z/∂ω_e for the target at `position`, where they are not both 0."""

    position: Tensor
    slot: Tensor
    bounds: Interval


@dataclass(frozen=True, eq=False)
class Heard:
    """What a call leaves to be read later: the pairs that had moved before it, and the own message of some slots."""

    before: Tensor
    slot: Tensor
    message: Interval


@dataclass(frozen=True, eq=False)
class Bent:
    """What a rectifier leaves: its pairs, and where it is surely on, or surely off, for all weights of the slot."""

    key: Tensor
    on: Tensor
    off: Tensor


@dataclass(frozen=True, eq=False)
class Moved:
    """Per pair: what a value may differ by, and its derivative by the edge's weight."""

    change: Interval
    slope: Interval

    def rows(self, index: Tensor) -> "Moved":
        """Some pairs."""
        return Moved(self.change.rows(index), self.slope.rows(index))

    def scaled(self, factor: Tensor) -> "Moved":
        """Both times exact numbers, after `outward`."""
        return Moved(self.change.scaled(factor), self.slope.scaled(factor))

    def outward(self, terms: int) -> "Moved":
        """Both a little wider."""
        return Moved(self.change.outward(terms), self.slope.outward(terms))

    def placed(self, place: Tensor, size: int) -> "Moved":
        """As some of `size` rows; the others are zero."""
        return Moved(_placed(self.change, place, size), _placed(self.slope, place, size))

    def __add__(self, other: "Moved") -> "Moved":
        return Moved(self.change + other.change, self.slope + other.slope)

    def __neg__(self) -> "Moved":
        return Moved(-self.change, -self.slope)


def find(keys: Tensor, wanted: Tensor) -> Tensor:
    """The place of each wanted key among others, −1 if it is not there."""
    if len(keys) == 0:
        return torch.full_like(wanted, -1)
    ordered, order = keys.sort()
    place = torch.searchsorted(ordered, wanted).clamp(max=len(keys) - 1)
    return torch.where(ordered[place] == wanted, order[place], -1)


def put(rows: Interval, index: Tensor, new: Interval) -> Interval:
    """The rows with some of them replaced."""
    return Interval(rows.lo.index_copy(0, index, new.lo), rows.hi.index_copy(0, index, new.hi))


def _placed(rows: Interval, place: Tensor, size: int) -> Interval:
    zeros = rows.lo.new_zeros(size, *rows.lo.shape[1:])
    return Interval(zeros.index_copy(0, place, rows.lo), zeros.index_copy(0, place, rows.hi))
