"""How far numbers that were computed in float64 may be from the true ones, whatever the set of silenced units.

Let A be what the program gives if every number in it is replaced by its absolute value, and all units are on. Adding up n
products makes an error of at most n · 2⁻⁵³ · A, and an error E of what a step reads becomes at most |step|(E). So after steps
with n₁, n₂, … terms the error is below (n₁ + n₂ + …) · 2⁻⁵³ · A, to first order; a factor of 4 covers the higher orders, and
the bounds, where the same terms are added up twice: once for what is on, once for what may go. Underflow is left out of
account.

The same holds for linear bounds: their coefficients are below those of the absolute program read backwards, so that every
product of a coefficient with a value is a part of A again.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from edgewise.counterfactuals.binary_digits import digits
from edgewise.counterfactuals.exact_numbers import is_exact
from edgewise.counterfactuals.goal import Goal
from edgewise.counterfactuals.set_program import SetProgram
from edgewise.counterfactuals.set_steps import SetCall, SetMap
from edgewise.trust.interval_operations import Join, Rectify

UNIT = 2.0**-53
_SAFETY = 4
_FEW_DIGITS = 24
_ROUNDED = 16
"""Roundings of a number that was computed while the program was read (a scale), and of a slope and its line."""


@dataclass(frozen=True, eq=False)
class RoundingBound:
    """The bound for every value of a program, and for the margins of a goal."""

    program: SetProgram
    magnitude: dict[int, Tensor]
    """A of every value, `[rows, width]`."""
    terms: dict[int, int]
    """n₁ + n₂ + … up to every value."""

    @staticmethod
    def of(program: SetProgram) -> "RoundingBound":
        """One pass of the program with absolute values."""
        magnitude = {value: rows.abs() for value, rows in program.constants.items()}
        terms: dict[int, int] = {}
        for step in program.steps:
            if isinstance(step, SetCall):
                magnitude[step.output] = _received(step, magnitude)
                terms[step.output] = terms.get(step.source, 0) + step.terms + _ROUNDED
            else:
                magnitude[step.output] = _mapped(step, [magnitude[value][: step.rows] for value in step.reads])
                inside = 0 if step.matrix is None else step.matrix.size(1)
                terms[step.output] = max(terms.get(value, 0) for value in step.reads) + inside + _ROUNDED
        return RoundingBound(program, magnitude, terms)

    def of_value(self, value: int) -> Tensor:
        """`[rows, width]`: how far a number of a value, or a bound of it, may be off."""
        return self.magnitude[value] * (_SAFETY * UNIT * (self.terms[value] + _ROUNDED))

    @cached_property
    def is_exact(self) -> bool:
        """Whether nothing is rounded at all."""
        return is_exact(self.program, self.magnitude)

    def of_margins(self, goal: Goal) -> Tensor:
        """`[J]`: how far a margin may be off; 0 where nothing is rounded."""
        size = self._of_sums(goal)
        return torch.zeros_like(size) if self.is_exact and digits(goal.offset) < _FEW_DIGITS else size

    def _of_sums(self, goal: Goal) -> Tensor:
        size = self.magnitude[self.program.output][0] @ goal.directions.abs().t() + goal.offset.abs()
        terms = self.terms[self.program.output] + goal.directions.size(1) + _ROUNDED
        return size * (_SAFETY * UNIT * terms)

    @cached_property
    def linear_factor(self) -> float:
        """How many times further linear bounds may be off: all slots of all calls and all units are added up, too."""
        slots = sum(len(step.head) + step.rows for step in self.program.steps if isinstance(step, SetCall))
        steps, terms = len(self.program.steps), self.terms[self.program.output]
        return steps + 2 * steps * (slots + self.program.num_units + _ROUNDED * steps) / terms + 1

    def of_linear_bounds(self, goal: Goal) -> Tensor:
        """`[J]`: how far a lower bound of a margin may be off."""
        return self._of_sums(goal) * self.linear_factor


# --- The error of single sets, step by step: what is surely off has none --------------------------------------------------


def margin_errors(program: SetProgram, silenced: Tensor, goal: Goal) -> tuple[Tensor, Tensor]:
    """Margins of some sets and how far each may be off, `[sets, J]` each: sharper than `RoundingBound`, and slower.

    Where every unit of a network is surely off, outputs are the biases alone and ties are exact.
    """
    on = (~silenced).double()
    found = {value: (rows, torch.zeros_like(rows)) for value, rows in program.constants.items()}
    for step in program.steps:
        if isinstance(step, SetCall):
            found[step.output] = _received_with_error(step, found.get(step.source), on[:, step.unit])
        else:
            found[step.output] = _mapped_with_error(
                step, [tuple(part[..., : step.rows, :] for part in found[value]) for value in step.reads]
            )
    rows, error = (part[:, 0] for part in found[program.output])
    turn = goal.directions.abs().t()
    size = rows.abs() @ turn + goal.offset.abs()
    return goal.margins(rows), error @ turn + size * (_SAFETY * UNIT * (len(turn) + _ROUNDED))


def _received_with_error(step: SetCall, table: tuple[Tensor, Tensor] | None, weight: Tensor) -> tuple[Tensor, Tensor]:
    """A call and its error, `[sets, rows, out]` each."""
    factor = _SAFETY * UNIT * (step.terms + _ROUNDED)
    if step.sent is not None and step.rest is not None and step.magnitude is not None:
        value, size = (
            step.received(sent.unsqueeze(0), weight, of_slots=True) + rest
            for sent, rest in ((step.sent, step.rest), step.magnitude)
        )
        return value, size * factor
    assert table is not None
    rows, error = table
    value = _summed(step, rows, weight * step.coefficient, step.matrix, step.own_scale, step.root, step.bias)
    large = [None if part is None else part.abs() for part in (step.matrix, step.own_scale, step.root, step.bias)]
    size = _summed(step, rows.abs(), weight * step.size, large[0], large[1], large[2], large[3])
    carried = _summed(step, error, weight * step.size, large[0], large[1], large[2], None)
    return value, carried + size * factor


def _summed(
    step: SetCall,
    table: Tensor,
    weight: Tensor,
    matrix: Tensor | None,
    own: Tensor | None,
    root: Tensor | None,
    bias: Any,
) -> Tensor:
    """Messages, own terms and bias, with the given numbers in place of the call's."""
    total = step.received(table, weight)
    if own is not None:
        total = total + own * table[:, : step.rows]
    found = total if matrix is None else total @ matrix.t()
    if root is not None:
        found = found + table[:, : step.rows] @ root.t()
    return found if bias is None else found + bias


def _mapped_with_error(step: SetMap, tables: list[tuple[Tensor, ...]]) -> tuple[Tensor, Tensor]:
    """A row-wise operation and its error."""
    operation, (rows, error) = step.operation, tables[0]
    value = step.numbers([table[0] for table in tables])
    if isinstance(operation, Join):
        return value, step.numbers([table[1] for table in tables])
    if isinstance(operation, Rectify):
        slope = torch.maximum(operation.below.abs(), operation.above.abs())
        carried = error * torch.where(rows + error <= 0, operation.below.abs(), slope) + value.abs() * (4 * UNIT)
        return torch.where((rows + error <= 0) & (operation.below == 0), 0.0, value), carried
    if len(tables) == 2:
        return value, error + tables[1][1] + value.abs() * (4 * UNIT)
    inside = 0 if step.matrix is None else step.matrix.size(1)
    plain = replace(step, shift=None)
    large = replace(
        plain,
        matrix=None if step.matrix is None else step.matrix.abs(),
        scale=None if step.scale is None else step.scale.abs(),
    )
    size = large.numbers([rows.abs()]) + (0 if step.shift is None else step.shift.abs())
    return value, large.numbers([error]) + size * (_SAFETY * UNIT * (inside + _ROUNDED))


# --- Magnitudes ---------------------------------------------------------------------------------------------------------


def _received(step: SetCall, magnitude: dict[int, Tensor]) -> Tensor:
    """A of a call."""
    if step.magnitude is not None:
        sent, rest = step.magnitude
        return rest.index_add(0, step.head, sent)
    table = magnitude[step.source]
    sent = table if step.matrix is None else table @ step.matrix.abs().t()
    total = torch.zeros(step.rows, sent.size(1), dtype=torch.double)
    total.index_add_(0, step.head, sent[step.tail] * step.size.view(-1, 1))
    if step.own_scale is not None:
        total += sent[: step.rows] * step.own_scale.abs()
    if step.root is not None:
        total += table[: step.rows] @ step.root.abs().t()
    return total if step.bias is None else total + step.bias.abs()


def _mapped(step: SetMap, tables: list[Tensor]) -> Tensor:
    """A of a row-wise operation."""
    operation = step.operation
    if isinstance(operation, Rectify):
        return tables[0] * torch.maximum(operation.below.abs(), operation.above.abs())
    if isinstance(operation, Join):
        return torch.cat(tables, dim=1)
    if len(tables) == 2:
        return tables[0] + tables[1]
    found = tables[0] if step.matrix is None else tables[0] @ step.matrix.abs().t()
    found = found if step.scale is None else found * step.scale.abs()
    return found if step.shift is None else found + step.shift.abs()
