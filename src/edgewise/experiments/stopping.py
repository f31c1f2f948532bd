"""A polite stop: a signal asks, the work answers at its next safe place."""

import signal
import threading
from types import FrameType

_asked = threading.Event()


class Stopped(Exception):  # noqa: N818 - not an error
    """The work was asked to stop and has written down where it was."""


def ask(_signal: int = 0, _frame: FrameType | None = None) -> None:
    """Ask the work of this process to stop; made to be a signal handler."""
    _asked.set()


def asked() -> bool:
    """Whether somebody asked."""
    return _asked.is_set()


def forget() -> None:
    """Start anew: for a process that goes on after a stop."""
    _asked.clear()


def listen() -> None:
    """In a worker: SIGTERM asks; SIGINT is left to the process that started it."""
    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
