"""FolderLock: one process works in a folder; the others are told who it is. The lock of a process that died is free."""

import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from edgewise.errors import FileError
from edgewise.files import lock

_NAME = "lock"


class FolderLock:
    """The right to work in a folder: take it, and release it, or remove it with the folder.

    It is a lock of the system on the file `lock`, so it ends with the process, however that ends. What the file says (host,
    process, since when) is for people.
    """

    def __init__(self, handle: int, path: Path) -> None:
        self._handle, self.path = handle, path

    @classmethod
    def take(cls, folder: Path) -> "FolderLock":
        """Take the lock of a folder, which is made if it is not there.

        Raises:
            FileError: If another process has it; the text says which.
        """
        path = folder / _NAME
        try:
            while True:
                folder.mkdir(parents=True, exist_ok=True)
                try:
                    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
                except FileNotFoundError:  # the last owner removed the folder in this moment
                    continue
                if not lock(handle):
                    who = _owner(os.read(handle, 4096))
                    os.close(handle)
                    raise FileError(f"{folder} is being worked on by {who}. Wait for it, or use another name.")
                if _is(handle, path):
                    break
                os.close(handle)  # the last owner removed it while we waited
            _sign(handle)
        except FileError:
            raise
        except (OSError, ValueError) as error:
            said = getattr(error, "strerror", None) or error
            raise FileError(f"{folder} cannot be used: {said}. Use another folder.") from error
        return cls(handle, path)

    def release(self) -> None:
        """Let others work in the folder."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def remove(self) -> None:
        """Remove the file and release the lock: the last thing before the folder is removed."""
        self.path.unlink(missing_ok=True)
        self.release()


def owner_of(folder: Path) -> str | None:
    """Who works in a folder, in words; None if nobody does."""
    try:
        handle = os.open(folder / _NAME, os.O_RDWR)
    except OSError:
        return None
    try:
        return None if lock(handle) else _owner(os.read(handle, 4096))
    finally:
        os.close(handle)


def _is(handle: int, path: Path) -> bool:
    """Whether the open file is the one that has the name now."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _sign(handle: int) -> None:
    """Write down who has the lock."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    text = json.dumps({"host": socket.gethostname(), "process": os.getpid(), "since": since})
    os.ftruncate(handle, 0)
    os.pwrite(handle, text.encode(), 0)


def _owner(text: bytes) -> str:
    """Who has the lock, in words; the file may be empty for a moment."""
    try:
        said = json.loads(text)
        return f"process {said['process']} on {said['host']}, since {said['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
