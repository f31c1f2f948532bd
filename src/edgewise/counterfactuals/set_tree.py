"""Branch and bound: a set of at most k units that changes the prediction, or a proof that there is none.

A node of the tree is a box (`set_intervals.py`): some units are silenced, some are kept, at most r others may go. Its margin is
bounded from below by intervals and by a linear bound, whichever is larger; a box whose margin stays above 0 is closed. From any
other box one child is made for each unit that may be the costliest one to go: it goes, and all costlier ones are kept. If even
the r costs from this unit on cannot bring the margin down to 0, neither can any set of these units, and there is no such child.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from edgewise.counterfactuals.allowance import Allowance
from edgewise.counterfactuals.goal import Goal
from edgewise.counterfactuals.kink_tree import KinkTree
from edgewise.counterfactuals.linear_bounds import LinearBound, Relaxation, linear_bound, margins_start
from edgewise.counterfactuals.relaxation_choice import better_of, raised_bound, usual_relaxation
from edgewise.counterfactuals.root_bounds import MessageBounds, boxes_at_once, closed_margins, refined_bounds
from edgewise.counterfactuals.set_answers import LoweredAnswers
from edgewise.counterfactuals.set_intervals import Bounds, Boxes, interval_bounds

_ROOT_STEPS, _STEPS = 24, 6
"""Steps towards better linear bounds, at the root and for a box."""
_FEW = 100
"""Boxes that a tree may have before better bounds are looked for."""
_ROUNDS = 4
"""How often the units that may go are narrowed at the root."""


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
        self._at_once = boxes_at_once(self.program, len(goal.offset))
        self._messages = MessageBounds(self.program, answers, goal)
        self._excluded = 0
        self.hidden: int | None = None
        """The smallest size of a set whose answer rounding hides."""

    def search(self, size: int, excluded: int) -> Tensor | None:
        """A set of at most `size` units that changes the prediction, bool `[U]`; None: there is none, or it is `hidden`.

        Sets of up to `excluded` units are known to change nothing, and are not looked at again. Raises `ManyBoxes` where better
        bounds are worth their work: call `search_closely` then.
        """
        self._excluded = excluded
        root = self._narrowed(Boxes.everything(self.program.num_units, size), Bounds())
        return None if root is None else self._walk(root, Bounds(), None, _FEW)

    def search_closely(self, size: int, excluded: int) -> Tensor | None:
        """The same with better bounds."""
        self._excluded = excluded
        root = self._narrowed(Boxes.everything(self.program.num_units, size), Bounds())
        if root is None:
            return None
        for _ in range(_ROUNDS):
            known = refined_bounds(self._answers, root, self._allowance)
            known |= self._messages.at_root(root, known, self._allowance)
            narrowed = self._narrowed(root, known)
            if narrowed is None:
                return None
            root = narrowed
            bounds = interval_bounds(self.program, root, self._answers.bound, known)
            first = usual_relaxation(self.program, bounds)
            least, raised = raised_bound(self.program, bounds, root, len(self._slack), first, _ROOT_STEPS)
            if bool((least - self._slack >= 0).any()):
                return None
            linear = linear_bound(
                self.program, bounds, root, margins_start(self.program, 1, len(self._slack)), None, raised
            )
            fixed = self._never(root, linear)
            root = Boxes(root.silenced, root.kept | fixed, root.budget)
            if int(fixed.sum()) * 10 < int(root.free.sum()):
                break
        return self._walk(root, known, raised, None)

    def at_kinks(self) -> KinkTree:
        """The tree that is cut at kinks, too."""
        return KinkTree(self.program, self._answers, self._goal, self._messages, self._allowance)

    def _narrowed(self, root: Boxes, known: Bounds) -> Boxes | None:
        """The root with those units kept that are in no set that changes the prediction; None: there is no such set."""
        for _ in range(_ROUNDS):
            self._allowance.spend(1)
            near = self._messages.in_boxes(root, known)
            closed, linear, _ = closed_margins(self.program, self._answers, self._goal, root, near)
            if bool(closed.any()):
                return None
            fixed = self._never(root, linear)
            if not bool(fixed.any()):
                break
            root = Boxes(root.silenced, root.kept | fixed, root.budget)
        return root

    def _never(self, boxes: Boxes, bound: LinearBound) -> Tensor:
        """`[boxes, U]`: units that may go, but with which even the costliest others leave some margin above 0."""
        others = min(boxes.budget - 1, bound.cost.size(-1))
        worst = bound.cost + bound.cost.topk(others, dim=-1).values.sum(dim=-1, keepdim=True)
        return boxes.free & ((bound.base - self._slack).unsqueeze(-1) > worst).any(dim=1)

    def _walk(self, root: Boxes, known: Bounds, raised: Relaxation | None, most: int | None) -> Tensor | None:
        """Go through the boxes, with `raised` also by better linear bounds; raises `ManyBoxes` after so many of them."""
        stack, done = [root], 0
        while stack:
            boxes = stack.pop()
            done += len(boxes)
            if most is not None and done > most:
                raise ManyBoxes
            self._allowance.spend(len(boxes))
            near = self._messages.in_boxes(boxes, known)
            closed, linear, bounds = closed_margins(self.program, self._answers, self._goal, boxes, near)
            left = (~closed.any(dim=1)).nonzero().view(-1)
            boxes, linear = boxes.chosen(left), linear.chosen(left)
            boxes = Boxes(boxes.silenced, boxes.kept | self._never(boxes, linear), boxes.budget)
            if raised is not None and len(left) and boxes.budget > 1:
                boxes, linear = self._closely(boxes, _of_boxes(bounds, left), linear, raised)
            if len(boxes):
                found = self._branch(boxes, linear, stack)
                if found is not None:
                    return found
        return None

    def _closely(
        self, boxes: Boxes, bounds: Bounds, linear: LinearBound, raised: Relaxation
    ) -> tuple[Boxes, LinearBound]:
        """The boxes that better linear bounds leave open, too: those of the root, then a few steps from there."""
        start = margins_start(self.program, len(boxes), len(self._slack))
        other = linear_bound(self.program, bounds, boxes, start, None, raised)
        boxes = Boxes(boxes.silenced, boxes.kept | self._never(boxes, other), boxes.budget)
        left = (~(other.least - self._slack >= 0).any(dim=1)).nonzero().view(-1)
        if len(left):
            self._allowance.spend(len(left))
            some, near = boxes.chosen(left), _of_boxes(bounds, left)
            usual, root = ((one.least[left] - self._slack).amax(dim=1) for one in (linear, other))
            first = better_of(usual > root, usual_relaxation(self.program, near), raised)
            least, _ = raised_bound(self.program, near, some, len(self._slack), first, _STEPS)
            left = left[~(least - self._slack >= 0).any(dim=1)]
        return boxes.chosen(left), linear.chosen(left)

    def _branch(self, boxes: Boxes, bound: LinearBound, stack: list[Boxes]) -> Tensor | None:
        """Look at the children of some boxes, and put those on the stack from which more units may go."""
        sharpest = (bound.least - self._slack).argmax(dim=1)
        place = torch.arange(len(boxes))
        base, cost = bound.base[place, sharpest] - self._slack[sharpest], bound.cost[place, sharpest]
        cost, unit = torch.where(boxes.free, cost, -1.0).sort(dim=1, descending=True, stable=True)
        upto = pad(cost.clamp(min=0).cumsum(dim=1), (1, 0))
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
