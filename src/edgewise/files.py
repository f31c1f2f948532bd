"""Files that are complete, or not there: written under a temporary name, then renamed."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgewise.errors import FileError


def write_whole(path: Path, write: Callable[[Any], None]) -> None:
    """Write a file so that one with the final name is always complete.

    `write` gets an open binary file under a temporary name in the same folder; only when it returns is the file renamed. If
    it fails, the temporary file is removed, and an older file with the final name stays as it was.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise FileError(
            f"{path} cannot be written: {error.strerror or error}. Check that the folder exists and is writable."
        ) from error
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.chmod(name, 0o666 & ~_umask())  # mkstemp makes files that only their owner can read
        os.replace(name, path)
    except OSError as error:
        raise FileError(
            f"{path} could not be written: {error.strerror or error}. No incomplete file was left."
        ) from error
    finally:
        Path(name).unlink(missing_ok=True)


def _umask() -> int:
    """The permissions that new files do not get; the system offers no way to read it without setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
