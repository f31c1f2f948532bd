"""Files that are complete or not there, the versions that are written beside results, and the folder of data sets.

Nothing here needs torch or numpy, so the command line's help can import it.
"""

import glob
import hashlib
import os
import platform
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from edgewise.errors import FileError

fcntl: Any
try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None

VARIABLE = "EDGEWISE_DATA"
"""The environment variable that names a folder with data sets."""
_UNFINISHED = ".unfinished"
_PACKAGES = ("torch", "torch_geometric", "numpy")


def write_whole(path: Path, write: Callable[[Any], None]) -> None:
    """Write a file so that one with the final name is always complete, also after a crash of the machine.

    `write` gets an open binary file under a temporary name in the same folder; only when it returns is the file flushed to the
    disk and renamed. If it fails, the temporary file is removed, and an older file with the final name stays as it was. What a
    process that was killed has left behind is removed by the next one that writes the same file.
    """
    try:
        remove_stale(path)
        handle, name = _temporary(path)
    except (OSError, ValueError) as error:  # a ValueError: a name with a zero byte
        reason = getattr(error, "strerror", None) or error
        raise FileError(
            f"{str(path)!r} cannot be written: {reason}. Check that the folder exists and is writable."
        ) from error
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(name, 0o666 & ~_umask())  # mkstemp makes files that only their owner can read
            os.replace(name, path)
        sync_folder(path.parent)
    except OSError as error:
        raise FileError(
            f"{path} could not be written: {error.strerror or error}. No incomplete file was left."
        ) from error
    finally:
        Path(name).unlink(missing_ok=True)


def is_file(path: Path) -> bool:
    """Whether there is such a file; no where the system says that there cannot be (a name that is too long, a null in it)."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Whether there is such a folder; no where the system says that there cannot be."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def can_be_written(path: Path) -> bool:
    """Whether a file of this name could be written: in a folder that is there and writable, under a name that can be."""
    try:
        path.lstat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError):  # too long, or a null in it
        return False
    return not is_folder(path) and is_folder(path.parent) and os.access(path.parent, os.W_OK)


def _temporary(path: Path) -> tuple[int, str]:
    """A new file beside the final one, locked as long as it is open: so others see that somebody writes it."""
    while True:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_UNFINISHED, dir=path.parent)
        lock(handle)
        if os.fstat(handle).st_nlink:
            return handle, name
        os.close(handle)  # it was taken for a stale one in the moment before it was locked


def remove_stale(path: Path) -> None:
    """Remove temporary files of a path whose writer is gone: nobody holds their lock."""
    if fcntl is None:
        return
    for stale in path.parent.glob(f".{glob.escape(path.name)}.*{_UNFINISHED}"):
        try:
            handle = os.open(stale, os.O_RDWR)
        except OSError:
            continue
        try:
            if lock(handle):
                stale.unlink(missing_ok=True)
        finally:
            os.close(handle)


def lock(handle: int) -> bool:
    """Lock an open file for this process, until it is closed; False if another process has the lock.

    The system frees the locks of a process that ends, however it ends. Where there are no such locks, everybody gets one.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, where the system can do that."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:  # not every file system knows it for folders
        pass
    finally:
        os.close(handle)


def digest_of(*files: Path) -> str:
    """SHA-256 of the files, one after another; for one file, what `sha256sum` prints."""
    whole = hashlib.sha256()
    for file in files:
        with file.open("rb") as content:
            for block in iter(lambda: content.read(2**20), b""):
                whole.update(block)
    return whole.hexdigest()


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
