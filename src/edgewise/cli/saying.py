"""What is said while working: notes and progress, on stderr, so that stdout holds results alone."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from edgewise.experiments.clock import spoken

_EVERY = 5.0  # seconds between two lines of progress in a log


class Voice:
    """Notes and progress; nothing if quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet

    @property
    def is_watched(self) -> bool:
        """Whether somebody sits at a terminal and wants to see a bar."""
        return not self.quiet and sys.stderr.isatty()

    def note(self, text: str) -> None:
        """One line."""
        if not self.quiet:
            typer.echo(text, err=True)

    @contextmanager
    def progress(self, title: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
        """Call it with the number of targets that are done: a bar in a terminal, a line now and then in a log."""
        clock = _Clock(total, done)
        if self.quiet:
            yield lambda _: None
        elif self.is_watched:
            with _bar(title, clock) as show:
                yield show
        else:
            yield self._lines(title, clock)

    def _lines(self, title: str, clock: "_Clock") -> Callable[[int], None]:
        last = time.monotonic()

        def show(done: int) -> None:
            nonlocal last
            if time.monotonic() - last >= _EVERY and done < clock.total:
                last = time.monotonic()
                self.note(f"{title}: {done} of {clock.total}, {clock.left(done)}")

        return show


class _Clock:
    def __init__(self, total: int, done: int) -> None:
        self.total, self.before, self.start = total, done, time.monotonic()

    def left(self, done: int) -> str:
        """For people."""
        fresh = done - self.before
        if fresh <= 0:
            return "time left unknown"
        return f"about {spoken((self.total - done) * (time.monotonic() - self.start) / fresh)} left"


@contextmanager
def _bar(title: str, clock: _Clock) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        place = bar.add_task("", total=clock.total, completed=clock.before)
        yield lambda done: bar.update(place, completed=done, description=clock.left(done))
