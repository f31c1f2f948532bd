"""Cores: how many the work at hand may use, and work that is spread over them.

Torch's own threads cut sums into as many parts as there are threads, so that the last bit of a number depends on them, and on
small tensors they wait for each other. So torch keeps to one thread, and whole targets are spread instead: into parts that do
not depend on the number of cores, each worked on by one thread. The numbers are the same on any number of cores, bit by bit.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event
from typing import Any, TypeVar

import torch

from edgewise.arguments import whole_number
from edgewise.random_numbers import one_thread

Part = TypeVar("Part")
Found = TypeVar("Found")

_PARTS_A_CORE = 8
"""A core that is done takes the next part, so that none waits long for another."""
MUCH_WORK = 2**20
"""Edges that all targets see together, from which on loops over them are spread: some 20 ms of work."""
_cores: ContextVar[int] = ContextVar("cores", default=1)
"""How many the work of this thread may use; threads that are started begin with one."""

_stop: ContextVar[Event | None] = ContextVar("stop", default=None)


def read_threads(threads: Any) -> int:
    """The number of threads that was asked for, checked; None stands for as many as torch has.

    >>> read_threads(3)
    3
    """
    whole_number("threads", threads, at_least=1, or_none="for all cores where there is much to do")
    return torch.get_num_threads() if threads is None else int(threads)


@contextmanager
def many_cores(count: int) -> Iterator[None]:
    """Run a block in which `spread` may use so many cores, and torch one."""
    before = _cores.set(count)
    try:
        with one_thread():
            yield
    finally:
        _cores.reset(before)


def num_cores() -> int:
    """How many cores the work at hand may use."""
    return _cores.get()


def even_parts(units: int, least: int) -> int:
    """Into how many parts to cut work whose parts may cost unlike: one, or several for each core, of at least so many units.

    >>> even_parts(1000, 10)
    1
    >>> with many_cores(2): even_parts(1000, 10), even_parts(25, 10), even_parts(19, 10)
    (16, 2, 1)
    """
    return 1 if num_cores() == 1 else max(min(_PARTS_A_CORE * num_cores(), units // least), 1)


def spread(function: Callable[[Part], Found], parts: Iterable[Part]) -> Iterator[Found]:
    """What a function finds for each part, in order, worked out by as many threads as there are cores.

    A thread gives way to others while torch or a compiled loop works. If one fails, or the caller is interrupted, parts that
    have not begun are dropped, and those under way end at the next `stop_if_asked`.

    >>> with many_cores(2): list(spread(abs, [-1, 2, -3]))
    [1, 2, 3]
    """
    listed = list(parts)
    count = min(num_cores(), len(listed))
    if count <= 1:
        yield from map(function, listed)
        return
    asked_to_stop = Event()

    def work(part: Part) -> Found:
        _stop.set(asked_to_stop)
        return function(part)

    pool = ThreadPoolExecutor(count, thread_name_prefix="edgewise")
    try:
        waiting = deque(pool.submit(work, part) for part in listed)
        while waiting:
            yield waiting.popleft().result()
    finally:
        asked_to_stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


class PartDropped(BaseException):
    """In a thread whose result nobody waits for any more."""


def stop_if_asked() -> None:
    """End the work of a thread that was started by `spread`, if the caller has gone."""
    asked = _stop.get()
    if asked is not None and asked.is_set():
        raise PartDropped
