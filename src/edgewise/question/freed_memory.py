"""Memory that was freed goes back to the system between blocks of targets: what an allocator keeps counts against a ceiling."""

import ctypes
import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

_SHARE = 8  # of a budget: by how much resident memory may grow before the allocator is asked to give back


class FreedMemory:
    """Asks the C library for what it keeps, whenever resident memory has grown by a part of the budget.

    Scores that stay lie between large tensors that go, so that freed memory is seldom used again as a whole. What cannot be
    asked (another C library, no /proc) is left as it is: no number depends on it.
    """

    def __init__(self, budget: int) -> None:
        self._step, self._trim = budget // _SHARE, _trim_function()
        self._last = resident_bytes() if self._trim is not None else 0

    def give_back(self) -> None:
        """To be called when a block is done."""
        if self._trim is not None and resident_bytes() - self._last > self._step:
            self._trim(0)
            self._last = resident_bytes()


def give_back_now() -> None:
    """What is free goes back to the system, however little: what was freed before a budget is shared out counts against it."""
    trim = _trim_function()
    if trim is not None:
        trim(0)


def resident_bytes() -> int:
    """Of this process, now; 0 where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


@lru_cache(maxsize=1)
def _trim_function() -> Any:
    """`malloc_trim` of the GNU C library; None elsewhere."""
    with suppress(OSError, AttributeError, TypeError):
        return ctypes.CDLL(None).malloc_trim
    return None
