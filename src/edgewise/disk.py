"""The disk: room is allocated before it is written to, and an error says which disk it was and how much room it has.

Nothing here needs torch or numpy, so the command line's help can import it.
"""

import errno
import os
import shutil
from pathlib import Path

from edgewise.errors import FileError

_NOT_KNOWN = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
_BLOCK = 2**20


def allocate(handle: int, size: int) -> None:
    """Reserve so many bytes of an open file: a full disk says so now; in a hole of a mapped file it would end the process."""
    if size <= 0:
        return
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(handle, 0, size)
        except OSError as error:
            if error.errno not in _NOT_KNOWN:
                raise
        else:
            return
    place = os.fstat(handle).st_size  # a file system that cannot reserve: zeros do
    os.lseek(handle, place, os.SEEK_SET)
    while place < size:
        place += os.write(handle, bytes(min(_BLOCK, size - place)))


def disk_error(path: Path, error: OSError, left: str = "No incomplete file was left.") -> FileError:
    """The error for a file or folder that could not be written; `left` says what is there now.

    >>> print(disk_error(Path("all.npz"), OSError(errno.EACCES, "Permission denied")))
    all.npz could not be written: Permission denied. No incomplete file was left.
    """
    said = f"{path} could not be written: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        said += f" ({_room(path)}). Make room there, or use another disk"
    elif error.errno == errno.EFBIG:
        said += f" ({_room(path)}). Neither its file system nor ulimit -f may forbid files of this size"
    return FileError(f"{said}. {left}")


def _room(path: Path) -> str:
    """The disk that a path is on, in words: where it is mounted, and what is free."""
    place = path.absolute()
    try:
        while not place.is_dir():
            place = place.parent
        free = shutil.disk_usage(place).free
        while not os.path.ismount(place):
            place = place.parent
    except (OSError, ValueError):
        return "its disk says nothing about itself"
    return f"the disk at {place} has {free / 2**20:.1f} MB free"
