"""`Voice`: notes and progress of a command, on stderr, so that stdout holds results alone."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from edgewise.progress import Pace, Progress, log_lines, terminal_bar


class Voice:
    """What a command tells while it works; silent with `--quiet`."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet

    @property
    def is_watched(self) -> bool:
        """Whether a bar makes sense: stderr is a terminal, and `--quiet` was not given."""
        return not self.quiet and sys.stderr.isatty()

    def note(self, text: str) -> None:
        """Write one line."""
        if not self.quiet:
            typer.echo(text, err=True)

    @contextmanager
    def progress(self, title: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
        """Show the progress of targets: a bar in a terminal, a line now and then in a log, nothing if quiet.

        Args:
            title: What is done, such as `occlusion (layer)`.
            total: The number of targets.
            done: How many of them an earlier run has finished.

        Yields:
            A function to call with the number of targets that are finished.
        """
        pace = Pace(done)
        if self.quiet:
            yield lambda _: None
        elif self.is_watched:
            with terminal_bar(title) as bar:
                bar(done, total)
                yield _counting(bar, total, pace)
        else:
            yield _counting(log_lines(title, self.note, pace), total, pace)


def _counting(show: Progress, total: int, pace: Pace) -> Callable[[int], None]:
    """Call a back end with the total and the time left, given what is done."""
    return lambda done: show(done, total, pace.left(done, total))
