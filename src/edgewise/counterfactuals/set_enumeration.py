"""All sets of one size, block by block."""

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from edgewise.counterfactuals.allowance import Allowance, AllowanceSpent
from edgewise.counterfactuals.goal import Goal
from edgewise.counterfactuals.set_answers import SetAnswers


def sets_of_size(num_units: int, size: int, at_once: int) -> Iterator[Tensor]:
    """All sets of so many units, bool `[n, U]`, in the order of their units.

    >>> [block.long().tolist() for block in sets_of_size(3, 2, 2)]
    [[[1, 1, 0], [1, 0, 1]], [[0, 1, 1]]]
    """
    every = itertools.combinations(range(num_units), size)
    while block := list(itertools.islice(every, at_once)):
        sets = torch.zeros(len(block), num_units, dtype=torch.bool)
        yield sets.scatter_(1, torch.tensor(block).view(len(block), size), value=True)


def enumerate_size(
    answers: SetAnswers, goal: Goal, size: int, allowance: Allowance
) -> tuple[Tensor | None, bool, Tensor]:
    """Look at all sets of a size.

    Returns:
        The best set that changes the prediction (None: no set does), whether rounding hid the answer of any, and the
        scores of all sets in order. Where the allowance ends first, a set that was found by then is returned, too.
    """
    if allowance.budget is not None and allowance.spent + math.comb(answers.num_units, size) > allowance.budget:
        raise AllowanceSpent("budget")  # before work that could not be finished
    found, least, hidden, scores = None, math.inf, False, []
    for sets in sets_of_size(answers.num_units, size, answers.at_once):
        try:
            judged = answers.judge(sets, goal, allowance)
        except AllowanceSpent:
            if found is None:
                raise
            break
        hidden = hidden or bool((judged.verdict == 0).any())
        scores.append(judged.score)
        best = judged.best()
        if best is not None and float(judged.score[best]) < least:
            found, least = sets[best], float(judged.score[best])
    return found, hidden, torch.cat(scores) if scores else torch.zeros(0)
