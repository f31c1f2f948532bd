"""What worker processes do with tasks: tasks go in, reports come out; a worker writes its results to the store itself.

The processes are those of jobs (`edgewise.jobs.worker_pool`). A stop is polite: a signal asks, and the work answers at its
next safe place (`Stopped`), after a training has written down how far it is.
"""

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from edgewise.jobs.passage import WorkerAnswer
from edgewise.jobs.worker_pool import LostWorkerError
from edgewise_paper.registry import find
from edgewise_paper.task import PaperOptions, Task

PATIENCE = 10.0  # seconds between asking a worker to stop and ending it


@dataclass(frozen=True)
class TaskReport:
    """What became of a task: `problem` is empty if it is done, else a traceback or a sentence."""

    task: Task
    seconds: float
    problem: str = ""


def work(task: Task, context: Any) -> TaskReport:
    """Run a task and keep its result; an error becomes a report.

    Args:
        task: What to do.
        context: The `Context` of this process.
    """
    start = time.monotonic()
    try:
        outcome = find(task.experiment).run(task, context)
        context.store.keep_result(task, outcome, time.monotonic() - start)
        return TaskReport(task, time.monotonic() - start)
    except Stopped:
        return TaskReport(task, time.monotonic() - start, "stopped")
    except Exception:
        return TaskReport(task, time.monotonic() - start, traceback.format_exc())


def paper_work(options: PaperOptions) -> Callable[[Task], dict[str, Any]]:
    """What a worker process does with a task; its data sets stay between tasks. A stop is asked for by SIGTERM."""
    listen_for_stop()
    from edgewise_paper.context import Context

    context = Context(options)

    def reported(task: Task) -> dict[str, Any]:
        report = work(task, context)
        return {"seconds": report.seconds, "problem": report.problem}

    return reported


def report_of(task: Task, answer: WorkerAnswer) -> TaskReport:
    """What a worker said about a task; one that died, or could not begin, is a problem of its task."""
    if isinstance(answer.error, LostWorkerError):
        return TaskReport(task, 0.0, f"Its worker process ended unexpectedly ({answer.error}).")
    return TaskReport(task, **answer.told) if answer.error is None else TaskReport(task, 0.0, str(answer.error))


# --- Asking the work of a process to stop ------------------------------------------------------------------------------

_asked = threading.Event()
_parent: list[int] = []


class Stopped(Exception):  # noqa: N818 - not an error
    """The work was asked to stop and has written down how far it is."""


def ask_to_stop(_signal: int = 0, _frame: FrameType | None = None) -> None:
    """Ask the work of this process to stop; its arguments are those of a signal handler."""
    _asked.set()


def stop_was_asked() -> bool:
    """Whether this process was asked to stop, or the process that started this worker is gone."""
    return _asked.is_set() or any(parent != os.getppid() for parent in _parent)


def forget_stop() -> None:
    """Start anew, for a process that goes on after a stop (tests do)."""
    _asked.clear()


def listen_for_stop() -> None:
    """Let SIGTERM ask this worker to stop, and the end of its parent too; SIGINT is left to the parent."""
    _parent.append(os.getppid())
    signal.signal(signal.SIGTERM, ask_to_stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
