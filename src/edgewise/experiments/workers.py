"""Processes that work on tasks, one thread each; what they finish they write down themselves."""

import os
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from edgewise.experiments import stopping
from edgewise.experiments.catalogue import find
from edgewise.experiments.options import Options
from edgewise.experiments.tasks import Task

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
PATIENCE = 10.0  # seconds between asking a worker to stop and ending it


@dataclass(frozen=True)
class Report:
    """What became of a task: `problem` is empty if it is done."""

    task: Task
    seconds: float
    problem: str = ""


def work(task: Task, desk: Any) -> Report:
    """Run a task and keep its result; an error becomes a report."""
    start = time.monotonic()
    try:
        outcome = find(task.experiment).module.run(task, desk)
        desk.store.keep_result(task, outcome)
        return Report(task, time.monotonic() - start)
    except stopping.Stopped:
        return Report(task, time.monotonic() - start, "stopped")
    except Exception:
        return Report(task, time.monotonic() - start, traceback.format_exc())


def _serve(connection: Connection, options: Options) -> None:
    """A worker's life: tasks come in, reports go out, until the other end closes."""
    stopping.listen()
    import torch

    from edgewise.experiments.desk import Desk

    torch.set_num_threads(1)
    desk = Desk(options)
    try:
        while not stopping.asked():
            connection.send(work(connection.recv(), desk))
    except (EOFError, OSError):  # whoever started this process is gone
        pass


class Worker:
    """One process and the line to it."""

    def __init__(self, options: Options) -> None:
        context = get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, options), daemon=True)
        self.task: Task | None = None
        before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))  # read when the child imports its libraries
        try:
            self.process.start()
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
        other.close()  # so that its end is noticed here

    def give(self, task: Task) -> None:
        """Start a task."""
        self.task = task
        self.connection.send(task)

    def report(self) -> Report:
        """What came of the task; a process that died counts as a problem of its task."""
        assert self.task is not None
        task, self.task = self.task, None
        try:
            found: Report = self.connection.recv()
            return found
        except (EOFError, OSError):
            self.process.join(PATIENCE)
            return Report(task, 0.0, f"The process that worked on it ended by itself (code {self.process.exitcode}).")


def first_ready(workers: Iterable[Worker]) -> Worker:
    """The busy worker that is done first."""
    busy = {worker.connection: worker for worker in workers if worker.task is not None}
    ready = wait(list(busy))[0]
    assert isinstance(ready, Connection)
    return busy[ready]


def end(workers: Iterable[Worker]) -> None:
    """Ask all to stop (a training writes down where it is), and end those that do not listen."""
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
