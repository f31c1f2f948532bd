"""A lower bound of a margin, linear in which units go: margin ≥ base − Σ of the costs of the units that go.

Read the program backwards from the margin. Through a function with a kink, a positive coefficient takes a line below it, a
negative one a line above it, between the bounds of what it reads (Zhang et al., NeurIPS 2018, do so for the inputs of plain
networks). At a call, a slot with the coefficient q adds q · x to the margin; if its unit goes, the margin loses at most the
largest value of q · x. So every unit has a cost, summed over calls and directions, and the r costliest units that may go are
the worst that can happen.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.counterfactuals.set_intervals import Bounds, Boxes
from edgewise.counterfactuals.set_program import SetProgram
from edgewise.counterfactuals.set_steps import SetCall, SetMap
from edgewise.trust.interval_operations import Join, Rectify, Sum


@dataclass(frozen=True, eq=False)
class LinearBound:
    """For each box and each of R numbers: number ≥ base − Σ cost over the units that go."""

    base: Tensor
    """`[boxes, R]`"""
    cost: Tensor
    """`[boxes, R, U]`: not negative; 0 for units that cannot go."""
    budget: int

    @property
    def least(self) -> Tensor:
        """`[boxes, R]`: the bound when the costliest units go."""
        count = min(self.budget, self.cost.size(-1))
        return self.base - self.cost.topk(count, dim=-1).values.sum(dim=-1)


def linear_bound(
    program: SetProgram, bounds: Bounds, boxes: Boxes, start: Tensor, value: int | None = None
) -> LinearBound:
    """The bound of R linear functions of a value (by default the output): `start` `[boxes, R, rows, width]`."""
    value = program.output if value is None else value
    pulled, on = {value: start}, boxes.on.double()
    base = start.new_zeros(start.shape[:2])
    cost = start.new_zeros(*start.shape[:2], program.num_units)
    for step in reversed(program.steps):
        factor = pulled.pop(step.output, None)
        if factor is None:
            continue
        if isinstance(step, SetCall):
            base = base + _through_call(step, factor, bounds, on[:, step.unit], pulled, cost, program)
        else:
            base = base + _through_map(step, factor, bounds, pulled, program)
    for constant, factor in pulled.items():  # rows of a constant that a row-wise step read
        base = base + (factor * program.constants[constant][: factor.size(2)]).sum(dim=(2, 3))
    cost = cost.clamp(min=0) * boxes.free.unsqueeze(1)
    return LinearBound(base, cost, boxes.budget)


def margins_start(program: SetProgram, boxes: int, count: int) -> Tensor:
    """The margins themselves, `[boxes, J, 1, J]`: what `linear_bound` starts from."""
    start = torch.zeros(boxes, count, program.rows[program.output], count, dtype=torch.double)
    start[:, torch.arange(count), 0, torch.arange(count)] = 1
    return start


def _give(pulled: dict[int, Tensor], value: int, factor: Tensor, rows: int) -> None:
    """Add coefficients of the first rows of a value to those that it has."""
    if factor.size(2) < rows:
        pad = factor.new_zeros(*factor.shape[:2], rows - factor.size(2), factor.size(3))
        factor = torch.cat([factor, pad], dim=2)
    pulled[value] = pulled[value] + factor if value in pulled else factor


def _through_call(
    step: SetCall,
    factor: Tensor,
    bounds: Bounds,
    on: Tensor,
    pulled: dict[int, Tensor],
    cost: Tensor,
    program: SetProgram,
) -> Tensor:
    """What a call adds to the base `[boxes, R]`; costs are added in place. `factor` `[boxes, R, rows, out]`."""
    if step.sent is not None and step.rest is not None:
        brought = torch.linalg.vecdot(factor[:, :, step.head], step.sent) * on.unsqueeze(1)  # [boxes, R, S]
        cost.index_add_(2, step.unit, brought)
        return (factor * step.rest).sum(dim=(2, 3)) + brought.sum(dim=2)
    through = factor if step.matrix is None else factor @ step.matrix
    onward = torch.zeros(*factor.shape[:2], program.rows[step.source], through.size(3), dtype=torch.double)
    if step.own_scale is not None:
        onward[:, :, : step.rows] += through * step.own_scale
    if step.root is not None:
        onward[:, :, : step.rows] += factor @ step.root
    slots = through[:, :, step.head] * (on * step.coefficient).unsqueeze(1).unsqueeze(-1)  # [boxes, R, S, in]
    onward.index_add_(2, step.tail, slots)
    low, high = (end[:, step.tail].unsqueeze(1) for end in bounds[step.source])
    most = torch.linalg.vecdot(slots.clamp(min=0), high) + torch.linalg.vecdot(slots.clamp(max=0), low)
    cost.index_add_(2, step.unit, most)
    _give(pulled, step.source, onward, program.rows[step.source])
    return factor.new_zeros(factor.shape[:2]) if step.bias is None else factor.sum(dim=2) @ step.bias


def _through_map(
    step: SetMap, factor: Tensor, bounds: Bounds, pulled: dict[int, Tensor], program: SetProgram
) -> Tensor:
    """What a row-wise operation adds to the base, `[boxes, R]`."""
    operation, nothing = step.operation, factor.new_zeros(factor.shape[:2])
    if isinstance(operation, Sum):
        for value, sign in zip(operation.reads, (1.0, operation.sign), strict=True):
            _give(pulled, value, sign * factor, program.rows[value])
        return nothing
    if isinstance(operation, Join):
        widths = [bounds[value][0].size(-1) for value in operation.reads]
        for value, part in zip(operation.reads, factor.split(widths, dim=-1), strict=True):
            _give(pulled, value, part, program.rows[value])
        return nothing
    source = operation.source
    if isinstance(operation, Rectify):
        low, high = (end[:, : step.rows].unsqueeze(1) for end in bounds[source])
        (under, under_at_zero), (over, over_at_zero) = lines(operation, low, high)
        plus, minus = factor.clamp(min=0), factor.clamp(max=0)
        _give(pulled, source, plus * under + minus * over, program.rows[source])
        return (plus * under_at_zero + minus * over_at_zero).sum(dim=(2, 3))
    shift = nothing if step.shift is None else (factor * step.shift).sum(dim=(2, 3))
    factor = factor if step.scale is None else factor * step.scale
    _give(pulled, source, factor if step.matrix is None else factor @ step.matrix, program.rows[source])
    return shift


def lines(kink: Rectify, low: Tensor, high: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """A line below and a line above a function with a kink at 0, between bounds: (slope, value at 0) of each.

    >>> relu = Rectify(0, 1, torch.tensor(0.0).double(), torch.tensor(1.0).double())
    >>> below, above = lines(relu, torch.tensor([-1.0]).double(), torch.tensor([3.0]).double())
    >>> [part.item() for part in (*below, *above)]                       # x below, ¾ x + ¾ above
    [1.0, 0.0, 0.75, 0.75]
    """
    least, most = torch.minimum(kink.below, kink.above), torch.maximum(kink.below, kink.above)
    bent = (low < 0) & (high > 0)
    plain = torch.where(low >= 0, kink.above, kink.below).expand_as(low)
    width = torch.where(bent, high - low, torch.ones_like(low))
    slope = ((kink.above * high - kink.below * low) / width).clamp(least, most)
    chord = torch.where(bent, slope, plain), torch.where(bent, kink.above * high - slope * high, 0.0)
    touching = torch.where(bent, torch.where(high > -low, kink.above, kink.below), plain), torch.zeros_like(low)
    if bool((kink.above >= kink.below).all()):
        return touching, chord
    if bool((kink.above <= kink.below).all()):
        return chord, touching
    convex = kink.above >= kink.below
    under, over = (
        tuple(torch.where(choice, a, b) for a, b in zip(touching, chord, strict=True)) for choice in (convex, ~convex)
    )
    return (under[0], under[1]), (over[0], over[1])
