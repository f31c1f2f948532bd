"""The smallest set of units that changes the prediction of one target: all searches in turn.

1. Does a bound prove at once that no set of any size does it?
2. All single units.
3. Some set, by heuristic search: an upper bound of the size.
4. For k = 2, 3, …: bounds at the root, all pairs if they are few, then the tree; until the sets that are excluded meet the
   set that was found, nothing is left, or the allowance is spent. Where none was found, or one that is far larger, all sizes
   up to it are asked for at once, by a tree that is cut at kinks, too (`kink_tree.py`).

Models without bounds have step 4 by enumeration alone.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from edgewise.counterfactuals.allowance import Allowance, AllowanceSpent
from edgewise.counterfactuals.first_answer import FirstSearch, first_answer
from edgewise.counterfactuals.goal import Goal
from edgewise.counterfactuals.root_bounds import open_parts
from edgewise.counterfactuals.set_answers import LoweredAnswers, SetAnswers
from edgewise.counterfactuals.set_enumeration import enumerate_size
from edgewise.counterfactuals.set_tree import ManyBoxes, SetTree

MOST_UNITS = 10_000
"""Of more units only single ones are looked at: searches keep tables of all pairs of units."""
_FEW = 2000
"""Sets of one size that are looked at one by one, although there are bounds."""
_SIZES = 3
"""Sizes that are excluded one after the other before all of them are asked for at once."""
_FAR = 8
"""How many sizes are missing where it is not worth the while to exclude them one after the other."""


@dataclass(eq=False)
class SmallestSet:
    """What is known so far: a set, and the sizes that are excluded."""

    found: Tensor | None = None
    """bool `[U]`: the smallest set that was found."""
    lower_bound: int = 1
    """No smaller set changes the prediction."""
    hidden: int | None = None
    """The smallest size of a set whose answer rounding hides."""
    nothing: bool = False
    """Whether no set of any size does it."""
    evaluations: int = 0
    spent: str = ""
    """`"seconds"` or `"budget"` where the search had to stop."""

    @property
    def size(self) -> int | None:
        """How many units the set has."""
        return None if self.found is None else int(self.found.sum())

    @property
    def status(self) -> str:
        """`"proven"`, `"none"` or `"open"`."""
        sure = self.hidden is None or (self.found is not None and self.hidden >= int(self.found.sum()))
        if self.found is not None and sure and self.size == self.lower_bound:
            return "proven"
        return "none" if self.found is None and self.nothing and sure else "open"

    def ended_by(self, num_units: int) -> str:
        """Why it is open: `"seconds"`, `"budget"`, `"rounding"`, `"members"` (too many of them) or `"size"`; else empty."""
        if self.status != "open":
            return ""
        hidden = "rounding" if self.hidden is not None else ""
        return self.spent or hidden or ("members" if num_units > MOST_UNITS else "size")

    def take(self, found: Tensor | None) -> None:
        """Keep a set if it is the smallest so far."""
        if found is not None and (self.found is None or int(found.sum()) < int(self.found.sum())):
            self.found = found

    def hide(self, size: int | None) -> None:
        """Remember that rounding hides the answer of a set of some size."""
        if size is not None:
            self.hidden = size if self.hidden is None else min(size, self.hidden)

    def settled(self, bound: int) -> int:
        """The lower bound that may be said: sizes whose answers are hidden are not excluded."""
        return bound if self.hidden is None else min(bound, self.hidden)


def smallest_set(answers: SetAnswers, goal: Goal, most: int | None, allowance: Allowance) -> SmallestSet:
    """Search until it is proven, until sizes up to `most` are excluded, or until the allowance is spent."""
    state = SmallestSet()
    search = _Search(answers, goal, min(most or answers.num_units, answers.num_units), allowance, state)
    try:
        search.run()
    except AllowanceSpent as error:
        state.spent = str(error)
    state.evaluations = allowance.spent
    state.lower_bound = state.settled(state.lower_bound)
    return state


class _Search:
    """One target: `run` changes the state, and raises `AllowanceSpent` where it has to stop."""

    def __init__(self, answers: SetAnswers, goal: Goal, most: int, allowance: Allowance, state: SmallestSet) -> None:
        self._answers, self._goal, self._most, self._allowance, self._state = answers, goal, most, allowance, state
        self._count = answers.num_units
        self._trees: list[SetTree] = []
        if isinstance(answers, LoweredAnswers) and self._count:
            self._trees = [SetTree(answers, part, allowance) for part in goal.parts()]

    def run(self) -> None:
        """The steps of this file's first lines."""
        if self._count == 0 or (self._trees and not self._open_parts(self._count)):
            self._exclude(self._count)
            return
        single = self._singles()
        if self._state.found is not None or self._count > MOST_UNITS:
            return
        self._state.take(first_answer(self._answers, self._goal, single, self._most, self._allowance))
        while not self._is_done():
            self._next_size()

    def _is_done(self) -> bool:
        """Whether nothing is left to exclude."""
        state = self._state
        reached = state.found is not None and int(state.found.sum()) <= state.lower_bound
        return reached or state.nothing or state.lower_bound > self._most

    def _exclude(self, size: int) -> None:
        """No set of up to so many units does it."""
        self._state.lower_bound = size + 1
        self._state.nothing = size >= self._count

    def _singles(self) -> Tensor:
        """Look at all single units; returns their scores."""
        found, hidden, single = enumerate_size(self._answers, self._goal, 1, self._allowance)
        self._state.take(found)
        self._state.hide(1 if hidden else None)
        if found is None:
            self._exclude(1)
        return single

    def _next_size(self) -> None:
        """Exclude sets of one more unit, or find one."""
        size = self._state.lower_bound
        if not self._trees or math.comb(self._count, size) <= _FEW:
            found, hidden, _ = enumerate_size(self._answers, self._goal, size, self._allowance)
            self._state.hide(size if hidden else None)
        else:
            if self._state.found is None and size > _SIZES:  # perhaps there is none at all
                size = self._most
            found, size = self._grown(size)
        self._state.take(found)
        if found is None:
            self._exclude(size)

    def _grown(self, size: int) -> tuple[Tensor | None, int]:
        """A set of at most `size` units by the trees of all margins that bounds leave open, or None: there is none.

        And the size up to which this is known: where trees are large, all that is missing is asked for at once.
        """
        excluded, large = self._state.lower_bound - 1, []
        for part in self._open_parts(size):
            try:
                found = self._trees[part].search(size, excluded)
            except ManyBoxes:
                large.append(part)
                continue
            finally:
                self._state.hide(self._trees[part].hidden)
            if found is not None:
                return found, size
        reached = self._state.size
        if large and size > _SIZES and (reached is None or reached - size > _FAR):
            size = self._most if reached is None else reached - 1
            return self._cut(size), size
        for part in large:
            found = self._trees[part].search_closely(size, excluded)
            self._state.hide(self._trees[part].hidden)
            if found is not None:
                return found, size
        return None, size

    def _cut(self, size: int) -> Tensor | None:
        """The same by trees that are cut at kinks, too; what they find has units that are not needed."""
        for part in self._open_parts(size):
            tree = self._trees[part].at_kinks()
            found = tree.search(size)
            self._state.hide(tree.hidden)
            if found is not None:
                self._state.take(found)
                search = FirstSearch(self._answers, self._goal, self._allowance)
                return search.swapped(search.fewer(found))
        return None

    def _open_parts(self, size: int) -> list[int]:
        """Which margins bounds alone do not keep above 0."""
        assert isinstance(self._answers, LoweredAnswers)
        return open_parts(self._answers, self._goal, size, self._allowance)
