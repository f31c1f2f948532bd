"""What is said while working: notes and progress, on stderr, so that stdout holds results alone."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import typer

from edgewise.text import duration

_EVERY, _LINES = 5.0, 20  # seconds between two lines of progress in a log, and about how many of them


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
        last = float("-inf")  # the first piece tells how long it will take

        def show(done: int) -> None:
            nonlocal last
            pause = max(_EVERY, clock.seconds_left(done) / _LINES)
            if monotonic() - last >= pause and clock.seconds_left(done) >= _EVERY:
                last = monotonic()
                self.note(f"{title}: {done} of {clock.total}, {clock.left(done)}")

        return show


class _Clock:
    def __init__(self, total: int, done: int) -> None:
        self.total, self.before, self.start = total, done, monotonic()

    def seconds_left(self, done: int) -> float:
        """By the pace so far."""
        return (self.total - done) * (monotonic() - self.start) / max(done - self.before, 1)

    def left(self, done: int) -> str:
        """For people."""
        return f"about {duration(self.seconds_left(done))} left"


@contextmanager
def _bar(title: str, clock: _Clock) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        place = bar.add_task("", total=clock.total, completed=clock.before)
        yield lambda done: bar.update(place, completed=done, description=clock.left(done))
