"""Journal: what was finished, and what failed, a line of JSON each, on the disk before the next step begins."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgewise.disk import disk_error
from edgewise.errors import FileError
from edgewise.inner_paths import parsed, read_bytes

_MOST = 2**31  # bytes of a journal
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class Journal:
    """A file that only grows. A line that a crash tore off is not read, and the next one does not continue it.

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
                size = os.fstat(handle).st_size
                torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
                line = b"\n" * torn + json.dumps(what).encode() + b"\n"
                while line:  # a disk that is full takes a part, and says so when it is asked for the rest
                    line = line[os.write(handle, line) :]
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise disk_error(self.path, error, "What it said before is kept.") from error
