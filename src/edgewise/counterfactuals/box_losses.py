"""Where a linear bound of a box loses most: between a function with a kink and its lines, or by what a unit may bring."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from edgewise.counterfactuals.linear_bounds import Relaxation, lines
from edgewise.counterfactuals.set_intervals import Bounds, Boxes
from edgewise.counterfactuals.set_steps import SetCall, SetMap
from edgewise.trust.interval_operations import Rectify

_LEAST_SHARE = 0.1
"""A message that is followed back as a whole, or not at all, may still lose by its unit."""


@dataclass(eq=False)
class BoxLosses:
    """What is seen along one pass of `linear_bound`."""

    bounds: Bounds
    boxes: Boxes
    way: Relaxation
    kinks: dict[int, Tensor] = field(default_factory=dict)
    """By what a kink reads, `[boxes, rows · width]`."""
    units: Tensor = field(init=False)
    """`[boxes, U]`; 0 for units that cannot go."""
    scale: dict[int, float] = field(default_factory=dict)
    """By what a kink reads: the mean absolute coefficient."""

    def __post_init__(self) -> None:
        self.units = torch.zeros(self.boxes.silenced.shape, dtype=torch.double)

    def see(self, step: SetCall | SetMap, factor: Tensor) -> None:
        """A step of the way back, with the coefficients `[boxes, R, rows, width]` of what it makes."""
        if isinstance(step, SetCall):
            if step.sent is None:
                self._see_call(step, factor)
        elif isinstance(step.operation, Rectify):
            self._see_kink(step, step.operation, factor)

    def _see_call(self, step: SetCall, factor: Tensor) -> None:
        through = (factor if step.matrix is None else factor @ step.matrix)[:, :, step.head]
        low, high = (end[:, step.tail].unsqueeze(1) for end in self.bounds[step.source])
        loss = through.abs() * step.coefficient.abs().view(-1, 1) * (high - low)
        share = self.way.shares.get(step.output)
        if share is not None:
            loss = loss * torch.minimum(share, 1 - share).clamp(min=_LEAST_SHARE)
        free = self.boxes.free
        self.units = self.units.index_add(1, step.unit, loss.sum(dim=-1).amax(dim=1) * free[:, step.unit])

    def _see_kink(self, step: SetMap, kink: Rectify, factor: Tensor) -> None:
        value = kink.source
        low, high = (end[:, : step.rows].unsqueeze(1) for end in self.bounds[value])
        (under, under_at_zero), (over, over_at_zero) = lines(kink, low, high, self.way.slopes.get(step.output))
        plus, minus = factor.clamp(min=0), factor.clamp(max=0)
        loss = plus * _gap(kink, low, high, under, under_at_zero) - minus * _gap(kink, low, high, over, over_at_zero)
        loss = torch.where((low < 0) & (high > 0), loss, 0.0).amax(dim=1)  # [boxes, rows, width]
        every = torch.zeros(len(loss), *self.bounds[value][0].shape[1:], dtype=torch.double)
        every[:, : step.rows] = loss
        self.kinks[value] = self.kinks.get(value, 0.0) + every.flatten(1)
        self.scale[value] = float((plus * under + minus * over).abs().mean())

    def chosen(self, which: Tensor) -> "BoxLosses":
        """Those of some boxes."""
        found = BoxLosses(self.bounds, self.boxes.chosen(which), self.way)
        found.kinks, found.units = {key: part[which] for key, part in self.kinks.items()}, self.units[which]
        return found

    def worst(self, cost: Tensor) -> tuple[Tensor, Tensor]:
        """Where each box is to be cut: what a kink reads, or −1 for a unit, and the place there, `[boxes]` each.

        Where nothing is lost, it is the free unit with the highest cost `[boxes, U]`.
        """
        most, place = self.units.max(dim=1)
        cost = torch.where(self.boxes.free, cost, -1.0)
        place = torch.where(most > 0, place, cost.argmax(dim=1))
        value = torch.full_like(place, -1)
        for key, losses in self.kinks.items():
            largest, at = losses.max(dim=1)
            better = largest > most
            most, place = torch.maximum(most, largest), torch.where(better, at, place)
            value = torch.where(better, key, value)
        return value, place


def _gap(kink: Rectify, low: Tensor, high: Tensor, slope: Tensor, at_zero: Tensor) -> Tensor:
    """How far a line is from a function with a kink: the more at 0, or for a line through 0 the less of both ends."""
    left, right = (kink.below - slope) * low, (kink.above - slope) * high
    ends = torch.minimum(left.abs(), right.abs())
    return torch.where(at_zero == 0, ends, at_zero.abs())
