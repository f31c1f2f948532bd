"""A run of shards: those that are finished are read and checked, the others are done by an engine and kept as they finish.

`ShardWork` is what a user of jobs brings: how a shard is computed, written, and read back. `ShardEngine` is where that happens:
`Here`, in this process, or `Processes` of this machine (`processes.py`).
"""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar

from edgewise.arguments import one_of, whole_number
from edgewise.errors import SettingError
from edgewise.jobs.job_folder import JobFolder
from edgewise.jobs.plan import Shard
from edgewise.jobs.processes import Done, Passage, Processes, Task

Part = TypeVar("Part")


class ShardWork(Protocol[Part]):
    """How the shards of a job are computed, written and read back."""

    @property
    def ending(self) -> str:
        """Of the files, such as `".npz"`."""

    def compute(self, shard: Shard) -> Part:
        """Do the targets of a shard."""

    def save(self, part: Part, path: Path, job: str) -> None:
        """Write what `compute` gave to a file, whole or not at all, with the key of the job in it."""

    def load(self, path: Path, shard: Shard, job: str) -> Part | None:
        """Read it back; None if the file is damaged, of another job, or about other targets."""

    def describe(self, part: Part) -> dict[str, Any]:
        """What the journal says about a part besides its digest and its time."""


class ShardEngine(Protocol):
    """Where shards are done."""

    def run(self, shards: Sequence[Shard], task: Task, passage: Passage) -> Done:
        """Do every shard, in any order; each is yielded when its file is there, with what the journal should say."""


class Here:
    """One shard after the other, in this process."""

    def run(self, shards: Sequence[Shard], task: Task, passage: Passage) -> Done:
        """Do the shards in order."""
        for shard in shards:
            yield shard, task(shard)


ENGINES = ("here", "processes")


def engine_named(name: str, workers: int | None = None) -> ShardEngine:
    """The engine of that name; `workers` are those of `"processes"`, by default one for each core.

    >>> type(engine_named("here")).__name__, engine_named("processes", workers=2).workers
    ('Here', 2)
    """
    name = one_of("engine", name, ENGINES)
    workers = whole_number("workers", workers, at_least=1, or_none="for one a core", such_as=2)
    if name == "here":
        if workers is not None:
            raise SettingError(f"workers={workers} needs engine='processes'; the engine 'here' has none.")
        return Here()
    return Processes(workers or _cores())


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, eq=False)
class ShardTask(Generic[Part]):
    """Doing a shard and writing its file, in whatever process; what it gives is for the journal."""

    shards: Path
    work: ShardWork[Part]
    job: str

    def __call__(self, shard: Shard) -> dict[str, Any]:
        """Compute a shard and write it."""
        start = perf_counter()
        part = self.work.compute(shard)
        seconds = round(perf_counter() - start, 3)
        self.work.save(part, self.shards / (shard.name + self.work.ending), self.job)
        return {"seconds": seconds, **self.work.describe(part)}


def finished(
    folder: JobFolder, shards: Sequence[Shard], work: ShardWork[Part], job: str
) -> Iterator[tuple[Shard, Part]]:
    """The shards that are on the disk and prove themselves, one at a time; what does not is removed."""
    known = folder.known()
    for shard in shards:
        name = shard.name + work.ending
        kept = folder.is_kept(name, known)
        part = work.load(folder.shards / name, shard, job) if kept is not False else None
        if part is None:
            (folder.shards / name).unlink(missing_ok=True)
            continue
        if kept is None:  # the process ended before the journal was written
            folder.note(name, **work.describe(part))
        yield shard, part


def run_shards(
    folder: JobFolder,
    shards: Sequence[Shard],
    work: ShardWork[Part],
    job: str,
    engine: ShardEngine,
    remake: Callable[[], ShardWork[Part]] | None = None,
) -> Generator[tuple[Shard, Part], None, None]:
    """Do the shards that are left, and keep each when it is done; what was written is read back, and that is what counts.

    `remake` makes `work` again in a fresh process, from paths; without it, work gets into other processes by fork.
    """
    task = ShardTask(folder.shards, work, job)

    def forked() -> Task:
        folder.leave()  # the lock must end with this process, not with its workers
        return task

    passage = (
        Passage("fork", forked) if remake is None else Passage("spawn", partial(_remade, folder.shards, remake, job))
    )
    with closing(engine.run(shards, task, passage)) as done:
        for shard, told in done:
            name = shard.name + work.ending
            folder.note(name, **told)
            part = work.load(folder.shards / name, shard, job)
            assert part is not None, f"{shard.name} was written and cannot be read back"
            yield shard, part


def _remade(shards: Path, remake: Callable[[], ShardWork[Any]], job: str) -> Task:
    return ShardTask(shards, remake(), job)
