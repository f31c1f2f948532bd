"""Names that a file gives: where they lead inside its own folder. What would lead out of it is refused before it is touched.

Whoever can change one file of a job, of a store or of a leaderboard must not reach any file outside: every name that stands
in a file goes through `inside`. `read_bytes` and `read_json` read files of strangers: no pipe is waited for, no device is
read, and a text that nests too deeply is an error like any other.
"""

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgewise.arguments import shown
from edgewise.errors import EdgewiseError, FileError

_LONGEST, _LONGEST_PART = 1024, 255  # bytes
_REFUSED = re.compile(r"[\x00-\x1f\x7f\\]|^[A-Za-z]:")
"""Nulls and other controls, and what Windows reads as a folder or a drive."""
_DEEPEST = 100
"""Tables and lists in each other; ours have fewer than ten."""
_MOST = 2**28
"""Bytes of a text that is read as a whole, and of the values that a small one may stand for."""
_VALUE, _RATIO = 64, 12
"""Bytes of a value in memory, about, and how many times its size a large text may take; honest ones take up to eight."""


def inside(folder: Path, name: Any) -> Path:
    """Where a name leads that a file of the folder gives: to a file or folder in it, which need not be there.

    Raises:
        FileError: If the name is absolute, goes up, has a drive, a null or too many letters; if a part of the way is a link;
            if at its end is a pipe, a device, a link, or a file with a second name elsewhere (a hard link).

    >>> str(inside(Path("store"), "nodes/x.npy"))
    'store/nodes/x.npy'
    >>> inside(Path("store"), "../x.npy")
    Traceback (most recent call last):
    edgewise.errors.FileError: store names '../x.npy', which is not a plain name inside that folder. Nothing was touched.
    """
    parts = _parts(name)
    if not parts:
        raise FileError(
            f"{folder} names {shown(name)}, which is not a plain name inside that folder. Nothing was touched."
        )
    path = folder
    for part in parts:
        path = path / part
        if what := _foreign(path):
            raise FileError(f"{path} is {what}, which could lead out of its folder. Nothing was touched.")
    return path


def _parts(name: Any) -> list[str]:
    """The parts of a plain name; none if it is not one."""
    try:
        size = len(name.encode()) if isinstance(name, str) else 0
    except UnicodeEncodeError:
        return []
    parts = name.split("/") if 0 < size <= _LONGEST else []
    plain = all(
        part not in ("", ".", "..") and len(part.encode()) <= _LONGEST_PART and not _REFUSED.search(part)
        for part in parts
    )
    return parts if plain else []


def _foreign(path: Path) -> str:
    """What is wrong with what has a name, in words; empty if it is a file or a folder of its own, or is not there."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        return "not to be reached"
    if stat.S_ISLNK(found.st_mode):
        return "a link"
    if stat.S_ISDIR(found.st_mode):
        return ""
    if not stat.S_ISREG(found.st_mode):
        return "a pipe, a device or a socket"
    return (
        "a file with a second name elsewhere (a hard link; cp -r makes a folder without)" if found.st_nlink > 1 else ""
    )


@contextmanager
def reading(path: Path, what: str, *, writing: bool = False) -> Iterator[None]:
    """Turn whatever goes wrong while a stranger's file is read into an error of ours.

    With `writing` a file of ours is written in the block as well, and what the system says about it is not the file's fault.
    """
    try:
        yield
    except EdgewiseError:
        raise
    except Exception as error:  # a damaged file can make any part of a reader fail, each in its own way
        if writing and isinstance(error, OSError) and error.errno is not None:
            raise
        said = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])[:160]
        raise FileError(f"{path} cannot be read as {what} ({said}). It may be cut short, or altered.") from error


def opened(path: Path) -> int:
    """An open file of a stranger, to read: a plain file, whatever has its name; nothing is waited for.

    Raises:
        FileError: If it is not there, or is something else.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileError(f"{path} cannot be read: it is not a file.")
    return handle


def read_bytes(path: Path, most: int = _MOST) -> bytes:
    """All bytes of a plain file; refused if there are more than `most`."""
    with os.fdopen(opened(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise FileError(f"{path} cannot be read: it has {size} bytes, and at most {most} were expected.")
        try:
            return file.read(size)
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror or error}.") from error


def read_json(path: Path) -> Any:
    """What a file of JSON says.

    Raises:
        FileError: If it is not there, is not JSON, or nests too deeply.
    """
    return parsed(read_bytes(path), str(path))


def parsed(text: bytes, what: str, stored: int | None = None) -> Any:
    """What a text of JSON says; `what` names it in errors, `stored` is its size on the disk if it was packed.

    A text of `[],[],…` takes twenty times its size in memory, so values are counted before any of them is built.

    >>> parsed(b'{"level": "input"}', "the manifest")
    {'level': 'input'}
    >>> parsed(b"[" * 10**5, "the manifest")
    Traceback (most recent call last):
    edgewise.errors.FileError: the manifest cannot be read as JSON: it nests too deeply.
    """
    if (values := sum(map(text.count, (b"[", b"{", b",")))) * _VALUE > max(_MOST, _RATIO * (stored or len(text))):
        raise FileError(f"{what} cannot be read as JSON: it has {values} values, more than its size allows.")
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise FileError(f"{what} cannot be read as JSON: it nests too deeply.") from error
    except (ValueError, MemoryError) as error:
        raise FileError(f"{what} cannot be read as JSON: {str(error) or 'it is too large'}.") from error
    if _is_deep(found):
        raise FileError(f"{what} cannot be read as JSON: it nests too deeply.")
    return found


def _is_deep(found: Any) -> bool:
    """Whether more than `_DEEPEST` tables and lists stand in each other."""
    level = [found] if isinstance(found, (list, dict)) else []
    for _ in range(_DEEPEST):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [item for items in inner for item in items if isinstance(item, (list, dict))]
        if not level:
            return False
    return True
