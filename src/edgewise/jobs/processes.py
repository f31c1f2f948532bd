"""Processes: shards done by several processes of this machine, one thread each; a worker that dies loses nothing.

A worker gets a shard, writes its file, and answers what the journal should say; only the process that started it writes the
journal. If a worker dies, its shard goes to another one. Work travels by fork, or, if a fresh process can make it again
from paths (`Passage`), by that recipe. Messages go through pipes; none of them is ever written to the job's folder.
"""

import os
import signal
import threading
import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import torch

from edgewise.errors import EdgewiseError, ModelError, SettingError
from edgewise.jobs.plan import Shard

Task = Callable[[Shard], dict[str, Any]]
"""Does a shard and writes its file; what it gives is for the journal."""
Done = Generator[tuple[Shard, dict[str, Any]], None, None]
"""Shards whose files are there, each with what the journal should say."""
_MOST_LOSSES = 3
"""So often may a shard lose its worker."""
_WATCH = 0.2  # seconds between two looks whether the parent is alive


class Passage(NamedTuple):
    """How a task gets into a worker: `make` is called there."""

    way: str
    """`"fork"`: as it is in this process; `"spawn"`: in a fresh process, to which `make` goes as a message."""
    make: Callable[[], Task]


class _Answer(NamedTuple):
    """What a worker says about a shard."""

    told: dict[str, Any]
    warned: list[tuple[str, type[Warning]]]
    error: BaseException | None = None


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

    def answer(self) -> _Answer | None:
        """What became of the shard; None if the process died."""
        try:
            found: _Answer = self.connection.recv()
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
                    told = _heard(answer)
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


def _heard(answer: _Answer) -> dict[str, Any]:
    """Pass on what a worker warned of, and its error, as if they had happened here."""
    for text, kind in answer.warned:
        warnings.warn(text, kind, stacklevel=2)
    if answer.error is not None:
        raise answer.error
    return answer.told


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
    task: Task | None = None
    try:
        while True:
            shard = connection.recv()
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("ignore")
                warnings.simplefilter("default", UserWarning)
                told, error = {}, None
                try:
                    task = task or _arrived(passage)
                    told = task(shard)
                except BaseException as caught:
                    error = _portable(caught)
            said = [(str(one.message), one.category) for one in warned]
            connection.send(_Answer(told, said, error))
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


def _portable(error: BaseException) -> BaseException:
    """An error that can go through a pipe, with the worker's traceback as a note: one of ours, or the text of another's."""
    ours = isinstance(error, EdgewiseError) and type(error).__module__ == EdgewiseError.__module__
    found = type(error)(str(error)) if ours else RuntimeError(f"{type(error).__name__}: {error}")
    found.add_note("In a worker process:\n" + "".join(traceback.format_exception(error)))
    return found
