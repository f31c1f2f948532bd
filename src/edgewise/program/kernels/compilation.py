"""How loops are compiled: `loop` for those that others call, `leaf` for steps that only work on arrays that they are given.

Numba counts who uses an array, with an instruction that stops the other cores, whenever a function is entered or an array is
taken out of a tuple. In functions that are called for every row that was a quarter of the time. Whoever makes no array and
gives none back need not count: the caller holds them all.

An array is seven numbers to the compiler, so that a call with thirty arrays puts two hundred numbers on the stack: another
sixth to a third of the time. So leaves are written into the loop that calls them (`forceinline`).

What was compiled is kept in files beside the loops. Numba compiles a loop again if its own file has changed, but not if a
leaf in another file has: after an update, old leaves could work in new loops. So what is kept counts for all files of this
folder as they are, or not at all.
"""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numba import njit

Loop = TypeVar("Loop", bound=Callable[..., Any])
ZERO: Any = np.int64(0)
"""Where to begin counting: a function that gets a plain 0 is compiled for that number first, and then for all of them."""


@cache
def _state_of_files() -> str:
    """A number of all files of this folder, as they are."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return sha256(b"".join(file.name.encode() + file.read_bytes() for file in files)).hexdigest()


def loop(**options: Any) -> Callable[[Loop], Loop]:
    """Compile a function, and keep it for the next process as long as no file of this folder changes.

    >>> @loop(cache=False)
    ... def ones(count):
    ...     return np.ones(count)
    >>> ones(2).tolist()
    [1.0, 1.0]
    """

    def compiled(function: Loop) -> Loop:
        found = njit(**{"cache": True, **options})(function)
        kept = getattr(found._cache, "_cache_file", None)
        if kept is not None:  # without a folder that can be written to nothing is kept
            kept._source_stamp = (kept._source_stamp, _state_of_files())
        return found

    return compiled


def leaf(**options: Any) -> Callable[[Loop], Loop]:
    """Compile a function that makes no arrays (numba says so if it does) and returns numbers or nothing.

    >>> @leaf(cache=False)
    ... def add_one(numbers):
    ...     for i in range(len(numbers)):
    ...         numbers[i] += 1
    >>> import numpy as np
    >>> numbers = np.zeros(2)
    >>> add_one(numbers)
    >>> numbers.tolist()
    [1.0, 1.0]
    """
    return loop(**{"_nrt": False, "forceinline": True, **options})
