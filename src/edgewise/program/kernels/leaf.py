"""`leaf`: how loops are compiled that only read and write the arrays that they are given.

Numba counts who uses an array, with an instruction that stops the other cores, whenever a function is entered or an array is
taken out of a tuple. In functions that are called for every row that was a quarter of the time. Whoever makes no array and
gives none back need not count: the caller holds them all.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Loop = TypeVar("Loop", bound=Callable[..., Any])


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
    compiled: Callable[[Loop], Loop] = njit(**{"cache": True, "_nrt": False, **options})
    return compiled
