"""Compiled twins of the loops that cost most (extra `fast`: numba). Without numba, or on a GPU, torch does the same work.

Each function here has its twin in plain torch beside the place where it is called, and a test that compares the two.
"""

import os
import sys
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
        from edgewise.program.kernels import loops
    except ImportError:  # numba is not installed
        return None
    return loops


def kernels_for(work: int, example: Tensor) -> Any:
    """The compiled functions, if they are there and the work is worth it; otherwise None."""
    loaded = "edgewise.program.kernels.loops" in sys.modules
    enough = work >= (_WORTH_IT // 16 if loaded else _WORTH_IT)
    fits = not example.is_cuda and example.dtype in (torch.float32, torch.float64, torch.int64)
    return _kernels() if enough and fits else None


def arrays(*tensors: Tensor) -> list[Any]:
    """Tensors as the compiled functions take them."""
    return [tensor.detach().numpy() for tensor in tensors]


# --- Numba compiles a loop for the arrays that come --------------------------------------------------------------------


Array = Any
