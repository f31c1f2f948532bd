"""Journal: what was finished, and what failed, a line of JSON each, on the disk before the next step begins."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgewise.disk import disk_error
from edgewise.errors import FileError
from edgewise.inner_paths import parsed, read_bytes

_MOST, _BLOCK = 2**31, 2**16  # bytes of a journal, and of a look at its end
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class Journal:
    """A file that only grows. A line that a crash tore off is not read, and the next one takes its place.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = Journal(Path(folder) / "journal.jsonl")
    ...     journal.add(shard="gradient-00000", digest="9f86d0")
    ...     list(journal)
    [{'shard': 'gradient-00000', 'digest': '9f86d0'}]
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Every whole line, the oldest first."""
        try:
            lines = read_bytes(self.path, _MOST).split(b"\n")[:-1]  # what follows the last line break is torn off
        except FileError:
            return
        for line in lines:
            try:
                said = parsed(line, "a line")
            except FileError:
                continue
            if isinstance(said, dict):
                yield said

    def add(self, **what: Any) -> None:
        """Write a line, and wait until it is on the disk."""
        try:
            handle = os.open(self.path, _FLAGS, 0o666)
            try:
                end = _end_of_lines(handle)
                os.ftruncate(handle, end)
                try:
                    line = json.dumps(what).encode() + b"\n"
                    while line:  # a disk that is full takes a part, and says so when it is asked for the rest
                        line = line[os.write(handle, line) :]
                    os.fsync(handle)
                except OSError:
                    os.ftruncate(handle, end)
                    raise
            finally:
                os.close(handle)
        except OSError as error:
            raise disk_error(self.path, error, "What it said before is kept.") from error


def _end_of_lines(handle: int) -> int:
    """Where the last whole line of an open file ends: what follows was torn off by a crash."""
    end = os.fstat(handle).st_size
    while end:
        begin = max(0, end - _BLOCK)
        found = os.pread(handle, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
