"""A run of shards: those that are finished are read and checked, the others are done by an engine and kept as they finish.

`ShardWork` is what a user of jobs brings: how a shard is computed, written, and read back. `ShardEngine` is where that happens;
`Here`, in this process, is the one that there is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol, TypeVar

from edgewise.arguments import one_of
from edgewise.jobs.job_folder import JobFolder
from edgewise.jobs.plan import Shard

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

    def run(self, shards: Sequence[Shard], do: Callable[[Shard], None]) -> Iterator[Shard]:
        """Do every shard, in any order; each is yielded when it is done."""


class Here:
    """One shard after the other, in this process."""

    def run(self, shards: Sequence[Shard], do: Callable[[Shard], None]) -> Iterator[Shard]:
        """Do the shards in order."""
        for shard in shards:
            do(shard)
            yield shard


ENGINES: Mapping[str, Callable[[], ShardEngine]] = {"here": Here}


def engine_named(name: str) -> ShardEngine:
    """The engine of that name.

    >>> type(engine_named("here")).__name__
    'Here'
    """
    return ENGINES[one_of("engine", name, ENGINES)]()


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
    folder: JobFolder, shards: Sequence[Shard], work: ShardWork[Part], job: str, engine: ShardEngine
) -> Iterator[tuple[Shard, Part]]:
    """Do the shards that are left, and keep each when it is done; what was written is read back, and that is what counts."""

    def do(shard: Shard) -> None:
        start = perf_counter()
        part = work.compute(shard)
        seconds = round(perf_counter() - start, 3)
        told = {"seconds": seconds, **work.describe(part)}
        folder.keep(shard.name + work.ending, lambda path: work.save(part, path, job), **told)

    for shard in engine.run(shards, do):
        part = work.load(folder.shards / (shard.name + work.ending), shard, job)
        assert part is not None, f"{shard.name} was written and cannot be read back"
        yield shard, part
