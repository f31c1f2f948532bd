"""Compiled twins of the loops that cost most (extra `fast`: numba). Without numba, or on a GPU, torch does the same work.

Each loop has its twin in plain torch beside the place where it is called, and a test that compares the two. Callers write

    kernels = kernels_for(work, example)
    if kernels is not None:
        return torch.from_numpy(kernels.rows_times(*arrays(gradient, matrices, node)))
    return torch.einsum(...)

The loops are in the files of this folder; `loops.py` lists those that others call, and only it imports
numba.
"""

import os
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

_WORTH_IT = 4_000  # with less work than this, loading the compiled code costs more than it saves

Array = Any
"""A numpy array: numba compiles a loop for the arrays that come."""


@cache
def _kernels() -> ModuleType | None:
    """The module of compiled loops; None without numba, or if EDGEWISE_COMPILED=0 turns them off."""
    if os.environ.get("EDGEWISE_COMPILED", "1") == "0":
        return None
    try:
        from edgewise.program.kernels import loops
    except ImportError:  # numba is not installed
        return None
    return loops


def kernels_for(work: int, example: Tensor) -> Any:
    """The compiled functions, if they are there and the work is worth it; otherwise None.

    Args:
        work: About how many numbers or pairs are gone through.
        example: One of the tensors: compiled loops take float32, float64 and int64 on the CPU.
    """
    if work < _WORTH_IT or example.is_cuda or example.dtype not in (torch.float32, torch.float64, torch.int64):
        return None
    return _kernels()


def arrays(*tensors: Tensor) -> list[Any]:
    """Tensors as numpy arrays that share their memory, as the compiled functions take them."""
    return [tensor.detach().numpy() for tensor in tensors]


def filled_columns(matrix: Array) -> Array:
    """A matrix with columns of zeros up to a multiple of eight: rows then take whole vectors (`row_vectors.py`)."""
    if matrix.shape[1] % 8 == 0:
        return matrix
    filled = np.zeros((len(matrix), matrix.shape[1] + -matrix.shape[1] % 8), matrix.dtype)
    filled[:, : matrix.shape[1]] = matrix
    return filled
