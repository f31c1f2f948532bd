"""What would count as a change, for each target of a question: its goal, and the words for the new prediction."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.arguments import real_number, shown
from edgewise.arrays import read_tensor
from edgewise.counterfactuals.goal import Goal
from edgewise.errors import InputError, SettingError
from edgewise.question import PosedQuestion
from edgewise.question.target import predicted


@dataclass(frozen=True, eq=False)
class QuestionGoals:
    """The goals of all targets of a question."""

    mode: str
    start: list[int]
    """Per target: the class now; of a regression or a label, 1 above the threshold and 0 below."""
    column: list[int]
    wanted: list[int] | None
    threshold: float | None
    width: int

    @staticmethod
    def of(question: PosedQuestion, to: Any, threshold: Any) -> "QuestionGoals":
        """Read `to` and `threshold`; refused if they do not fit what the model predicts."""
        target, mode = question.target, question.target.mode
        truth, column = target.truth.double().cpu(), target.column.cpu()
        if mode != "regression" and threshold is not None:
            raise SettingError(
                "`threshold` is for regressions; this model predicts classes. Use to=1, for example, to ask for a class."
            )
        if mode in ("regression", "multilabel"):
            level = _level(mode, to, threshold)
            values = truth.gather(1, column.view(-1, 1)).view(-1)
            return QuestionGoals(mode, (values > level).long().tolist(), column.tolist(), None, level, truth.size(1))
        now = predicted(truth, mode)
        if question.asked.target is not None and not torch.equal(now, column):
            at = int((now != column).nonzero()[0])
            raise InputError(
                f"A counterfactual starts from the predicted class: {question.index[at].tolist()} is predicted class "
                f"{int(now[at])}, not {int(column[at])}. Leave `target` out; use to={int(column[at])} to ask for a class."
            )
        classes = 2 if mode == "binary" else truth.size(1)
        wanted = None if to is None else _classes(to, len(truth), classes)
        return QuestionGoals(mode, now.tolist(), [0] * len(truth), wanted, None, truth.size(1))

    def goal(self, position: int) -> Goal | None:
        """The goal of one target; None if it is predicted what is asked for already."""
        now = self.start[position]
        if self.wanted is not None and self.wanted[position] == now:
            return None
        if self.mode == "multiclass":
            if self.wanted is None:
                return Goal.other_class(now, self.width)
            return Goal.this_class(self.wanted[position], self.width)
        level = self.threshold or 0.0
        return Goal.across(self.column[position], self.width, level, downwards=now == 1)

    def named(self, row: Tensor, position: int) -> int:
        """What is predicted by an output `[columns]`: a class, or which side of the threshold it is on."""
        if self.mode == "multiclass":
            return int(row.argmax())
        return int(row[self.column[position]] > (self.threshold or 0.0))


def _level(mode: str, to: Any, threshold: Any) -> float:
    """The number that has to be crossed."""
    if to is not None:
        what = "a regression predicts a value" if mode == "regression" else "labels are on or off"
        raise SettingError(f"`to` must be left out: {what}. Use threshold=0.5, for example, for a value to cross.")
    if mode == "multilabel":
        return 0.0
    if threshold is None:
        raise SettingError(
            "`threshold` must be given for a regression: without which edges does the value cross it? Use threshold=0.5, for "
            "example."
        )
    return real_number("threshold", threshold, such_as=0.5)


def _classes(to: Any, rows: int, classes: int) -> list[int]:
    """One class for each target."""
    try:
        found = read_tensor(to)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"`to` must be a class, or one class for each of the {rows} targets, got {shown(to)}."
        ) from error
    fits = not (found.is_floating_point() or found.is_complex() or found.dtype == torch.bool)
    if not fits or found.dim() > 1 or (found.dim() == 1 and len(found) != rows):
        raise InputError(f"`to` must be a class, or one class for each of the {rows} targets, got {shown(to)}.")
    listed = found.long().expand(rows).tolist()
    bad = [one for one in listed if not 0 <= one < classes]
    if bad:
        raise InputError(f"`to` must be a class of the model, 0 to {classes - 1}, got {bad[0]}.")
    return listed
