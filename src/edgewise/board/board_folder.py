"""BoardFolder: what a leaderboard has measured, a journal for each network, so that nothing that stops it loses a line.

    board.json              what is the same for all lines: versions, targets of a network
    networks/infection-0007.jsonl   a line for each method: its numbers for every target, or why it refused
    lock                    who works here

A line belongs to an entrant by its key (name, settings and, for somebody's own method, the code), and to a data set by its
own. Lines with other keys stay and are not used: a method that was changed is measured again.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from edgewise.errors import FileError
from edgewise.files import is_file, is_folder, versions, write_whole
from edgewise.jobs.journal import Journal
from edgewise.jobs.lock import FolderLock

MANIFEST, NETWORKS = "board.json", "networks"


class BoardFolder:
    """A folder of a leaderboard; used with `with`, so that one process works in it."""

    def __init__(self, path: Path, targets: int) -> None:
        self.path = path
        self.identity = {"kind": "leaderboard", "targets": targets, "versions": versions()}
        self._lock: FolderLock | None = None

    def __enter__(self) -> "BoardFolder":
        self._refuse_another()
        self._lock = FolderLock.take(self.path)
        (self.path / NETWORKS).mkdir(exist_ok=True)
        if not is_file(self.path / MANIFEST):
            write_whole(self.path / MANIFEST, lambda file: file.write(json.dumps(self.identity, indent=1).encode()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._lock is not None:
            self._lock.release()

    def leave(self) -> None:
        """Give up the lock in a process that was forked: it must end with the one that took it."""
        if self._lock is not None:
            self._lock.release()

    def _refuse_another(self) -> None:
        """Refuse a folder of something else, or of a leaderboard with other targets or versions."""
        if not is_file(self.path / MANIFEST):
            if is_folder(self.path) and any(self.path.iterdir()):
                raise FileError(f"{self.path} has other files in it. Use an empty folder, or a new name.")
            return
        try:
            found = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FileError(f"{self.path / MANIFEST} cannot be read: {error}. Use another folder.") from error
        for name, here in self.identity.items():
            if (there := found.get(name)) != here:
                raise FileError(
                    f"{self.path} holds a leaderboard with {name} {there}, and now it is {here}. Numbers of both cannot "
                    f"stand in one table: use another folder."
                )

    def journal(self, network: str) -> Journal:
        """The lines of one network."""
        return Journal(self.path / NETWORKS / f"{network}.jsonl")

    def lines(self, network: str, data_key: str) -> Iterator[dict[str, Any]]:
        """The lines of one network that were measured on the data set as it is now."""
        return (line for line in self.journal(network) if line.get("data_key") == data_key)


def network_name(data: str, seed: int) -> str:
    """The name of a network's journal.

    >>> network_name("infection", 7)
    'infection-0007'
    """
    return f"{data}-{seed:04d}"
