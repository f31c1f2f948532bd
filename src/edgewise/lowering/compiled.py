"""Compiled twins of the loops that cost most (extra `fast`: numba). Without numba, or on a GPU, torch does the same work.

Each function here has its twin in plain torch beside the place where it is called, and a test that compares the two.
"""

import os
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

_WORTH_IT = 4_000  # with less work than this, loading the compiled code costs more than it saves


@cache
def _kernels() -> ModuleType | None:
    if os.environ.get("EDGEWISE_COMPILED", "1") == "0":
        return None
    try:
        from edgewise.lowering import kernels
    except ImportError:  # numba is not installed
        return None
    return kernels


def kernels_for(work: int, example: Tensor) -> Any:
    """The compiled functions, if they are there and the work is worth it; otherwise None."""
    if work < _WORTH_IT or example.is_cuda or example.dtype not in (torch.float32, torch.float64, torch.int64):
        return None
    return _kernels()
