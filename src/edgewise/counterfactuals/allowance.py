"""How much work one target may cost: evaluations, seconds, or both."""

import time


class AllowanceSpent(Exception):  # noqa: N818 (not an error: the search ends with what it has)
    """The allowance is spent."""


class Allowance:
    """Counts evaluations of the model and bounds; raises `AllowanceSpent` once there are too many, or time is over.

    >>> allowance = Allowance(budget=10)
    >>> allowance.spend(8); allowance.spend(8)
    Traceback (most recent call last):
    edgewise.counterfactuals.allowance.AllowanceSpent
    """

    def __init__(self, budget: int | None = None, seconds: float | None = None) -> None:
        self.budget, self.spent = budget, 0
        self._end = None if seconds is None else time.perf_counter() + seconds

    def spend(self, count: int) -> None:
        """Ask before so many evaluations."""
        over = self._end is not None and time.perf_counter() > self._end
        if over or (self.budget is not None and self.spent + count > self.budget):
            raise AllowanceSpent
        self.spent += count
