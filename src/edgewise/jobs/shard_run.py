"""A run of shards: those that are finished are read and checked, the others are done by an engine and kept as they finish.

`ShardWork` is what a user of jobs brings: how a shard is computed, written, and read back. `ShardEngine` is where that happens:
`Here`, in this process, `Processes` of this machine (`processes.py`), or a `DaskCluster` (`dask_cluster.py`).
"""

import os
import socket
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar

from edgewise.arguments import one_of, whole_number
from edgewise.errors import FileError, SettingError
from edgewise.files import digest_of
from edgewise.inner_paths import inside
from edgewise.jobs.dask_cluster import DaskCluster
from edgewise.jobs.job_folder import JobFolder, read_manifest
from edgewise.jobs.passage import Done, Passage, Task
from edgewise.jobs.plan import Shard
from edgewise.jobs.processes import Processes

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


@dataclass(frozen=True, eq=False)
class Remake(Generic[Part]):
    """How work is made again in a fresh process: `make` goes there as a message."""

    make: Callable[[], ShardWork[Part]]
    from_files: bool
    """Whether the message is small and names files; else it holds model and graph, and on this machine a fork is better."""


class ShardEngine(Protocol):
    """Where shards are done."""

    def check(self, remake: Callable[[], Any] | None) -> None:
        """Refuse work that cannot get to where shards are done, before the job begins."""

    def run(self, shards: Sequence[Shard], task: Task, passage: Passage) -> Done:
        """Do every shard, in any order; each is yielded when its file is there, with what the journal should say."""


class Here:
    """One shard after the other, in this process."""

    def check(self, remake: Callable[[], Any] | None) -> None:
        """Everything is here."""

    def run(self, shards: Sequence[Shard], task: Task, passage: Passage) -> Done:
        """Do the shards in order."""
        for shard in shards:
            yield shard, task(shard)


ENGINES = ("here", "processes", "dask")


def engine_named(name: str, workers: int | None = None, scheduler: str | None = None) -> ShardEngine:
    """The engine of that name; `workers` are those of `"processes"` or of a local Dask cluster, by default one for each core.

    >>> type(engine_named("here")).__name__, engine_named("processes", workers=2).workers
    ('Here', 2)
    """
    name = one_of("engine", name, ENGINES)
    workers = whole_number("workers", workers, at_least=1, or_none="for one a core", such_as=2)
    if scheduler is not None and name != "dask":
        raise SettingError(f"scheduler={scheduler!r} needs engine='dask'; the engine {name!r} has none.")
    if name == "here":
        if workers is not None:
            raise SettingError(f"workers={workers} needs engine='processes' or 'dask'; the engine 'here' has none.")
        return Here()
    if name == "processes":
        return Processes(workers or _cores())
    if scheduler is not None and workers is not None:
        raise SettingError("The cluster of scheduler= has its own workers. Leave workers= out, or scheduler=.")
    return DaskCluster(scheduler, workers or _cores())


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
        path = inside(self.shards, shard.name + self.work.ending)
        self.work.save(part, path, self.job)
        return {"seconds": seconds, "digest": digest_of(path), **self.work.describe(part)}


def finished(
    folder: JobFolder, shards: Sequence[Shard], work: ShardWork[Part], job: str
) -> Iterator[tuple[Shard, Part]]:
    """The shards that are on the disk and prove themselves, one at a time; what does not is removed."""
    known = folder.known()
    for shard in shards:
        name = shard.name + work.ending
        kept = folder.is_kept(name, known)
        part = work.load(folder.file(name), shard, job) if kept is not False else None
        if part is None:
            _remove(folder.file(name))
            continue
        if kept is None:  # the process ended before the journal was written
            folder.note(name, **work.describe(part))
        yield shard, part


def _remove(path: Path) -> None:
    """Remove what should have been a shard."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:  # a folder
        raise FileError(
            f"{path} is not a shard and cannot be removed: {error.strerror or error}. Remove it."
        ) from error


def run_shards(
    folder: JobFolder, shards: Sequence[Shard], work: ShardWork[Part], job: str, engine: ShardEngine
) -> Generator[tuple[Shard, Part], None, None]:
    """Do the shards that are left, and keep each when it is done; what was written is read back, and that is what counts."""
    with closing(done_shards(folder, shards, work, job, engine)) as done:
        for shard in done:
            part = work.load(folder.file(shard.name + work.ending), shard, job)
            assert part is not None, f"{shard.name} was written and cannot be read back"
            yield shard, part


def done_shards(
    folder: JobFolder,
    shards: Sequence[Shard],
    work: ShardWork[Part],
    job: str,
    engine: ShardEngine,
    remake: Remake[Part] | None = None,
) -> Generator[Shard, None, None]:
    """Do the shards that are left; each is kept, with the digest that its writer found, and not read here."""
    task = ShardTask(folder.shards, work, job)

    def forked() -> Task:
        folder.leave()  # the lock must end with this process, not with its workers
        return task

    elsewhere = None if remake is None else partial(_remade, folder.shards.resolve(), remake.make, job)
    spawns = elsewhere is not None and remake is not None and remake.from_files
    passage = Passage("spawn", elsewhere, elsewhere) if spawns and elsewhere else Passage("fork", forked, elsewhere)
    with closing(engine.run(shards, task, passage)) as done:
        for shard, told in done:
            folder.note(shard.name + work.ending, **told)
            yield shard


def _remade(shards: Path, make: Callable[[], ShardWork[Any]], job: str) -> Task:
    """The task in another process, perhaps on another machine, which must see the folder."""
    found = read_manifest(shards.parent)
    if found is None or found["key"] != job:
        raise FileError(
            f"{socket.gethostname()} does not see the job in {shards.parent}. Use a folder that all workers share."
        )
    return ShardTask(shards, make(), job)
