"""`torch.load` without unpickling: tensors and plain containers, and the classes that are named, nothing else."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from edgewise.errors import FileError


def load_safely(path: Path, what: str, instead: str, allowed: Sequence[Any] = ()) -> Any:
    """What the file holds; `what` it should be and what to do `instead` are for the errors."""
    registered = torch.serialization.get_safe_globals()  # the block below would take them off the list at its end
    try:
        with torch.serialization.safe_globals([one for one in allowed if one not in registered]), _no_warnings():
            return torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise FileError(
            f"{path} is a pickle of more than {what}, and unpickling runs whatever is in the file. {instead}"
        ) from error
    except Exception as error:  # torch raises whatever its readers raise
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise FileError(f"{path} cannot be read as {what} ({first[:120]}). It may be cut short.") from error


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Torch's advice about formats is for those who write them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
