"""Processes of this machine that do pieces of work one after the other: started when there is work, noticed when they die.

A piece is whatever the one who has the pool hands out: a shard of a job, or a task of an experiment. It goes to a process as a
message, and its answer (`passage.py`) comes back. A pool with patience asks its processes to stop (SIGTERM) before it ends
them, so that they can write down how far they are; their work listens for that if it wants to.
"""

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

import torch

from edgewise.errors import SettingError
from edgewise.jobs.passage import Passage, Task, WorkerAnswer, answered

Piece = TypeVar("Piece")
_WATCH = 0.2  # seconds between two looks whether the parent is alive
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


class LostWorkerError(RuntimeError):
    """What a process answers that died: its exit code, negative for a signal."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"signal {-code}" if code is not None and code < 0 else f"exit code {code}")


class WorkerPool(Generic[Piece]):
    """Some processes, all of which get their work by the same passage."""

    def __init__(self, passage: Passage, workers: int, patience: float = 0.0) -> None:
        self.passage, self.workers, self.patience = passage, workers, patience

    def answers(self, take: Callable[[], Piece | None]) -> Generator[tuple[Piece, WorkerAnswer], None, None]:
        """Do the pieces that `take` gives until it gives None and nothing is under way; each with its answer.

        A piece whose process died is answered by a `LostWorkerError`; the next piece gets a new process. `take` may give None
        while other pieces are under way, and more later. At the end, however it comes, no process is left.
        """
        busy: list[_Worker[Piece]] = []
        idle: list[_Worker[Piece]] = []
        try:
            while True:
                while len(busy) < self.workers and (piece := take()) is not None:
                    busy.append(idle.pop() if idle else _Worker(self.passage, self.patience))
                    busy[-1].give(piece)
                if not busy:
                    return
                for worker in _ready(busy):
                    piece, answer = worker.answer()
                    busy.remove(worker)
                    if isinstance(answer.error, LostWorkerError):
                        worker.end()
                    elif (following := take()) is not None:  # it works while the answer is looked at
                        worker.give(following)
                        busy.append(worker)
                    else:
                        idle.append(worker)
                    yield piece, answer
        finally:
            _end([*busy, *idle], self.patience)


class _Worker(Generic[Piece]):
    """A process, the connection to it, and the piece that it is doing."""

    def __init__(self, passage: Passage, patience: float) -> None:
        context: Any = get_context(passage.way)
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, passage, os.getpid(), patience), daemon=True)
        with warnings.catch_warnings(), _no_interrupts(), _one_thread_each():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads; workers use none of them
            self.process.start()
        other.close()  # so that the end of the process is noticed here
        self.piece: Piece | None = None

    def give(self, piece: Piece) -> None:
        """Begin a piece; if the process is dead already, `answer` says so."""
        self.piece = piece
        with suppress(OSError):
            self.connection.send(piece)

    def answer(self) -> tuple[Piece, WorkerAnswer]:
        """The piece, and what became of it."""
        piece, self.piece = self.piece, None
        assert piece is not None
        try:
            found: WorkerAnswer = self.connection.recv()
        except (EOFError, OSError):
            return piece, WorkerAnswer({}, [], LostWorkerError(self.end()))
        return piece, found

    def end(self) -> int | None:
        """End the process, at once; its exit code, which may be its own if it had ended."""
        self.connection.close()
        self.process.join(_WATCH)  # one that dies has closed its pipe a moment before
        self.process.kill()
        self.process.join()
        return self.process.exitcode


def _end(workers: list[_Worker[Any]], patience: float) -> None:
    """End all workers; with patience they are asked first, and have so many seconds for an answer."""
    for worker in workers:
        if patience:
            worker.process.terminate()
        else:
            worker.process.kill()
        worker.connection.close()
    deadline = time.monotonic() + patience
    for worker in workers:
        worker.process.join(max(deadline - time.monotonic(), 0.1))
        worker.process.kill()
        worker.process.join()


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Ctrl-C waits; a process that is started inside never gets it: the one that started it ends it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """A fresh process reads these when it imports its libraries: several with many threads each get in each other's way."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _ready(workers: list[_Worker[Piece]]) -> list[_Worker[Piece]]:
    """Wait until a worker has answered or died; those that have."""
    connections = wait([worker.connection for worker in workers])
    return [worker for worker in workers if worker.connection in connections]


# --- In a worker --------------------------------------------------------------------------------------------------------


def _serve(connection: Connection, passage: Passage, parent: int, patience: float) -> None:
    """The main function of a worker: pieces come in, answers go out, until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes; the parent ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(parent, patience), daemon=True).start()
    torch.set_num_threads(1)
    arrive = cache(partial(_arrived, passage))
    try:
        while True:
            connection.send(answered(arrive, connection.recv()))
    except (EOFError, OSError):  # the parent is gone, or wants no more
        pass


def _arrived(passage: Passage) -> Task:
    """The task, in this process; refused if torch cannot compute gradients in a fork."""
    try:
        torch.ones(1, requires_grad=True).sum().backward()
    except RuntimeError as error:
        raise SettingError(
            "engine='processes' forks, which torch does not allow here: gradients were computed before on a machine with a "
            "GPU. Use engine='here', or edgewise job run."
        ) from error
    return passage.make()


def _end_with(parent: int, patience: float) -> None:
    """End this process when its parent has ended, however that was: nobody else would."""
    while os.getppid() == parent:
        time.sleep(_WATCH)
    if patience:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(patience)
    os._exit(1)
