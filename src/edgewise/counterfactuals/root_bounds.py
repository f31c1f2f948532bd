"""Bounds of all margins at the root: which of them bounds alone keep above 0, and finer bounds of what kinks read."""

import torch
from torch import Tensor

from edgewise.counterfactuals.allowance import Allowance
from edgewise.counterfactuals.goal import Goal
from edgewise.counterfactuals.linear_bounds import LinearBound, linear_bound, margins_start
from edgewise.counterfactuals.relaxation_choice import raised_each
from edgewise.counterfactuals.sender_enumeration import SenderTable
from edgewise.counterfactuals.set_answers import LoweredAnswers
from edgewise.counterfactuals.set_intervals import Bounds, Boxes, interval_bounds, sent_key
from edgewise.counterfactuals.set_program import SetProgram
from edgewise.counterfactuals.set_steps import SetCall
from edgewise.trust.interval_operations import Rectify

_NUMBERS = 2**20
"""Numbers in the largest table of a pass over boxes."""
_SENDERS = 256
"""Senders of the last call that are bounded one by one."""
_SMALL = 1e-6
_REFINED = 4096
"""Numbers of a value that are bounded one by one."""


def open_parts(answers: LoweredAnswers, goal: Goal, size: int, allowance: Allowance) -> list[int]:
    """Which parts of a goal bounds alone leave open; none: no set of so many units changes the prediction."""
    allowance.spend(1)
    root = Boxes.everything(answers.num_units, size)
    closed = closed_margins(answers.program.towards(goal), answers, goal, root, Bounds())[0][0]
    if goal.every:
        return [] if bool(closed.any()) else [0]
    return (~closed).nonzero().view(-1).tolist()


def refined_bounds(answers: LoweredAnswers, root: Boxes, allowance: Allowance) -> Bounds:
    """Bounds of what functions with kinks read, better than intervals, by value; for one box and all boxes in it."""
    known = Bounds()
    first = next(step.output for step in answers.program.steps if isinstance(step, SetCall))
    for step in answers.program.steps:
        if isinstance(step, SetCall) or not isinstance(step.operation, Rectify):
            continue
        if step.reads[0] != first:  # those of the first call are exact
            _refine(answers, step.reads[0], root, known, allowance)
    return known


def _refine(answers: LoweredAnswers, value: int, root: Boxes, known: Bounds, allowance: Allowance) -> None:
    """Add to `known` the linear bounds of those numbers of a value that may be on both sides of a kink."""
    program = answers.program
    bounds = interval_bounds(program, root, answers.bound, known)
    low, high = (end.clone() for end in bounds[value])
    place = ((low[0] < 0) & (high[0] > 0)).nonzero()
    if not 0 < len(place) <= _REFINED:
        return
    slack = answers.bound.of_value(value) * answers.bound.linear_factor
    for part in place.split(max(1, boxes_at_once(program, 2))):
        allowance.spend(len(part))
        row, column = part.unbind(1)
        start = torch.zeros(1, len(part), *low.shape[1:], dtype=torch.double)
        start[0, torch.arange(len(part)), row, column] = 1
        both = linear_bound(program, bounds, root, torch.cat([start, -start], dim=1), value).least[0]
        least, most = both[: len(part)] - slack[row, column], -both[len(part) :] + slack[row, column]
        low[0, row, column] = torch.maximum(low[0, row, column], least)
        high[0, row, column] = torch.minimum(high[0, row, column], most)
    known[value] = low, high


class MessageBounds:
    """Bounds of what each sender of the last call adds to a single margin.

    Bounds of a sum over neurons are tighter than the sum of their bounds: a linear bound of its own for each sender at the
    root, and for senders with few slots all subsets of these, in every box.
    """

    def __init__(self, program: SetProgram, answers: LoweredAnswers, goal: Goal) -> None:
        self._program, self._answers = program, answers
        last = program.steps[-1]
        self._last, self._slack, self._table = None, 0.0, None
        if not isinstance(last, SetCall) or last.sent is not None or last.matrix is None or len(goal.offset) != 1:
            return
        factors = [part.abs().view(-1) for part in (last.coefficient, last.own_scale) if part is not None]
        least = float(torch.cat([*factors, torch.ones(1, dtype=torch.double)]).min())
        if least >= _SMALL:
            self._last, self._table = last, SenderTable.of(program)
            # the margin has what is sent times the coefficient of an edge
            self._slack = float(answers.bound.of_linear_bounds(goal)) / least

    def at_root(self, root: Boxes, known: Bounds, allowance: Allowance) -> Bounds:
        """Linear bounds, for one box and all boxes in it; nothing where the last step is no call."""
        last, rows = self._last, 0 if self._last is None else self._program.rows[self._last.source]
        if last is None or last.matrix is None or rows > _SENDERS:
            return Bounds()
        allowance.spend(rows)
        bounds = interval_bounds(self._program, root, self._answers.bound, known)
        start = torch.zeros(1, rows, rows, last.matrix.size(1), dtype=torch.double)
        start[0, torch.arange(rows), torch.arange(rows)] = last.matrix[0]
        both = raised_each(self._program, bounds, root, torch.cat([start, -start], dim=1), last.source)
        low, high = both[:, :rows] - self._slack, self._slack - both[:, rows:]
        return {sent_key(last): (low.unsqueeze(-1), high.unsqueeze(-1))}

    def in_boxes(self, boxes: Boxes, known: Bounds) -> Bounds:
        """`known`, with what trying all subsets says about each box."""
        if self._last is None or self._table is None:
            return known
        low, high = self._table.ends(boxes)
        ends = (low - self._slack).unsqueeze(-1), (high + self._slack).unsqueeze(-1)
        key = sent_key(self._last)
        if key in known:
            ends = torch.maximum(ends[0], known[key][0]), torch.minimum(ends[1], known[key][1])
        return {**known, key: ends}


def boxes_at_once(program: SetProgram, margins: int) -> int:
    """How many boxes fit a pass."""
    widest = max(step.widest for step in program.steps if isinstance(step, SetCall))
    return max(1, min(1024, _NUMBERS // max(widest * margins, 1)))


def closed_margins(
    program: SetProgram, answers: LoweredAnswers, goal: Goal, boxes: Boxes, known: Bounds
) -> tuple[Tensor, LinearBound, Bounds]:
    """`[boxes, J]`: which margins stay above 0, by intervals or by linear bounds; the latter, and the bounds of all values."""
    bounds = interval_bounds(program, boxes, answers.bound, known)
    linear = linear_bound(program, bounds, boxes, margins_start(program, len(boxes), len(goal.offset)))
    interval = bounds[program.output][0][:, 0]
    return torch.maximum(interval, linear.least) - answers.bound.of_linear_bounds(goal) >= 0, linear, bounds
