"""A polite stop: a signal asks, the work answers at its next safe place."""

import os
import signal
import threading
from types import FrameType

_asked = threading.Event()
_parent: list[int] = []


class Stopped(Exception):  # noqa: N818 - not an error
    """The work was asked to stop and has written down where it was."""


def ask(_signal: int = 0, _frame: FrameType | None = None) -> None:
    """Ask the work of this process to stop; made to be a signal handler."""
    _asked.set()


def asked() -> bool:
    """Whether somebody asked, or whoever started this worker is gone."""
    return _asked.is_set() or any(parent != os.getppid() for parent in _parent)


def forget() -> None:
    """Start anew: for a process that goes on after a stop."""
    _asked.clear()


def listen() -> None:
    """In a worker: SIGTERM asks, and so does the end of the process that started it, to which SIGINT is left."""
    _parent.append(os.getppid())
    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
