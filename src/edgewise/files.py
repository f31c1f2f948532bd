"""Files that are complete or not there, the versions that are written beside results, and the folder of data sets.

Nothing here needs torch or numpy, so the command line's help can import it.
"""

import glob
import hashlib
import io
import os
import platform
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from secrets import token_hex
from typing import Any

from edgewise.disk import disk_error
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

    `write` gets an open binary file under a temporary name in the same folder; only when it returns, and every byte is on the
    disk, is the file renamed. If it fails, the temporary file is removed, and an older file with the final name stays as it
    was. What a process that was killed has left behind is removed by the next one that writes the same file.
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
            whole = WholeFile(file)
            write(whole)
            whole.settle()
            os.replace(name, path)
        sync_folder(path.parent)
    except OSError as error:
        raise disk_error(path, error) from error
    finally:
        Path(name).unlink(missing_ok=True)


class WholeFile(io.BufferedIOBase):
    """An open file that every byte goes to through Python, which says so when the disk is full; C code may not.

    It counts how far was written, and `settle` compares that with what the disk has.
    """

    def __init__(self, file: Any) -> None:
        self._file, self._end = file, 0

    def write(self, data: Any) -> int:
        """Write some bytes."""
        done: int = self._file.write(data)
        self._end = max(self._end, self._file.tell())
        return done

    def settle(self) -> None:
        """Everything to the disk; an error if not everything got there."""
        self._file.flush()
        os.fsync(self._file.fileno())
        if (size := os.fstat(self._file.fileno()).st_size) != self._end:
            raise OSError(None, f"the disk has {size} of {self._end} bytes")

    def flush(self) -> None:
        """What is written so far to the system."""
        if not self._file.closed:
            self._file.flush()

    def tell(self) -> int:
        """The place where the next bytes go."""
        place: int = self._file.tell()
        return place

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place: archives fill in their heads at the end."""
        found: int = self._file.seek(place, whence)
        return found

    def writable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True


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
        name = str(path.parent / f".{path.name}.{token_hex(4)}{_UNFINISHED}")
        try:
            handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        except FileExistsError:
            continue
        lock(handle)
        if os.fstat(handle).st_nlink:
            return handle, name
        os.close(handle)  # it was taken for a stale one in the moment before it was locked


def remove_stale(path: Path) -> None:
    """Remove temporary files of a path whose writer is gone: nobody holds their lock."""
    for stale in path.parent.glob(f".{glob.escape(path.name)}.*{_UNFINISHED}"):
        try:
            handle = os.open(stale, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        except OSError:
            continue
        try:
            if lock(handle):
                stale.unlink(missing_ok=True)
        finally:
            os.close(handle)


def lock(handle: int) -> bool | None:
    """Lock an open file for this process, until it is closed: whether we have it now.

    False if another process has it; None where the system, or the file system, has no such locks. The system frees the locks
    of a process that ends, however it ends.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
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
