"""Tables of numbers that may be larger than memory: mapped to temporary files, which are gone when nobody uses them."""

import math
import os
from tempfile import TemporaryFile

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import FileError


def mapped_table(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros, `shape`, in a file without a name in the folder for temporary files (`TMPDIR`).

    >>> table = mapped_table((3, 2), torch.float32)
    >>> table[1] += 2
    >>> table.sum(dim=1)
    tensor([0., 4., 0.])
    """
    kind = torch.empty(0, dtype=dtype).numpy().dtype
    size = math.prod(shape) * kind.itemsize
    if size == 0:
        return torch.zeros(shape, dtype=dtype)
    try:
        with TemporaryFile() as file:
            if hasattr(os, "posix_fallocate"):  # a disk that is full must say so now: later it would end the process
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            return torch.from_numpy(np.memmap(file, dtype=kind, mode="r+", shape=shape))
    except OSError as error:
        raise FileError(
            f"A temporary file of {size / 2**20:.0f} MB could not be written: {error.strerror or error}. Set TMPDIR to a "
            "folder with more room."
        ) from error
