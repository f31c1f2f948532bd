"""One GPU for each worker, where a machine has several: a worker takes the first that no other worker of the machine has."""

import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch

from edgewise.files import lock

Found = TypeVar("Found")


def on_own_gpu(explain: Callable[[slice], Found], device: Any) -> Callable[[slice], Found]:
    """What explains, on a GPU of this process's own if `device` is `"cuda"`, any GPU, and there are several.

    >>> on_own_gpu(str, "cpu") is str
    True
    """
    if device is None or str(device) != "cuda" or torch.cuda.device_count() < 2:
        return explain
    number = claimed_gpu(torch.cuda.device_count())

    def there(positions: slice) -> Found:
        with torch.cuda.device(number):
            return explain(positions)

    return there


@cache
def claimed_gpu(count: int) -> int:
    """The number of a GPU that no other worker has claimed, held until this process ends; if none is left, any of them."""
    for number in range(count):
        handle = os.open(_path(number), os.O_RDWR | os.O_CREAT, 0o666)
        if lock(handle) is not False:
            return number  # the handle stays open: the system frees the lock when the process ends
        os.close(handle)
    return os.getpid() % count


def _path(number: int) -> Path:
    """A file that stands for a GPU; processes may number them differently, so it has the GPU's own name."""
    name = getattr(torch.cuda.get_device_properties(number), "uuid", number)
    owner = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"edgewise-gpu-{name}-{owner}.lock"
