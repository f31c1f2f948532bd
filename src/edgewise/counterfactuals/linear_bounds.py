"""A lower bound of a margin, linear in which units go: margin ≥ base − Σ of the costs of the units that go.

Read the program backwards from the margin. Through a function with a kink, a positive coefficient takes a line below it, a
negative one a line above it, between the bounds of what it reads (Zhang et al., NeurIPS 2018, do so for the inputs of plain
networks). At a call, a slot with the coefficient q adds q · x to the margin; if its unit goes, the margin loses at most the
largest value of q · x. So every unit has a cost, summed over calls and directions, and the r costliest units that may go are
the worst that can happen.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from edgewise.counterfactuals.set_intervals import Bounds, Boxes
from edgewise.counterfactuals.set_program import SetProgram
from edgewise.counterfactuals.set_steps import SetCall, SetMap, grouped_rows
from edgewise.trust.interval_operations import Join, Rectify, Sum

Watch = Callable[[SetCall | SetMap, Tensor], None]


@dataclass(frozen=True, eq=False)
class LinearBound:
    """For each box and each of R numbers: number ≥ base − Σ cost over the units that go."""

    base: Tensor
    """`[boxes, R]`"""
    cost: Tensor
    """`[boxes, R, U]`: not negative; 0 for units that cannot go."""
    budget: int
    budgets: Tensor | None = None
    """`[boxes]`: those of the boxes, where they differ."""

    def chosen(self, which: Tensor) -> "LinearBound":
        """The bounds of some of the boxes."""
        budgets = None if self.budgets is None else self.budgets[which]
        return LinearBound(self.base[which], self.cost[which], self.budget, budgets)

    @property
    def least(self) -> Tensor:
        """`[boxes, R]`: the bound when the costliest units go."""
        units = self.cost.size(-1)
        if self.budget >= units and (self.budgets is None or bool((self.budgets >= units).all())):
            return self.base - self.cost.sum(dim=-1)
        worst = self.cost.topk(min(self.budget, units), dim=-1).values
        if self.budgets is not None:
            worst = worst * (torch.arange(worst.size(-1)) < self.budgets.view(-1, 1, 1))
        return self.base - worst.sum(dim=-1)


@dataclass(frozen=True, eq=False)
class Relaxation:
    """Which of the many valid linear bounds is taken. Slopes and shares are between 0 and 1, and any of them are valid."""

    slopes: dict[int, Tensor]
    """By the value that a function with a kink makes, `[boxes or 1, 1, rows, width]`: the line that touches it, from its
    flattest slope on."""
    shares: dict[int, Tensor]
    """By the value that a call makes, `[boxes or 1, 1, S, in]`: how much of what a slot brings is followed back to its sender
    (and lost at its largest if the slot goes); of the rest the least that it can be is taken (and lost)."""
    prices: dict[int, Tensor] = field(default_factory=dict)
    """By the value that a function with a kink reads, `[boxes or 1, 1, rows, width]`: how many times a number is taken from the
    bound. Valid if not negative where all numbers of the box are above 0, not positive where all are below, and else 0."""

    def each(self, change: Callable[[Tensor], Tensor]) -> "Relaxation":
        """The same with every tensor changed."""
        groups = (self.slopes, self.shares, self.prices)
        return Relaxation(*({key: change(part) for key, part in group.items()} for group in groups))

    def parameters(self) -> list[Tensor]:
        """All tensors but the prices."""
        return [*self.slopes.values(), *self.shares.values()]


def linear_bound(
    program: SetProgram,
    bounds: Bounds,
    boxes: Boxes,
    start: Tensor,
    value: int | None = None,
    relaxation: Relaxation | None = None,
    watch: "Watch | None" = None,
) -> LinearBound:
    """The bound of R linear functions of a value (by default the output): `start` `[boxes, R, rows, width]`.

    `watch` is shown every step with the coefficients of what it makes, `[boxes, R, rows, width]`.
    """
    way = _WayBack(program, bounds, boxes, relaxation or Relaxation({}, {}), start.shape[:2])
    way.give(program.output if value is None else value, start)
    for step in reversed(program.steps):
        factor = way.pulled.pop(step.output, None)
        if factor is None:
            continue
        if watch is not None:
            watch(step, factor)
        if isinstance(step, SetCall):
            way.call(step, factor)
        else:
            way.map(step, factor)
    for constant, factor in way.pulled.items():  # rows of a constant that a row-wise step read
        way.base = way.base + (factor * program.constants[constant][: factor.size(2)]).sum(dim=(2, 3))
    cost = way.cost.clamp(min=0) * boxes.free.unsqueeze(1)
    return LinearBound(way.base, cost, boxes.budget, boxes.budgets)


def margins_start(program: SetProgram, boxes: int, count: int) -> Tensor:
    """The margins themselves, `[boxes, J, 1, J]`: what `linear_bound` starts from."""
    start = torch.zeros(boxes, count, program.rows[program.output], count, dtype=torch.double)
    start[:, torch.arange(count), 0, torch.arange(count)] = 1
    return start


class _WayBack:
    """The state of one pass: coefficients of values that are still to be read, `[boxes, R, rows, width]`, base and costs."""

    def __init__(
        self, program: SetProgram, bounds: Bounds, boxes: Boxes, relaxation: Relaxation, shape: tuple[int, ...]
    ) -> None:
        self.program, self.bounds, self.relaxation = program, bounds, relaxation
        self.on = boxes.on.double()
        self.pulled: dict[int, Tensor] = {}
        self.base = torch.zeros(shape, dtype=torch.double)
        self.cost = torch.zeros(*shape, program.num_units, dtype=torch.double)

    def give(self, value: int, factor: Tensor) -> None:
        """Add coefficients of the first rows of a value to those that it has."""
        missing = self.program.rows[value] - factor.size(2)
        if missing:
            factor = torch.cat([factor, factor.new_zeros(*factor.shape[:2], missing, factor.size(3))], dim=2)
        self.pulled[value] = self.pulled[value] + factor if value in self.pulled else factor

    def charge(self, step: SetCall, cost: Tensor) -> None:
        """Add costs of slots `[boxes, R, S]` to those of their units."""
        self.cost = self.cost.index_add(2, step.unit, cost)

    def call(self, step: SetCall, factor: Tensor) -> None:
        """Through a call: `factor` is `[boxes, R, rows, out]`."""
        on = self.on[:, step.unit]
        if step.sent is not None and step.rest is not None:
            brought = torch.linalg.vecdot(factor[:, :, step.head], step.sent) * on.unsqueeze(1)  # [boxes, R, S]
            self.charge(step, brought)
            self.base = self.base + (factor * step.rest).sum(dim=(2, 3)) + brought.sum(dim=2)
            return
        if step.bias is not None:
            self.base = self.base + factor.sum(dim=2) @ step.bias
        through = factor if step.matrix is None else factor @ step.matrix
        if step.own_scale is not None:
            self.give(step.source, through * step.own_scale)
        if step.root is not None:
            self.give(step.source, factor @ step.root)
        weight = on * step.coefficient
        slots = through[:, :, step.head] * weight.unsqueeze(1).unsqueeze(-1)  # [boxes, R, S, in]
        low, high = (end[:, step.tail].unsqueeze(1) for end in self.bounds[step.source])
        plus, minus = slots.clamp(min=0), slots.clamp(max=0)
        order, start = step.by_tail
        share = self.relaxation.shares.get(step.output)
        if share is None:
            self.charge(step, torch.linalg.vecdot(plus, high) + torch.linalg.vecdot(minus, low))
            weights = weight[:, order].repeat_interleave(through.size(1), 0)
            back = grouped_rows(through.flatten(0, 1), step.head[order], start, weights)
        else:
            least = ((plus * low + minus * high) * (1 - share)).sum(dim=-1)
            self.charge(step, ((plus * high + minus * low) * share).sum(dim=-1) + least)
            self.base = self.base + least.sum(dim=2)
            followed = (slots * share).flatten(0, 1)
            back = grouped_rows(followed, order, start, torch.ones(len(followed), len(order), dtype=torch.double))
        self.give(step.source, back.unflatten(0, factor.shape[:2]))

    def map(self, step: SetMap, factor: Tensor) -> None:
        """Through a row-wise operation."""
        operation = step.operation
        if isinstance(operation, Sum):
            for value, sign in zip(operation.reads, (1.0, operation.sign), strict=True):
                self.give(value, sign * factor)
        elif isinstance(operation, Join):
            widths = [self.bounds[value][0].size(-1) for value in operation.reads]
            for value, part in zip(operation.reads, factor.split(widths, dim=-1), strict=True):
                self.give(value, part)
        elif isinstance(operation, Rectify):
            low, high = (end[:, : step.rows].unsqueeze(1) for end in self.bounds[operation.source])
            (under, under_at_zero), (over, over_at_zero) = lines(
                operation, low, high, self.relaxation.slopes.get(step.output)
            )
            plus, minus = factor.clamp(min=0), factor.clamp(max=0)
            price = self.relaxation.prices.get(operation.source)
            through = plus * under + minus * over
            self.give(operation.source, through if price is None else through - price[:, :, : step.rows])
            self.base = self.base + (plus * under_at_zero + minus * over_at_zero).sum(dim=(2, 3))
        else:
            if step.shift is not None:
                self.base = self.base + (factor * step.shift).sum(dim=(2, 3))
            factor = factor if step.scale is None else factor * step.scale
            self.give(operation.source, factor if step.matrix is None else factor @ step.matrix)


def lines(
    kink: Rectify, low: Tensor, high: Tensor, share: Tensor | None = None
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """A line below and a line above a function with a kink at 0, between bounds: (slope, value at 0) of each.

    One of them touches the function at 0: any slope between those of its two sides will do, and `share` chooses one.

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
    turned = torch.where(high > -low, kink.above, kink.below) if share is None else least + share * (most - least)
    touching = torch.where(bent, turned, plain), torch.zeros_like(low)
    if bool((kink.above >= kink.below).all()):
        return touching, chord
    if bool((kink.above <= kink.below).all()):
        return chord, touching
    convex = kink.above >= kink.below
    under, over = (
        tuple(torch.where(choice, a, b) for a, b in zip(touching, chord, strict=True)) for choice in (convex, ~convex)
    )
    return (under[0], under[1]), (over[0], over[1])
