"""Time left: expected costs of what remains, corrected by how the finished ones went."""

from collections.abc import Sequence

TRUST = 30.0  # seconds of finished work after which measurements count as much as the estimates


class Clock:
    """Costs are estimates made on one machine; the ratio to measured seconds is learnt while running.

    >>> clock = Clock([10.0, 100.0], workers=1)
    >>> clock.finished(cost=10.0, seconds=20.0)
    >>> round(clock.left)                       # 100 s expected, things seem to take a little longer than expected
    125
    """

    def __init__(self, costs: Sequence[float], workers: int) -> None:
        self.remaining, self.longest = sum(costs), max(costs, default=0.0)
        self.workers = max(workers, 1)
        self.expected, self.measured = 0.0, 0.0

    def finished(self, cost: float, seconds: float) -> None:
        """A task is done."""
        self.remaining -= cost
        self.expected += cost
        self.measured += seconds

    @property
    def left(self) -> float:
        """Seconds."""
        ratio = (TRUST + self.measured) / (TRUST + self.expected)
        return max(self.remaining, 0.0) * ratio / self.workers


def spoken(seconds: float) -> str:
    """For people.

    >>> spoken(4000), spoken(75), spoken(3.4)
    ('1 h 06 min', '1 min 15 s', '3 s')
    """
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"
