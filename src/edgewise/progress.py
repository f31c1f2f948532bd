"""Progress of long work: a bar in a notebook or script (`progress_bar`), a bar of the command line (`terminal_bar`)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Progress(Protocol):
    """What the command line's work calls when something is done."""

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """So many of `total` are done; `note` is for people: the time left, what is running now."""


@contextmanager
def progress_bar(show: bool, total: int, title: str, unit: str = "target") -> Iterator[Callable[[float], Any]]:  # noqa: FBT001
    """A bar that is moved by calling what this yields; nothing if it is not shown."""
    if not show:
        yield lambda _: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc=title, unit=unit) as bar:
        yield bar.update


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
