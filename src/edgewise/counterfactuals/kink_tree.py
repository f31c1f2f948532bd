"""Branch and bound on units and on the sides of kinks: for proofs about sets of any size.

The tree of `set_tree.py` decides units, of which there may be hundreds. Here a box may also say on which side of its kink a
neuron reads: above 0, or below it. Few neurons of a network can be on both sides, and once the side is known, the bound loses
nothing there. A box is cut in two where its linear bound loses most: at a neuron, between its line and the function, or at a
unit, between the least and the most that its messages can bring.

That a number y which a kink reads is above 0 helps twice: its interval begins there, and p · y with any price p ≥ 0 may be
taken from the bound (with p ≤ 0 below 0). Prices are raised together with the other free numbers of a bound, as Wang et al.
(NeurIPS 2021) do it for the inputs of plain networks.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from edgewise.counterfactuals.allowance import Allowance
from edgewise.counterfactuals.box_losses import BoxLosses
from edgewise.counterfactuals.goal import Goal
from edgewise.counterfactuals.linear_bounds import LinearBound, Relaxation, linear_bound, margins_start
from edgewise.counterfactuals.relaxation_choice import Prices, raised_bound, usual_relaxation
from edgewise.counterfactuals.root_bounds import MessageBounds, boxes_at_once, refined_bounds
from edgewise.counterfactuals.set_answers import LoweredAnswers
from edgewise.counterfactuals.set_intervals import Bounds, Boxes, interval_bounds
from edgewise.counterfactuals.set_program import SetProgram
from edgewise.counterfactuals.set_steps import SetMap
from edgewise.trust.interval_operations import Rectify

_ROOT_STEPS, _STEPS = 60, 8
"""Steps towards better linear bounds, at the root and for a box."""
_AT_ONCE = 64
"""Boxes of a pass, at most: many would be looked at in vain if a set is found."""
_PRICE = 4.0
"""Prices move by about so many times the mean coefficient."""


@dataclass(frozen=True, eq=False)
class CutBoxes:
    """Boxes of sets in which the sides of some neurons are decided, too; every table has a row for each box."""

    silenced: Tensor
    kept: Tensor
    ends: Bounds
    """Bounds of what kinks read: those of the parent, cut at 0 where a side was decided."""
    way: Relaxation
    """What the linear bound of the parent was."""

    def __len__(self) -> int:
        return len(self.silenced)

    def each(self, change: Callable[[Tensor], Tensor]) -> "CutBoxes":
        """The same with every table changed."""
        ends = {value: (change(low), change(high)) for value, (low, high) in self.ends.items()}
        return CutBoxes(change(self.silenced), change(self.kept), ends, self.way.each(change))

    def chosen(self, which: Tensor) -> "CutBoxes":
        """Some of the boxes."""
        return self.each(lambda part: part[which])

    def boxes(self, size: int) -> Boxes:
        """As boxes of sets of at most `size` units; units of a box from which no more may go are kept."""
        left = size - self.silenced.sum(dim=1)
        kept = self.kept | (~self.silenced & (left <= 0).view(-1, 1))
        return Boxes(self.silenced, kept, int(left.max().clamp(min=0)), left.clamp(min=0))


class KinkTree:
    """The tree for one target and one goal."""

    def __init__(
        self, program: SetProgram, answers: LoweredAnswers, goal: Goal, messages: MessageBounds, allowance: Allowance
    ) -> None:
        self._program, self._answers, self._goal, self._allowance = program, answers, goal, allowance
        self._messages, self._known = messages, Bounds()
        self._margins, self._slack = len(goal.offset), answers.bound.of_linear_bounds(goal)
        self._kinks = [s for s in program.steps if isinstance(s, SetMap) and isinstance(s.operation, Rectify)]
        self._prices = Prices(answers.bound, {})
        self._at_once = min(_AT_ONCE, boxes_at_once(program, self._margins))
        self.hidden: int | None = None
        """The smallest size of a set whose answer rounding hides."""

    def search(self, size: int) -> Tensor | None:
        """A set of at most `size` units that changes the prediction, bool `[U]`; None: there is none, or it is `hidden`."""
        stack, steps = [self._root(size)], _ROOT_STEPS
        while stack:
            group = stack.pop()
            while stack and len(group) + len(stack[-1]) <= self._at_once:
                group = _joined(group, stack.pop())
            if len(group) > self._at_once:
                stack.append(group.each(lambda part: part[self._at_once :]))
                group = group.each(lambda part: part[: self._at_once])
            self._allowance.spend(len(group))
            children, found = self._cut(group, size, steps)
            if found is not None:
                return found
            stack += [] if children is None else [children]
            steps = _STEPS
        return None

    def _root(self, size: int) -> CutBoxes:
        """One box: everything; bounds and scales that serve all boxes are found here."""
        root = Boxes.everything(self._program.num_units, size)
        self._known = refined_bounds(self._answers, root, self._allowance)
        self._known |= self._messages.at_root(root, self._known, self._allowance)
        bounds = interval_bounds(self._program, root, self._answers.bound, self._known)
        usual = usual_relaxation(self._program, bounds)
        losses = BoxLosses(bounds, root, usual)
        linear_bound(
            self._program, bounds, root, margins_start(self._program, 1, self._margins), None, usual, losses.see
        )
        read = [kink.operation.reads[0] for kink in self._kinks]
        self._prices.scale.update({value: _PRICE * losses.scale.get(value, 1.0) for value in read})
        prices = {value: torch.zeros_like(bounds[value][0]).unsqueeze(1) for value in read}
        ends = {value: bounds[value] for value in read}
        return CutBoxes(root.silenced, root.kept, ends, replace(usual, prices=prices))

    def _cut(self, group: CutBoxes, size: int, steps: int) -> tuple[CutBoxes | None, Tensor | None]:
        """The halves of those boxes that bounds leave open, and a set that changes the prediction, if one was met."""
        group, bounds = self._by_intervals(group, size)
        for count in (1, steps):  # what the parent's bound closes needs no ascent
            if len(group) == 0:
                return None, None
            boxes = group.boxes(size)
            least, way = raised_bound(self._program, bounds, boxes, self._margins, group.way, count, self._prices)
            left = (~(least - self._slack >= 0).any(dim=1)).nonzero().view(-1)
            group = replace(group, way=way if count > 1 else group.way)
            bounds, group = _of_boxes(bounds, left, len(group)), group.chosen(left)
        if len(group) == 0:
            return None, None
        boxes = group.boxes(size)
        losses = BoxLosses(bounds, boxes, group.way)
        start = margins_start(self._program, len(boxes), self._margins)
        linear = linear_bound(self._program, bounds, boxes, start, None, group.way, losses.see)
        cost = self._sharpest(linear)
        found = self._look(boxes, cost)
        more = boxes.free.any(dim=1).nonzero().view(-1)  # the others are one set each, which was looked at
        if found is not None or len(more) == 0:
            return None, found
        low_high = {value: bounds[value] for value in group.ends}
        ends = {
            key: (low.expand(len(boxes), -1, -1), high.expand(len(boxes), -1, -1))
            for key, (low, high) in low_high.items()
        }
        group = replace(group, kept=boxes.kept, ends=ends).chosen(more)
        return _halves(group, *losses.chosen(more).worst(cost[more])), None

    def _by_intervals(self, group: CutBoxes, size: int) -> tuple[CutBoxes, Bounds]:
        """The boxes that intervals leave open, with their bounds; a box with a number that cannot be is none."""
        boxes = group.boxes(size)
        known = self._messages.in_boxes(boxes, self._known) | group.ends
        bounds = interval_bounds(self._program, boxes, self._answers.bound, known)
        closed = (bounds[self._program.output][0][:, 0] - self._slack >= 0).any(dim=1)
        for value in group.ends:
            closed = closed | (bounds[value][0] > bounds[value][1]).flatten(1).any(dim=1)
        left = (~closed).nonzero().view(-1)
        return group.chosen(left), _of_boxes(bounds, left, len(group))

    def _sharpest(self, linear: LinearBound) -> Tensor:
        """`[boxes, U]`: the costs of the margin that is the nearest to being proved."""
        nearest = (linear.least - self._slack).argmax(dim=1)
        return linear.cost[torch.arange(len(nearest)), nearest]

    def _look(self, boxes: Boxes, cost: Tensor) -> Tensor | None:
        """Try the worst set of each box by its costs; remembers sets whose answers are hidden."""
        assert boxes.budgets is not None
        rank = torch.where(boxes.free, cost, -1.0).argsort(dim=1, descending=True).argsort(dim=1)
        sets = boxes.silenced | (boxes.free & (cost > 0) & (rank < boxes.budgets.view(-1, 1)))
        judged = self._answers.judge(sets, self._goal, self._allowance)
        best, hidden = judged.best(), sets[judged.verdict == 0]
        if len(hidden):
            smallest = int(hidden.sum(dim=1).min())
            self.hidden = smallest if self.hidden is None else min(smallest, self.hidden)
        return None if best is None else sets[best]


def _of_boxes(bounds: Bounds, which: Tensor, count: int) -> Bounds:
    """The bounds of some of `count` boxes; what is the same for all boxes stays so."""
    some = {key: [end[which] if len(end) == count else end for end in ends] for key, ends in bounds.items()}
    return {key: (low, high) for key, (low, high) in some.items()}


def _joined(one: CutBoxes, other: CutBoxes) -> CutBoxes:
    """Both groups as one."""
    rest = iter(_tables(other))
    return one.each(lambda part: torch.cat([part, next(rest)]))


def _tables(group: CutBoxes) -> list[Tensor]:
    """All tables, in the order of `CutBoxes.each`."""
    found: list[Tensor] = []
    group.each(lambda part: found.append(part) or part)  # type: ignore[func-returns-value]
    return found


def _halves(group: CutBoxes, value: Tensor, place: Tensor) -> CutBoxes:
    """Every box twice: with the unit silenced and kept, or the number above and below 0.

    `value` `[boxes]` names what a kink reads, −1 a unit; `place` `[boxes]` is the unit, or the number in the flattened rows.
    """
    box = torch.arange(len(group))
    above, below = (group.each(torch.clone) for _ in range(2))
    at_unit = (value < 0).nonzero().view(-1)
    above.silenced[at_unit, place[at_unit]] = True
    below.kept[at_unit, place[at_unit]] = True
    for key in group.ends:
        here = box[value == key]
        above.ends[key][0].view(len(group), -1)[here, place[here]] = 0.0
        below.ends[key][1].view(len(group), -1)[here, place[here]] = 0.0
    return _joined(above, below)
