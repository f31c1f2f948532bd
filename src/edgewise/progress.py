"""Progress of long work."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress_bar(show: bool, total: int, title: str, unit: str = "target") -> Iterator[Callable[[float], Any]]:  # noqa: FBT001
    """A bar that is moved by calling what this yields; nothing if it is not shown."""
    if not show:
        yield lambda _: None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc=title, unit=unit) as bar:
        yield bar.update
