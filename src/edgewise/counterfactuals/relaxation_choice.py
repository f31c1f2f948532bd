"""The best of the linear bounds of a margin: a few steps of projected gradient ascent on its free numbers, for many boxes."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.counterfactuals.linear_bounds import Relaxation, linear_bound, margins_start
from edgewise.counterfactuals.rounding_bound import RoundingBound
from edgewise.counterfactuals.set_intervals import Bounds, Boxes
from edgewise.counterfactuals.set_program import SetProgram
from edgewise.counterfactuals.set_steps import SetCall
from edgewise.trust.interval_operations import Rectify

_RATE = 0.2
_LARGEST = 2**22
"""Numbers of a relaxation that are worth the ascent."""


@dataclass(frozen=True, eq=False)
class Prices:
    """How prices are raised (`Relaxation.prices`), and what they cost by rounding."""

    rounding: RoundingBound
    scale: dict[int, float]
    """By value: about how large coefficients are there."""
    rate: float = 0.1
    """Shorter steps: boxes begin where their parents ended."""

    def error(self, way: Relaxation) -> Tensor:
        """`[boxes, 1]`: how far bounds may be off because of the prices: a linear function of a value for each box."""
        errors = [(part.abs() * self.rounding.of_value(key)).sum(dim=(2, 3)) for key, part in way.prices.items()]
        return torch.stack(errors).sum(dim=0) * self.rounding.linear_factor


def raised_bound(
    program: SetProgram,
    bounds: Bounds,
    boxes: Boxes,
    margins: int,
    first: Relaxation,
    steps: int,
    prices: Prices | None = None,
) -> tuple[Tensor, Relaxation]:
    """The highest bound of each margin that was found, `[boxes, J]`, and the last relaxation.

    `first` is where the ascent starts; Adam treats every box by itself. The ascent is on the margin of a box that is the
    nearest to being proved: one is enough. With `prices` they are raised, too, and rounding errors of theirs are taken off.
    """
    start = margins_start(program, len(boxes), margins)
    highest = torch.full((len(boxes), margins), -torch.inf, dtype=torch.double)
    with torch.enable_grad():
        way = first.each(lambda part: part.detach().expand(len(boxes), *part.shape[1:]).clone().requires_grad_())
        rate = _RATE if prices is None else prices.rate
        groups: list[dict[str, Any]] = [{"params": way.parameters(), "lr": rate}]
        if prices is not None:
            groups += [{"params": [part], "lr": rate * prices.scale[key]} for key, part in way.prices.items()]
        optimizer = torch.optim.Adam(groups)
        for _ in range(steps):
            least = linear_bound(program, bounds, boxes, start, relaxation=way).least
            least = least if prices is None else least - prices.error(way)
            highest = torch.maximum(highest, least.detach())
            optimizer.zero_grad()
            (-least.amax(dim=1).sum()).backward()
            optimizer.step()
            with torch.no_grad():
                for part in way.parameters():
                    part.clamp_(0, 1)
                for key, part in way.prices.items():
                    low, high = (end.unsqueeze(1) for end in bounds[key])
                    part.clamp_(torch.where(high <= 0, -torch.inf, 0.0), torch.where(low >= 0, torch.inf, 0.0))
    return highest, way.each(lambda part: part.detach())


def raised_each(program: SetProgram, bounds: Bounds, root: Boxes, start: Tensor, value: int, steps: int = 12) -> Tensor:
    """The highest bounds that were found of R linear functions of a value, `[1, R]`, each with lines of its own."""
    usual = usual_relaxation(program, bounds)
    first = Relaxation({key: part.expand(-1, start.size(1), -1, -1) for key, part in usual.slopes.items()}, {})
    highest = torch.full(start.shape[:2], -torch.inf, dtype=torch.double)
    if sum(part.numel() for part in first.parameters()) > _LARGEST:
        return linear_bound(program, bounds, root, start, value).least
    with torch.enable_grad():
        way = first.each(lambda part: part.detach().clone().requires_grad_())
        optimizer = torch.optim.Adam(way.parameters(), lr=_RATE)
        for _ in range(steps):
            least = linear_bound(program, bounds, root, start, value, way).least
            highest = torch.maximum(highest, least.detach())
            optimizer.zero_grad()
            (-least.sum()).backward()
            optimizer.step()
            with torch.no_grad():
                for part in way.parameters():
                    part.clamp_(0, 1)
    return highest


def usual_relaxation(program: SetProgram, bounds: Bounds) -> Relaxation:
    """Steep lines where more of the interval is above 0, and all messages followed back."""
    slopes, shares = {}, {}
    for step in program.steps:
        if isinstance(step, SetCall):
            if step.sent is None:
                shares[step.output] = torch.ones(
                    1, 1, len(step.head), bounds[step.source][0].size(-1), dtype=torch.double
                )
        elif isinstance(step.operation, Rectify):
            low, high = (end[:, : step.rows].unsqueeze(1) for end in bounds[step.operation.source])
            steep = (high > -low).double()
            slopes[step.output] = torch.where(step.operation.above >= step.operation.below, steep, 1 - steep)
    return Relaxation(slopes, shares)


def better_of(choice: Tensor, one: Relaxation, other: Relaxation) -> Relaxation:
    """For each box the one where `choice` `[boxes]` is true, else the other."""
    pick = choice.view(-1, 1, 1, 1)
    groups = ((one.slopes, other.slopes), (one.shares, other.shares))
    return Relaxation(*({key: torch.where(pick, a[key], b[key]) for key in a} for a, b in groups))
