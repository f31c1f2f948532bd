"""BoardFolder: what a leaderboard has measured, a journal for each network, so that nothing that stops it loses a line.

    board.json              what is the same for all lines: versions, targets of a network
    networks/infection-0007.jsonl   a line for each method: its numbers for every target, or why it refused
    times/infection-0007.jsonl      how long each of them took
    lock                    who works here

A line belongs to an entrant by its key (name, settings and, for somebody's own method, the code), and to a data set by its
own. Lines with other keys stay and are not used: a method that was changed is measured again.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from edgewise.board.measures import METRICS, ORDERS
from edgewise.disk import disk_error
from edgewise.errors import FileError
from edgewise.files import is_file, is_folder, versions, write_whole
from edgewise.folder_lock import FolderLock
from edgewise.inner_paths import inside, read_json
from edgewise.jobs.journal import Journal

MANIFEST, NETWORKS, TIMES = "board.json", "networks", "times"


class BoardFolder:
    """A folder of a leaderboard; used with `with`, so that one process works in it."""

    def __init__(self, path: Path, targets: int) -> None:
        self.path = path
        self.identity = {"kind": "leaderboard", "targets": targets, "versions": versions()}
        self._lock: FolderLock | None = None

    def __enter__(self) -> "BoardFolder":
        self._refuse_another()
        self._lock = FolderLock.take(self.path)
        try:
            for name in (NETWORKS, TIMES):
                inside(self.path, name).mkdir(exist_ok=True)
            manifest = inside(self.path, MANIFEST)
            if not is_file(manifest):
                write_whole(manifest, lambda file: file.write(json.dumps(self.identity, indent=1).encode()))
        except OSError as error:
            self._lock.release()
            raise disk_error(self.path, error) from error
        except BaseException:
            self._lock.release()
            raise
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
        manifest = inside(self.path, MANIFEST)
        if not is_file(manifest):
            others = [one.name for one in self.path.iterdir()] if is_folder(self.path) else []
            if set(others) - {"lock", NETWORKS, TIMES} and not all(name.endswith(".unfinished") for name in others):
                raise FileError(f"{self.path} has other files in it. Use an empty folder, or a new name.")
            return
        found = read_json(manifest)
        if not isinstance(found, dict):
            raise FileError(f"{manifest} is not that of a leaderboard. Use another folder.")
        for name, here in self.identity.items():
            if (there := found.get(name)) != here:
                raise FileError(
                    f"{self.path} holds a leaderboard with {name} {there}, and now it is {here}. Numbers of both cannot "
                    f"stand in one table: use another folder."
                )

    def journal(self, network: str) -> Journal:
        """The lines of one network."""
        return Journal(inside(self.path, f"{NETWORKS}/{network}.jsonl"))

    def times(self, network: str) -> Journal:
        """How long each line took, by its key: a file of its own, so that two runs write equal numbers into the others."""
        return Journal(inside(self.path, f"{TIMES}/{network}.jsonl"))

    def lines(self, network: str, data_key: str) -> Iterator[dict[str, Any]]:
        """The lines of one network that were measured on the data set as it is now, with their times."""
        seconds = {
            line.get("key"): line.get("seconds") for line in self.times(network) if isinstance(line.get("key"), str)
        }
        for line in self.journal(network):
            if line.get("data_key") == data_key and is_line(line):
                taken = seconds.get(line["key"], line.get("seconds"))
                yield {**line, "seconds": taken} if _is_number(taken) else line


def is_line(line: Mapping[str, Any]) -> bool:
    """Whether a line of a journal is one that we wrote: what it says about its targets fits them."""
    texts = all(isinstance(line.get(name), str) for name in ("data", "data_key", "method", "kind", "key"))
    index = line.get("index")
    whole = isinstance(index, list) and all(type(one) is int for one in (line.get("seed"), *index))
    if not (texts and whole and _is_number(line.get("accuracy"))):
        return False
    values = line.get("values")
    if not isinstance(values, dict):
        return isinstance(line.get("refused"), str)
    tables = [isinstance(one, dict) and set(one) == {metric.name for metric in METRICS} for one in values.values()]
    return (
        set(values) <= set(ORDERS)
        and all(tables)
        and all(_fits(one, index) for each in values.values() for one in each.values())
    )


def _fits(numbers: Any, index: Any) -> bool:
    return isinstance(numbers, list) and len(numbers) == len(index) and all(n is None or _is_number(n) for n in numbers)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not abs(value) >= 2**63


def network_name(data: str, seed: int) -> str:
    """The name of a network's journal.

    >>> network_name("infection", 7)
    'infection-0007'
    """
    return f"{data}-{seed:04d}"
