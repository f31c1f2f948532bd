"""Files that are complete or not there, the versions that are written beside results, and the folder of data sets.

Nothing here needs torch or numpy, so the command line's help can import it.
"""

import os
import platform
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from edgewise.errors import FileError

VARIABLE = "EDGEWISE_DATA"
"""The environment variable that names a folder with data sets."""
_PACKAGES = ("torch", "torch_geometric", "numpy")


def write_whole(path: Path, write: Callable[[Any], None]) -> None:
    """Write a file so that one with the final name is always complete.

    `write` gets an open binary file under a temporary name in the same folder; only when it returns is the file renamed. If
    it fails, the temporary file is removed, and an older file with the final name stays as it was.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except (OSError, ValueError) as error:  # a ValueError: a name with a zero byte
        reason = getattr(error, "strerror", None) or error
        raise FileError(
            f"{str(path)!r} cannot be written: {reason}. Check that the folder exists and is writable."
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


@cache
def versions() -> dict[str, str]:
    """Versions of everything that can change a number, for the settings that are written beside results."""
    import edgewise

    found = {"edgewise": edgewise.__version__, "python": platform.python_version(), "machine": platform.machine()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a source tree on the path
            found[name] = "unknown"
    return found


def user_cache() -> Path:
    """The folder where downloads are kept between runs, by the rules of the XDG base directories."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgewise" / "data"
