"""Bounds of every value of a program, when some units are silenced, some are kept, and of the others at most r may go.

Interval arithmetic with a budget: what a node receives is at least the sum of what its senders bring at least, less the r
largest of those contributions that are positive and may still go. Of several values the budget is counted anew for each, so
these bounds are loose where many nodes meet, and often exact for the first call.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.counterfactuals.rounding_bound import RoundingBound
from edgewise.counterfactuals.set_program import SetProgram
from edgewise.counterfactuals.set_steps import SetCall, SetMap, bent
from edgewise.trust.interval_operations import Join, Rectify, Sum

Bounds = dict[int, tuple[Tensor, Tensor]]
"""By value: least and greatest numbers, `[boxes, rows, width]` each."""


@dataclass(frozen=True, eq=False)
class Boxes:
    """Sets of sets: all that silence `silenced`, none of `kept`, and at most `budget` of the others; bool `[boxes, U]`."""

    silenced: Tensor
    kept: Tensor
    budget: int
    budgets: Tensor | None = None
    """`[boxes]`: the budget of each box, where they differ; `budget` is the largest of them."""

    def __len__(self) -> int:
        return len(self.silenced)

    @property
    def on(self) -> Tensor:
        """`[boxes, U]`: not silenced; some of these may still go."""
        return ~self.silenced

    @property
    def free(self) -> Tensor:
        """`[boxes, U]`: what may still go."""
        return ~(self.silenced | self.kept)

    def chosen(self, which: Tensor) -> "Boxes":
        """Some of the boxes."""
        budgets = None if self.budgets is None else self.budgets[which]
        return Boxes(self.silenced[which], self.kept[which], self.budget, budgets)

    @staticmethod
    def everything(num_units: int, budget: int) -> "Boxes":
        """One box: any set of at most so many units."""
        nothing = torch.zeros(1, num_units, dtype=torch.bool)
        return Boxes(nothing, nothing, budget)


def interval_bounds(program: SetProgram, boxes: Boxes, rounding: RoundingBound, known: Bounds | None = None) -> Bounds:
    """Bounds of every value; intersected with those that are `known` to hold for all boxes."""
    on, free = boxes.on.double(), boxes.free.double()
    found: Bounds = {value: (rows.unsqueeze(0), rows.unsqueeze(0)) for value, rows in program.constants.items()}
    for step in program.steps:
        if isinstance(step, SetCall):
            sent = None if known is None else known.get(sent_key(step))
            given = found.get(step.source)
            low, high = _received(step, given, sent, on[:, step.unit], free[:, step.unit], boxes.budget)
        else:
            low, high = _mapped(step, [_first(found[value], step.rows) for value in step.reads])
        if step.output in rounding.magnitude and program.output != step.output:
            slack = rounding.of_value(step.output)
            low, high = low - slack, high + slack
        if known is not None and step.output in known:
            low, high = torch.maximum(low, known[step.output][0]), torch.minimum(high, known[step.output][1])
        found[step.output] = low, high
    return found


def _first(ends: tuple[Tensor, Tensor], rows: int) -> tuple[Tensor, Tensor]:
    """The first rows of both ends."""
    return ends[0][:, :rows], ends[1][:, :rows]


def two_sided(low: Tensor, high: Tensor, matrix: Tensor | None) -> tuple[Tensor, Tensor]:
    """Bounds of x Wᵀ from those of x."""
    if matrix is None:
        return low, high
    plus, minus = matrix.clamp(min=0).t(), matrix.clamp(max=0).t()
    return low @ plus + high @ minus, high @ plus + low @ minus


def _scaled(low: Tensor, high: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds of x · factor."""
    a, b = low * factor, high * factor
    if bool((factor >= 0).all()):
        return a, b
    return torch.minimum(a, b), torch.maximum(a, b)


def sent_key(step: SetCall) -> int:
    """Under which number bounds are known of what the senders of a call send, behind its matrix."""
    return -1 - step.output


def _received(
    step: SetCall,
    table: tuple[Tensor, Tensor] | None,
    known: tuple[Tensor, Tensor] | None,
    on: Tensor,
    free: Tensor,
    budget: int,
) -> tuple[Tensor, Tensor]:
    """Bounds of a call, `[boxes, rows, out]`; `on` and `free` `[boxes, S]`, `known` bounds what is sent."""
    if step.sent is not None and step.rest is not None:
        least = most = step.sent.unsqueeze(0)
        low = high = step.rest.unsqueeze(0)
    else:
        assert table is not None
        sent = two_sided(*table, step.matrix)
        if known is not None:
            sent = torch.maximum(sent[0], known[0]), torch.minimum(sent[1], known[1])
        least, most = _scaled(sent[0][:, step.tail], sent[1][:, step.tail], step.coefficient.view(-1, 1))
        low, high = _own_terms(step, table, sent)
    same = least is most  # constants
    total = step.received(least, on, of_slots=True)
    low, high = low + total, high + (total if same else step.received(most, on, of_slots=True))
    if budget:
        may = free.unsqueeze(-1)
        _take_largest(step, low, may * least.clamp(min=0), budget, -1)
        _take_largest(step, high, may * (-most).clamp(min=0), budget, 1)
    return low, high


def _own_terms(step: SetCall, table: tuple[Tensor, Tensor], sent: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Bounds of own terms and bias, `[boxes, rows, out]`."""
    zeros = sent[0].new_zeros(len(sent[0]), step.rows, sent[0].size(-1))
    low, high = zeros, zeros
    if step.own_scale is not None:
        low, high = _scaled(*_first(sent, step.rows), step.own_scale)
    if step.root is not None:
        own = two_sided(*_first(table, step.rows), step.root)
        low, high = low + own[0], high + own[1]
    return (low, high) if step.bias is None else (low + step.bias, high + step.bias)


def _take_largest(step: SetCall, total: Tensor, loss: Tensor, budget: int, sign: int) -> None:
    """Add to `total` (in place) the `budget` largest losses `[boxes, S, out]` of each receiver, with a sign."""
    padded = torch.cat([loss, loss.new_zeros(len(loss), 1, loss.size(-1))], dim=1)
    for heads, slots in step.groups:
        mine = padded[:, slots]  # [boxes, heads, most, out]
        if budget >= slots.size(1):
            worst = mine.sum(dim=2)
        else:
            worst = mine.amax(dim=2) if budget == 1 else mine.topk(budget, dim=2).values.sum(dim=2)
        total[:, heads] += sign * worst


def _mapped(step: SetMap, tables: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Bounds of a row-wise operation."""
    operation, (low, high) = step.operation, tables[0]
    if isinstance(operation, Rectify):
        ends = [bent(operation, end) for end in (low, high)]
        kink = ((low < 0) & (high > 0)).logical_not()  # at a kink 0 is among the numbers
        least, most = torch.minimum(*ends), torch.maximum(*ends)
        return torch.where(kink, least, least.clamp(max=0)), torch.where(kink, most, most.clamp(min=0))
    if isinstance(operation, Sum):
        other = tables[1] if operation.sign > 0 else (-tables[1][1], -tables[1][0])
        return low + other[0], high + other[1]
    if isinstance(operation, Join):
        boxes = max(len(table[0]) for table in tables)
        lows, highs = zip(*tables, strict=True)
        low, high = (torch.cat([end.expand(boxes, -1, -1) for end in ends], dim=-1) for ends in (lows, highs))
        return low, high
    low, high = two_sided(low, high, step.matrix)
    if step.scale is not None:
        low, high = _scaled(low, high, step.scale)
    return (low, high) if step.shift is None else (low + step.shift, high + step.shift)
