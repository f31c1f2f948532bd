"""How much work one target may cost: evaluations, seconds, or both."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_clock: Callable[[], float] = time.perf_counter


@contextmanager
def processor_time() -> Iterator[None]:
    """Inside, seconds are those of this process's processor time: measurements on a busy machine give the same answers.

    >>> with processor_time():
    ...     allowance = Allowance(seconds=0.5)
    ...     time.sleep(0.6)
    ...     allowance.spend(1)
    """
    global _clock
    before, _clock = _clock, time.process_time
    try:
        yield
    finally:
        _clock = before


_LATE = 0.5
"""By how many seconds work may end late: where the last step took longer than that, the next one is not begun so close."""


class AllowanceSpent(Exception):  # noqa: N818 (not an error: the search ends with what it has)
    """The allowance is spent; its text says which: `"seconds"` or `"budget"`."""


class Allowance:
    """Counts evaluations of the model and bounds; raises `AllowanceSpent` once there are too many, or time is over.

    >>> allowance = Allowance(budget=10)
    >>> allowance.spend(8); allowance.spend(8)
    Traceback (most recent call last):
    edgewise.counterfactuals.allowance.AllowanceSpent: budget
    """

    def __init__(self, budget: int | None = None, seconds: float | None = None) -> None:
        self.budget, self.spent = budget, 0
        self._last = _clock()
        self._end = math.inf if seconds is None else self._last + seconds

    def spend(self, count: int) -> None:
        """Ask before so many evaluations."""
        now = _clock()
        step, self._last = now - self._last, now
        if now + max(step - _LATE, 0.0) > self._end:
            raise AllowanceSpent("seconds")
        if self.budget is not None and self.spent + count > self.budget:
            raise AllowanceSpent("budget")
        self.spent += count
