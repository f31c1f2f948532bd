"""Branch and bound: a set of at most k units that changes the prediction, or a proof that there is none.

A node of the tree is a box (`set_intervals.py`): some units are silenced, some are kept, at most r others may go. Its margin is
bounded from below by intervals and by a linear bound, whichever is larger; a box whose margin stays above 0 is closed. From any
other box one child is made for each unit that may be the costliest one to go: it goes, and all costlier ones are kept. If even
the r costs from this unit on cannot bring the margin down to 0, neither can any set of these units, and there is no such child.
"""

import torch
from torch import Tensor

from edgewise.counterfactuals.allowance import Allowance
from edgewise.counterfactuals.goal import Goal
from edgewise.counterfactuals.linear_bounds import LinearBound, Relaxation, linear_bound, margins_start
from edgewise.counterfactuals.relaxation_choice import better_of, raised_bound, usual_relaxation
from edgewise.counterfactuals.set_answers import LoweredAnswers
from edgewise.counterfactuals.set_intervals import Bounds, Boxes, interval_bounds
from edgewise.counterfactuals.set_program import SetProgram
from edgewise.counterfactuals.set_steps import SetCall
from edgewise.trust.interval_operations import Rectify

_NUMBERS = 2**20
"""Numbers in the largest table of a pass over boxes."""
_ROOT_STEPS, _STEPS = 24, 6
"""Steps towards better linear bounds, at the root and for a box."""
_FEW = 100
"""Boxes that a tree may have before better bounds are looked for."""
_REFINED = 4096
"""Numbers of a value that are bounded one by one at the root."""


class RootBounds:
    """Bounds that hold for every set of at most so many units: where the trees of all margins start from."""

    def __init__(self, answers: LoweredAnswers, goal: Goal, allowance: Allowance) -> None:
        self._answers, self._goal, self._allowance = answers, goal, allowance
        self._program = answers.program
        self._margins = answers.program.towards(goal)
        self._refined: dict[int, Bounds] = {}

    def open_parts(self, size: int, *, refined: bool = True) -> list[int]:
        """Which margins bounds alone do not keep above 0; none: no set of so many units changes the prediction."""
        known = self.refined(size) if refined else Bounds()
        self._allowance.spend(1)
        root = Boxes.everything(self._program.num_units, size)
        closed = _closed(self._margins, self._answers, self._goal, root, known)[0][0]
        if self._goal.every:
            return [] if bool(closed.any()) else [0]
        return (~closed).nonzero().view(-1).tolist()

    def refined(self, size: int) -> Bounds:
        """Bounds of what functions with kinks read, better than intervals; by value. Kept for the trees."""
        if size not in self._refined:
            root, known = Boxes.everything(self._program.num_units, size), Bounds()
            first = next(step.output for step in self._program.steps if isinstance(step, SetCall))
            for step in self._program.steps:
                if isinstance(step, SetCall) or not isinstance(step.operation, Rectify):
                    continue
                if step.reads[0] != first:  # those of the first call are exact
                    self._refine(step.reads[0], root, known)
            self._refined = {size: known}
        return self._refined[size]

    def _refine(self, value: int, root: Boxes, known: Bounds) -> None:
        """Add to `known` the linear bounds of those numbers of a value that may be on both sides of a kink."""
        program = self._program
        bounds = interval_bounds(program, root, self._answers.bound, known)
        low, high = (end.clone() for end in bounds[value])
        place = ((low[0] < 0) & (high[0] > 0)).nonzero()
        if not 0 < len(place) <= _REFINED:
            return
        slack = self._answers.bound.of_value(value) * self._answers.bound.linear_factor
        for part in place.split(max(1, _at_once(program, 2))):
            self._allowance.spend(len(part))
            row, column = part.unbind(1)
            start = torch.zeros(1, len(part), *low.shape[1:], dtype=torch.double)
            start[0, torch.arange(len(part)), row, column] = 1
            both = linear_bound(program, bounds, root, torch.cat([start, -start], dim=1), value).least[0]
            least, most = both[: len(part)] - slack[row, column], -both[len(part) :] + slack[row, column]
            low[0, row, column] = torch.maximum(low[0, row, column], least)
            high[0, row, column] = torch.minimum(high[0, row, column], most)
        known[value] = low, high


def _at_once(program: SetProgram, margins: int) -> int:
    """How many boxes fit a pass."""
    widest = max(step.widest for step in program.steps if isinstance(step, SetCall))
    return max(1, min(1024, _NUMBERS // max(widest * margins, 1)))


def _closed(
    program: SetProgram, answers: LoweredAnswers, goal: Goal, boxes: Boxes, known: Bounds
) -> tuple[Tensor, LinearBound, Bounds]:
    """`[boxes, J]`: which margins stay above 0, by intervals or by linear bounds; the latter, and the bounds of all values."""
    bounds = interval_bounds(program, boxes, answers.bound, known)
    linear = linear_bound(program, bounds, boxes, margins_start(program, len(boxes), len(goal.offset)))
    interval = bounds[program.output][0][:, 0]
    return torch.maximum(interval, linear.least) - answers.bound.of_linear_bounds(goal) >= 0, linear, bounds


def _of_boxes(bounds: Bounds, places: Tensor) -> Bounds:
    """The bounds of some boxes; what is the same for all of them stays so."""
    return {value: (_some(low, places), _some(high, places)) for value, (low, high) in bounds.items()}


def _some(rows: Tensor, places: Tensor) -> Tensor:
    return rows if len(rows) == 1 else rows[places]


class ManyBoxes(Exception):  # noqa: N818 (not an error: the tree is walked again)
    """A tree has too many boxes for bounds that cost little."""


class SetTree:
    """The tree for one target and one goal: a single margin, or several that must all fall below 0."""

    def __init__(self, answers: LoweredAnswers, goal: Goal, allowance: Allowance) -> None:
        self._answers, self._goal, self._allowance = answers, goal, allowance
        self.program = answers.program.towards(goal)
        self._slack = answers.bound.of_linear_bounds(goal)
        self._at_once = _at_once(self.program, len(goal.offset))
        self._excluded = 0
        self.hidden: int | None = None
        """The smallest size of a set whose answer rounding hides."""

    def search(self, size: int, excluded: int) -> Tensor | None:
        """A set of at most `size` units that changes the prediction, bool `[U]`; None: there is none, or it is `hidden`.

        Sets of up to `excluded` units are known to change nothing, and are not looked at again. Raises `ManyBoxes` where better
        bounds are worth their work: call `search_closely` then.
        """
        self._excluded = excluded
        return self._walk(size, Bounds(), None, _FEW)

    def search_closely(self, size: int, excluded: int, known: Bounds) -> Tensor | None:
        """The same with better bounds; `known` are some that hold for all sets of that size (`RootBounds.refined`)."""
        self._excluded = excluded
        root = Boxes.everything(self.program.num_units, size)
        bounds = interval_bounds(self.program, root, self._answers.bound, known)
        first = usual_relaxation(self.program, bounds)
        least, raised = raised_bound(self.program, bounds, root, len(self._slack), first, _ROOT_STEPS)
        if bool((least - self._slack >= 0).any()):
            return None
        return self._walk(size, known, raised, None)

    def _walk(self, size: int, known: Bounds, raised: Relaxation | None, most: int | None) -> Tensor | None:
        """The same without, or with, better linear bounds; raises `ManyBoxes` after so many boxes."""
        stack, done = [Boxes.everything(self.program.num_units, size)], 0
        while stack:
            boxes = stack.pop()
            done += len(boxes)
            if most is not None and done > most:
                raise ManyBoxes
            self._allowance.spend(len(boxes))
            closed, linear, bounds = _closed(self.program, self._answers, self._goal, boxes, known)
            left = (~closed.any(dim=1)).nonzero().view(-1)
            if raised is not None and len(left) and boxes.budget > 1:
                left = left[self._stay_open(boxes.chosen(left), _of_boxes(bounds, left), linear.chosen(left), raised)]
            if len(left):
                found = self._branch(boxes.chosen(left), linear.chosen(left), stack)
                if found is not None:
                    return found
        return None

    def _stay_open(self, boxes: Boxes, bounds: Bounds, linear: LinearBound, raised: Relaxation) -> Tensor:
        """Places of the boxes that better linear bounds leave open, too: those of the root, then a few steps from there."""
        start = margins_start(self.program, len(boxes), len(self._slack))
        least = linear_bound(self.program, bounds, boxes, start, relaxation=raised).least
        open_ = (~(least - self._slack >= 0).any(dim=1)).nonzero().view(-1)
        if len(open_) == 0:
            return open_
        self._allowance.spend(len(open_))
        some, near = boxes.chosen(open_), _of_boxes(bounds, open_)
        ahead = (linear.least[open_] - self._slack).amax(dim=1) > (least[open_] - self._slack).amax(dim=1)
        first = better_of(ahead, usual_relaxation(self.program, near), raised)
        least, _ = raised_bound(self.program, near, some, len(self._slack), first, _STEPS)
        return open_[~(least - self._slack >= 0).any(dim=1)]

    def _branch(self, boxes: Boxes, bound: LinearBound, stack: list[Boxes]) -> Tensor | None:
        """Look at the children of some boxes, and put those on the stack from which more units may go."""
        sharpest = (bound.least - self._slack).argmax(dim=1)
        place = torch.arange(len(boxes))
        base, cost = bound.base[place, sharpest] - self._slack[sharpest], bound.cost[place, sharpest]
        cost, unit = torch.where(boxes.free, cost, -1.0).sort(dim=1, descending=True, stable=True)
        upto = torch.nn.functional.pad(cost.clamp(min=0).cumsum(dim=1), (1, 0))
        first = torch.arange(cost.size(1))
        worst = (
            upto[:, (first + boxes.budget).clamp(max=cost.size(1))] - upto[:, first]
        )  # the r costs from each unit on
        parent, rank = ((worst >= base.view(-1, 1)) & (cost >= 0)).nonzero(as_tuple=True)
        ranks = torch.empty_like(unit).scatter_(1, unit, first.expand_as(unit))
        for part in torch.arange(len(parent)).split(self._answers.at_once):
            row, at = parent[part], rank[part]
            silenced = boxes.silenced[row].clone()
            silenced[torch.arange(len(row)), unit[row, at]] = True
            found = self._look(silenced[silenced.sum(dim=1) > self._excluded])
            if found is not None:
                return found
            if boxes.budget > 1:
                kept = boxes.kept[row] | (ranks[row] < at.view(-1, 1))
                children = zip(silenced.split(self._at_once), kept.split(self._at_once), strict=True)
                stack += [Boxes(gone, stays, boxes.budget - 1) for gone, stays in children]
        return None

    def _look(self, sets: Tensor) -> Tensor | None:
        """The best of some sets that changes the prediction; remembers sets whose answers are hidden."""
        if len(sets) == 0:
            return None
        judged = self._answers.judge(sets, self._goal, self._allowance)
        best, hidden = judged.best(), sets[judged.verdict == 0]
        if len(hidden):
            size = int(hidden.sum(dim=1).min())
            self.hidden = size if self.hidden is None else min(size, self.hidden)
        return None if best is None else sets[best]
