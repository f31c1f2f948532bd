"""`leaf`: how loops are compiled that only read and write the arrays that they are given.

Numba counts who uses an array, with an instruction that stops the other cores, whenever a function is entered or an array is
taken out of a tuple. In functions that are called for every row that was a quarter of the time. Whoever makes no array and
gives none back need not count: the caller holds them all.

An array is seven numbers to the compiler, so that a call with thirty arrays puts two hundred numbers on the stack: another
sixth to a third of the time. So these functions are written into the loop that calls them (`forceinline`).
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit

Loop = TypeVar("Loop", bound=Callable[..., Any])
ZERO: Any = np.int64(0)
"""Where to begin counting: a function that gets a plain 0 is compiled for that number first, and then for all of them."""


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
    compiled: Callable[[Loop], Loop] = njit(**{"cache": True, "_nrt": False, "forceinline": True, **options})
    return compiled
