"""Files that are complete, or not there: written under a temporary name, then renamed."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgewise.errors import FileError


def write_whole(path: Path, write: Callable[[Any], None]) -> None:
    """Under a temporary name first: a file with the final name is always complete."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise FileError(
            f"{path} cannot be written: {error.strerror or error}. Is the folder there and writable?"
        ) from error
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.chmod(name, 0o666 & ~_umask())  # mkstemp makes files that only their owner can read
        os.replace(name, path)
    except OSError as error:
        raise FileError(
            f"{path} could not be written: {error.strerror or error}. Nothing was left under that name."
        ) from error
    finally:
        Path(name).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
