"""Processes: shards done by several processes of this machine, one thread each; a worker that dies loses nothing.

A worker gets a shard, writes its file, and answers what the journal should say; only the process that started it writes the
journal. If a worker dies, its shard goes to another one. Work travels by fork, or, if a fresh process can make it again
from paths (`Passage`), by that recipe. Messages go through pipes; none of them is ever written to the job's folder.
"""

import os
import signal
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from edgewise.errors import ModelError, SettingError
from edgewise.jobs.passage import Answer, Done, Passage, Task, answered
from edgewise.jobs.plan import Shard

_MOST_LOSSES = 3
"""So often may a shard lose its worker."""
_WATCH = 0.2  # seconds between two looks whether the parent is alive


class _Worker:
    """A process, the connection to it, and the shard that it is doing."""

    def __init__(self, passage: Passage) -> None:
        context: Any = get_context(passage.way)
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, passage, os.getpid()), daemon=True)
        with warnings.catch_warnings(), _no_interrupts():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads; workers use none of them
            self.process.start()
        other.close()  # so that the end of the process is noticed here
        self.shard: Shard | None = None

    def give(self, shard: Shard) -> None:
        """Begin a shard; if the process is dead already, `answer` says so."""
        self.shard = shard
        with suppress(OSError):
            self.connection.send(shard)

    def answer(self) -> Answer | None:
        """What became of the shard; None if the process died."""
        try:
            found: Answer = self.connection.recv()
        except (EOFError, OSError):
            return None
        return found

    def end(self) -> int | None:
        """End the process, at once; its exit code."""
        self.connection.close()
        self.process.kill()
        self.process.join()
        return self.process.exitcode


class Processes:
    """Shards in several processes of this machine."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def check(self, remake: Callable[[], Any] | None) -> None:
        """What cannot be made again is forked."""

    def run(self, shards: Sequence[Shard], task: Task, passage: Passage) -> Done:
        """Do every shard, each yielded with what the journal should say; at the end, however it comes, no worker is left."""
        _refuse_fork(passage)
        waiting, losses = deque(shards), Counter[str]()
        workers: list[_Worker] = []
        try:
            while waiting or workers:
                while waiting and len(workers) < self.workers:
                    workers.append(_Worker(passage))
                    workers[-1].give(waiting.popleft())
                for worker in _ready(workers):
                    shard, answer = worker.shard, worker.answer()
                    assert shard is not None
                    if answer is None:  # it is replaced in the next round
                        workers.remove(worker)
                        code = worker.end()
                        losses[shard.name] += 1
                        _refuse_more_losses(shard, losses[shard.name], code)
                        waiting.appendleft(shard)
                        continue
                    told = answer.heard()
                    if waiting:
                        worker.give(waiting.popleft())
                    else:
                        workers.remove(worker)
                        worker.end()
                    yield shard, {**told, "workers": self.workers}
        finally:
            for worker in workers:
                worker.end()


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


def _ready(workers: list[_Worker]) -> list[_Worker]:
    """Wait until a worker has answered or died; those that have."""
    connections = wait([worker.connection for worker in workers])
    return [worker for worker in workers if worker.connection in connections]


def _refuse_fork(passage: Passage) -> None:
    """Refuse where work cannot be forked."""
    if passage.way == "fork" and ("fork" not in get_all_start_methods() or torch.cuda.is_initialized()):
        why = "a GPU is in use" if torch.cuda.is_initialized() else "this system has no fork"
        raise SettingError(f"engine='processes' forks, and {why}. Use engine='here', or edgewise job run.")


def _refuse_more_losses(shard: Shard, losses: int, code: int | None) -> None:
    """Stop if a shard ends every worker that takes it."""
    if losses >= _MOST_LOSSES:
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        raise ModelError(
            f"{shard.name} (positions {shard.begin} to {shard.end - 1}) ended {losses} worker processes, the last one with "
            f"{how}. If memory ran out, use fewer workers. What is finished is kept."
        )


# --- In a worker --------------------------------------------------------------------------------------------------------


def _serve(connection: Connection, passage: Passage, parent: int) -> None:
    """The main function of a worker: shards come in, answers go out, until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes; the parent ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    torch.set_num_threads(1)
    arrive = cache(partial(_arrived, passage))
    try:
        while True:
            shard = connection.recv()
            connection.send(answered(arrive, shard))
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


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, however that was: nobody else would."""
    while os.getppid() == parent:
        time.sleep(_WATCH)
    os._exit(1)
