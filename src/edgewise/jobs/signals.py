"""SIGTERM ends work as Ctrl-C does, so that what is finished is kept and said."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def terminable() -> Iterator[None]:
    """Inside this block SIGTERM raises `KeyboardInterrupt`, as Ctrl-C does; only the main thread can arrange that."""

    def stop(_signal: int, _frame: FrameType | None) -> Any:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
