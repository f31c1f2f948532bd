"""Progress of long work: one protocol, `Progress`, and three ways to show it.

Work calls a `Progress` with how much is done; it does not know who is watching.

| back end | who is watching |
|---|---|
| `notebook_bar` | a script or notebook with `progress=True`: tqdm |
| `terminal_bar` | a person at a terminal, through the command line: rich |
| `log_lines` | a log file: a line now and then |

The functions of the library count in steps and use `progress_bar`, which keeps the count for them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Protocol

from edgewise.text import duration

_EVERY, _LINES = 5.0, 20  # seconds between two lines of a log, and about how many of them


class Progress(Protocol):
    """What work calls when something is done."""

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """So many of `total` are done; `note` is for people: the time left, what is running now."""


@contextmanager
def progress_bar(show: bool, total: int, title: str, unit: str = "target") -> Iterator[Callable[[float], Any]]:  # noqa: FBT001
    """For work that counts in steps: call what this yields with each step; nothing is shown unless `show`.

    >>> with progress_bar(False, 3, "walks") as advance:
    ...     advance(2)
    """
    if not show:
        yield lambda _: None
        return
    with notebook_bar(title, total, unit) as bar:
        done = 0

        def advance(step: float) -> None:
            nonlocal done
            done += int(step)
            bar(done, total)

        yield advance


@contextmanager
def notebook_bar(title: str, total: int, unit: str = "target") -> Iterator[Progress]:
    """A bar of tqdm, which looks right in a script and in a notebook, and stays when the work ends."""
    from tqdm.auto import tqdm

    with tqdm(total=total, desc=title, unit=unit) as bar:

        def show(done: int, total: int, note: str = "") -> None:
            bar.total = total
            if note:
                bar.set_postfix_str(note, refresh=False)
            bar.update(done - bar.n)

        yield show


@contextmanager
def terminal_bar(title: str = "") -> Iterator[Progress]:
    """A bar on stderr that disappears when the work ends; the caller has checked that stderr is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    shown = (TextColumn(title), *columns) if title else columns
    with Bar(*shown, console=Console(stderr=True), transient=True) as bar:
        place = bar.add_task("", total=None)

        def show(done: int, total: int, note: str = "") -> None:
            bar.update(place, completed=done, total=total, description=note)

        yield show


def log_lines(title: str, write: Callable[[str], None], pace: "Pace") -> Progress:
    """A line for a log now and then: at most every five seconds, about twenty in all, and none about the last seconds.

    >>> log_lines("walks", print, Pace(seconds_ago=10.0))(4, 12, "about 20 s left")
    walks: 4 of 12, about 20 s left
    """
    last = float("-inf")  # the first piece tells how long it will take

    def show(done: int, total: int, note: str = "") -> None:
        nonlocal last
        left = pace.seconds_left(done, total)
        if monotonic() - last >= max(_EVERY, left / _LINES) and left >= _EVERY:
            last = monotonic()
            write(f"{title}: {done} of {total}, {note}")

    return show


class Pace:
    """How fast work goes, and so how long the rest will take; `before` of it was done by an earlier run.

    >>> Pace(before=2, seconds_ago=10.0).left(4, 12)
    'about 40 s left'
    """

    def __init__(self, before: int = 0, seconds_ago: float = 0.0) -> None:
        self.before, self.start = before, monotonic() - seconds_ago

    def seconds_left(self, done: int, total: int) -> float:
        """By the pace so far."""
        return (total - done) * (monotonic() - self.start) / max(done - self.before, 1)

    def left(self, done: int, total: int) -> str:
        """The same in words."""
        return f"about {duration(self.seconds_left(done, total))} left"
