"""Some set that changes the prediction, soon and usually small: greedy search, a beam, prefixes of a ranking; then smaller."""

import torch
from torch import Tensor

from edgewise.counterfactuals.allowance import Allowance
from edgewise.counterfactuals.goal import Goal
from edgewise.counterfactuals.set_answers import SetAnswers

_OTHERS = 256
"""Units that may replace two others."""
_LONGEST = 24
"""Steps of greedy and beam search."""
_WIDTH, _PROMISING = 8, 64
"""Sets that a beam keeps, and units that it adds: those which change the most alone."""


def first_answer(answers: SetAnswers, goal: Goal, single: Tensor, most: int, allowance: Allowance) -> Tensor | None:
    """A set of at most `most` units, bool `[U]`, or None if none was found; `single` `[U]` are the scores of single units."""
    search = FirstSearch(answers, goal, allowance)
    promising = single.argsort(stable=True)[:_PROMISING]
    found = search.beam(1, min(most, _LONGEST))
    if found is None:
        found = search.prefix(single)
        found = None if found is None else search.fewer(found)
    if found is None or int(found.sum()) > 2:
        longest = min(most, _LONGEST) if found is None else min(int(found.sum()) - 1, _LONGEST)
        better = search.beam(_WIDTH, longest, promising)
        found = found if better is None else better
    if found is not None:
        found = search.swapped(search.fewer(found))
    return None if found is None or int(found.sum()) > most else found


class FirstSearch:
    """Heuristic searches for one target."""

    def __init__(self, answers: SetAnswers, goal: Goal, allowance: Allowance) -> None:
        self._answers, self._goal, self._allowance = answers, goal, allowance
        self._unit = torch.eye(answers.num_units, dtype=torch.bool)

    def _first(self, sets: Tensor) -> Tensor | None:
        """The best of some sets that change the prediction."""
        if len(sets) == 0:
            return None
        best = self._answers.judge(sets, self._goal, self._allowance).best()
        return None if best is None else sets[best]

    def beam(self, width: int, longest: int, among: Tensor | None = None) -> Tensor | None:
        """Add one unit after the other (of those in `among`), keeping the `width` most promising sets; 1 is greedy search."""
        states = torch.zeros(1, len(self._unit), dtype=torch.bool)
        offered = torch.ones(len(self._unit), dtype=torch.bool)
        if among is not None:
            offered = torch.zeros_like(offered).index_fill_(0, among, value=True)
        for _ in range(min(longest, int(offered.sum()))):
            row, unit = (~states & offered).nonzero(as_tuple=True)
            grown = states[row] | self._unit[unit]
            grown = grown if len(states) == 1 else grown.unique(dim=0)
            judged = self._answers.judge(grown, self._goal, self._allowance)
            best = judged.best()
            if best is not None:
                return grown[best]
            states = grown[judged.score.argsort(stable=True)[:width]]
        return None

    def prefix(self, single: Tensor) -> Tensor | None:
        """The shortest prefix of the units, in the order of what each changes alone, that changes the prediction."""
        order = single.argsort(stable=True)  # the lowest score is the nearest to a change
        sets = torch.zeros(len(order), len(order), dtype=torch.bool)
        sets[:, order] = torch.ones_like(sets).tril()
        changed = (self._answers.judge(sets, self._goal, self._allowance).verdict == 1).nonzero()
        return sets[int(changed[0])] if len(changed) else None

    def fewer(self, found: Tensor) -> Tensor:
        """Leave out units that are not needed, one after the other."""
        while int(found.sum()) > 1:
            less = self._first(found & ~self._unit[found])
            if less is None:
                return found
            found = less
        return found

    def swapped(self, found: Tensor) -> Tensor:
        """Replace two units by another one, as long as that is possible."""
        while 2 < int(found.sum()) <= _WIDTH:
            inside, outside = found.nonzero().view(-1), (~found).nonzero().view(-1)[:_OTHERS]
            pairs = torch.combinations(inside, 2)
            fewer = found & ~self._unit[pairs].any(dim=1)  # [pairs, U]
            sets = (fewer.unsqueeze(1) | self._unit[outside]).flatten(0, 1)
            less = self._first(sets)
            if less is None:
                return found
            found = less
        return found
