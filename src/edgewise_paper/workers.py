"""Worker processes: one thread each, tasks go in, reports come out; a worker writes its results to the store itself.

A stop is polite: a signal asks, and the work answers at its next safe place (`Stopped`), after a training has written down
how far it is.
"""

import os
import signal
import threading
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any

from edgewise_paper.registry import find
from edgewise_paper.task import PaperOptions, Task

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
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
        context.store.keep_result(task, outcome)
        return TaskReport(task, time.monotonic() - start)
    except Stopped:
        return TaskReport(task, time.monotonic() - start, "stopped")
    except Exception:
        return TaskReport(task, time.monotonic() - start, traceback.format_exc())


class Worker:
    """A process and the connection to it: `give` it a task, wait with `first_ready`, read the `report`.

    The process is spawned, not forked, with one thread for each numerical library; it keeps its data sets between tasks.
    """

    def __init__(self, options: PaperOptions) -> None:
        spawn = get_context("spawn")
        self.connection, other = spawn.Pipe()
        self.process = spawn.Process(target=_serve, args=(other, options), daemon=True)
        self.task: Task | None = None
        before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))  # read when the child imports its libraries
        try:
            self.process.start()
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
        other.close()  # so that the end of the child is noticed here

    def give(self, task: Task) -> None:
        """Start a task."""
        self.task = task
        self.connection.send(task)

    def report(self) -> TaskReport:
        """The report of the task, waited for; a process that died counts as a problem of its task."""
        assert self.task is not None
        task, self.task = self.task, None
        try:
            found: TaskReport = self.connection.recv()
            return found
        except (EOFError, OSError):
            self.process.join(PATIENCE)
            return TaskReport(task, 0.0, f"Its worker process ended unexpectedly (exit code {self.process.exitcode}).")


def _serve(connection: Connection, options: PaperOptions) -> None:
    """The main function of a worker process: tasks come in, reports go out, until the other end closes."""
    listen_for_stop()
    import torch

    from edgewise_paper.context import Context

    torch.set_num_threads(1)
    context = Context(options)
    try:
        while not stop_was_asked():
            connection.send(work(connection.recv(), context))
    except (EOFError, OSError):  # the process that started this one is gone
        pass


def first_ready(workers: Iterable[Worker]) -> Worker:
    """Wait for the first busy worker that has a report, or has died."""
    busy = {worker.connection: worker for worker in workers if worker.task is not None}
    ready = wait(list(busy))[0]
    assert isinstance(ready, Connection)
    return busy[ready]


def end(workers: Iterable[Worker]) -> None:
    """Ask all workers to stop (a training writes down how far it is), and end those that do not within `PATIENCE`."""
    everyone = list(workers)
    for worker in everyone:
        worker.process.terminate()
        if worker.task is None:
            worker.connection.close()
    deadline = time.monotonic() + PATIENCE
    for worker in everyone:
        worker.process.join(max(deadline - time.monotonic(), 0.1))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


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
