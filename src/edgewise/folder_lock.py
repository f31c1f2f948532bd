"""FolderLock: one process works in a folder; the others are told who it is. The lock of a process that died is free."""

import json
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edgewise.disk import disk_error
from edgewise.errors import FileError
from edgewise.files import lock
from edgewise.inner_paths import inside

_NAME = "lock"
_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_LONGEST = 4096


class FolderLock:
    """The right to work in a folder: take it, and release it, or remove it with the folder.

    It is a lock of the system on the file `lock`, so it ends with the process, however that ends. The file says who has it:
    host, process, when that process was started. Where the system has no locks, that is what counts.
    """

    def __init__(self, handle: int, path: Path) -> None:
        self._handle, self.path = handle, path

    @classmethod
    def take(cls, folder: Path) -> "FolderLock":
        """Take the lock of a folder, which is made if it is not there.

        Raises:
            FileError: If another process has it; the text says which.
        """
        try:
            while (found := cls._claim(folder)) is None:
                pass
        except FileError:
            raise
        except OSError as error:
            raise disk_error(folder, error, "Nothing was begun there.") from error
        except ValueError as error:
            raise FileError(f"{folder} cannot be used: {error}. Use another folder.") from error
        return found

    @classmethod
    def _claim(cls, folder: Path) -> "FolderLock | None":
        """The lock of a folder, if it is free; None if the last owner removed it, or the folder, in this moment."""
        folder.mkdir(parents=True, exist_ok=True)
        path = inside(folder, _NAME)
        try:
            found = cls(os.open(path, _FLAGS | os.O_CREAT, 0o666), path)
        except FileNotFoundError:
            return None
        try:
            if _claimed(found._handle, folder):
                return found
        except OSError:  # the disk is so full that not even this can be written
            found.remove()
            with suppress(OSError):
                folder.rmdir()
            raise
        except BaseException:
            found.release()
            raise
        found.release()
        return None

    def release(self) -> None:
        """Let others work in the folder."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def remove(self) -> None:
        """Remove the file and release the lock: the last thing before the folder is removed."""
        self.path.unlink(missing_ok=True)
        self.release()


def hidden_beside(path: Path) -> Path:
    """The folder in which a folder is made that will be at a path."""
    return inside(path.parent, f".{path.name}.unfinished")


@contextmanager
def unfinished_beside(path: Path) -> Iterator[Path]:
    """A fresh folder that can be renamed to a path, inside a hidden one in which nobody else works; both go at the end.

    What a process that was killed has left in there is removed.
    """
    around = hidden_beside(path)
    lock = FolderLock.take(around)
    try:
        fresh = inside(
            around, "whole"
        )  # a pipe of that name is refused here: to remove it as a folder would wait for it
        try:
            if fresh.exists():
                shutil.rmtree(fresh)
            fresh.mkdir()
            yield fresh
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    finally:
        lock.remove()
        with suppress(OSError):  # somebody has come in already, or something else is there
            around.rmdir()


def owner_of(folder: Path) -> str | None:
    """Who works in a folder, in words; None if nobody does."""
    try:
        handle = os.open(inside(folder, _NAME), _FLAGS)
    except (OSError, FileError):
        return None
    try:
        return _owner(handle)
    finally:
        os.close(handle)


def _claimed(handle: int, folder: Path) -> bool:
    """Whether an open file is the lock of the folder, and now ours; refused if it is somebody else's."""
    if (who := _owner(handle)) is not None:
        raise FileError(f"{folder} is being worked on by {who}. Wait for it, or use another name.")
    try:
        ours = os.path.samestat(os.fstat(handle), (folder / _NAME).lstat())
    except FileNotFoundError:
        return False
    if ours and stat.S_ISREG(os.fstat(handle).st_mode):
        _sign(handle)
    return ours


def _owner(handle: int) -> str | None:
    """Who has the lock of an open file, in words; None if nobody has, and then we do."""
    state = lock(handle)
    if state:
        return None
    try:
        said = json.loads(os.pread(handle, _LONGEST, 0))
        who = f"process {said['process']} on {said['host']}, since {said['since']}"
    except (ValueError, KeyError, TypeError, RecursionError):  # the file may be empty for a moment
        return None if state is None else "another process"
    return None if state is None and _is_gone(said) else who


def _sign(handle: int) -> None:
    """Write down who has the lock."""
    since, process = datetime.now(UTC).isoformat(timespec="seconds"), os.getpid()
    said = {"host": socket.gethostname(), "process": process, "started": _start_of(process), "since": since}
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(said).encode(), 0)


def _is_gone(said: dict[str, Any]) -> bool:
    """Whether the process that signed has certainly ended; of another machine nobody here knows."""
    if said["host"] != socket.gethostname() or not isinstance(said["process"], int):
        return False
    started = _start_of(said["process"])
    return said["process"] == os.getpid() or started is None or started != said.get("started")


def _start_of(process: int) -> str | None:
    """When a process of this machine was started, as the system counts it: its number may be given again; None: it is gone."""
    try:
        words = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return words[19]
    except (OSError, IndexError, ValueError):
        pass
    try:
        os.kill(process, 0)
    except PermissionError:
        return "running"
    except (OSError, OverflowError, ValueError):
        return None
    return "running"
