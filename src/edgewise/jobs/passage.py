"""Passage: how the work of a job gets into other processes, and what they answer.

A worker gets a shard, writes its file, and answers what the journal should say. Messages go through pipes or sockets; none
of them is ever written to the job's folder.
"""

import traceback
import warnings
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from edgewise.errors import EdgewiseError
from edgewise.jobs.plan import Shard

Task = Callable[[Any], dict[str, Any]]
"""Does a shard, or another piece of work, and writes its file; what it gives is for the journal."""
Done = Generator[tuple[Shard, dict[str, Any]], None, None]
"""Shards whose files are there, each with what the journal should say."""


class Passage(NamedTuple):
    """How a task gets into a worker: `make` is called in a process of this machine, `message` anywhere."""

    way: str
    """`"fork"`: as it is in this process; `"spawn"`: in a fresh process, to which `make` goes as a message."""
    make: Callable[[], Task]
    message: Callable[[], Task] | None = None
    """What makes the task in a process that shares nothing with this one but files; None: there is no such thing."""


class WorkerAnswer(NamedTuple):
    """What a worker says about a shard."""

    told: dict[str, Any]
    warned: list[tuple[str, type[Warning]]]
    error: BaseException | None = None

    def heard(self) -> dict[str, Any]:
        """Pass on what the worker warned of, and its error, as if they had happened here; else what it told."""
        for text, kind in self.warned:
            warnings.warn(text, kind, stacklevel=2)
        if self.error is not None:
            raise self.error
        return self.told


def answered(arrive: Callable[[], Task], piece: Any) -> WorkerAnswer:
    """Do a piece of work in a worker; whatever happens becomes an answer. `arrive` gives the task.

    >>> answered(lambda: lambda shard: {"seconds": len(shard)}, Shard("shard-00000", 0, 2))
    WorkerAnswer(told={'seconds': 2}, warned=[], error=None)
    """
    told: dict[str, Any] = {}
    error: BaseException | None = None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        try:
            told = arrive()(piece)
        except BaseException as caught:
            error = _portable(caught)
    return WorkerAnswer(told, [(str(one.message), one.category) for one in warned], error)


def _portable(error: BaseException) -> BaseException:
    """An error that can go through a pipe, with the worker's traceback as a note: one of ours, or the text of another's."""
    ours = isinstance(error, EdgewiseError) and type(error).__module__ == EdgewiseError.__module__
    found = type(error)(str(error)) if ours else RuntimeError(f"{type(error).__name__}: {error}")
    found.add_note("In a worker process:\n" + "".join(traceback.format_exception(error)))
    return found
