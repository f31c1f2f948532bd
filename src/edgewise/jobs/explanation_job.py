"""A job of explanations in a folder of its own: planned, worked off, and gone on with, by whoever brings the same question.

`JobQuestion` is what is asked, `work_off` does what is left of it. A target that the model fails on fails alone: its shard says
why, and `retry` tries again. A folder with another question is refused, with what differs.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.archives import require
from edgewise.errors import FileError, ModelError
from edgewise.files import write_whole
from edgewise.inner_paths import inside
from edgewise.jobs.digests import digest_of_index, read_index
from edgewise.jobs.explanation_work import ExplanationWork
from edgewise.jobs.job_folder import INDEX, JobFolder, differences, key_of, refuse_other_folder
from edgewise.jobs.plan import Shard, plan, read_shards, spread
from edgewise.jobs.shard_run import Remake, ShardEngine, done_shards, finished
from edgewise.random_numbers import one_thread
from edgewise.results.concatenation import joined
from edgewise.results.explanation import Settings
from edgewise.results.explanation_set import ExplanationSet
from edgewise.results.score_table import pyarrow

FAILED = "failed"
"""The setting of a shard that says which of its targets failed, by position, and why."""
_FAILURES = (ModelError, RuntimeError, ArithmeticError, MemoryError)
_FEW = 3


@dataclass(frozen=True, eq=False)
class JobQuestion:
    """What a job asks."""

    identity: Mapping[str, Any]
    """What must be the same for the job to go on, ready for JSON."""
    index: Tensor
    """The targets, `[T]` or `[T, 2]`."""
    costs: Tensor
    """`[T]`: what each of them costs, about."""
    method: str
    level: str
    explain: Callable[[slice], ExplanationSet]
    """Explains some of the targets."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """What the manifest also says, which may differ when the job goes on."""
    remake: Remake[ExplanationSet] | None = None
    """Makes the work again in a fresh process; None: it gets into other processes by fork alone."""


def work_off(
    out: Path, asked: JobQuestion, engine: ShardEngine, tell: Callable[[int, int], None], *, retry: bool = False
) -> None:
    """Do what is left of a job, shard by shard; `tell` is called with how many targets are done, of how many.

    Raises:
        FileError: If the folder holds something else, or another process works there.
    """
    pyarrow()  # shards are tables
    refuse_other_folder(out)
    engine.check(None if asked.remake is None else asked.remake.make)
    with JobFolder(out) as folder:
        identity = {**asked.identity, "index": digest_of_index(asked.index)}
        found = folder.manifest
        if found is not None and (differing := differences(found["identity"], identity)):
            more = f" and {len(differing) - _FEW} more" if len(differing) > _FEW else ""
            raise FileError(
                f"{out} holds a job that differs: {'; '.join(differing[:_FEW])}{more}. Use another folder, or ask the same."
            )
        shards = plan("shard", asked.costs) if found is None else _planned(out, found, len(asked.index))
        _begin(folder, identity, shards, asked)
        _work(folder, shards, asked, engine, tell, retry=retry)


def _begin(folder: JobFolder, identity: Mapping[str, Any], shards: list[Shard], asked: JobQuestion) -> None:
    """Write down what the job is, and its targets."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"method": asked.method, "level": asked.level, "targets": len(asked.index), "threads": 1, "begun": since}
    folder.begin(identity, [shard.plain() for shard in shards], **about, **asked.more)
    try:
        read_index(folder.path, identity["index"])
    except FileError:  # not there yet, or not whole: it follows from the question
        path = inside(folder.path, INDEX)
        write_whole(path, lambda file: np.save(file, asked.index.numpy(), allow_pickle=False))


def _planned(out: Path, found: Mapping[str, Any], targets: int) -> list[Shard]:
    """The shards of a manifest, checked."""
    try:
        return read_shards(found["shards"], targets)
    except FileError as error:
        raise FileError(f"{out} cannot be gone on with: {error}. Use another folder.") from error


def _work(
    folder: JobFolder,
    shards: list[Shard],
    asked: JobQuestion,
    engine: ShardEngine,
    tell: Callable[[int, int], None],
    *,
    retry: bool,
) -> None:
    key = key_of({**asked.identity, "index": digest_of_index(asked.index)})
    work = TolerantWork(asked.explain, asked.index, asked.method, asked.level, ".parquet")
    kept = finished(folder, shards, work, key)
    done = {shard.name for shard, part in kept if not (retry and part.settings.get(FAILED))}
    count = sum(len(shard) for shard in shards if shard.name in done)
    tell(count, len(asked.index))
    left = [one for one in shards if one.name not in done]
    with closing(done_shards(folder, left, work, key, engine, asked.remake)) as doing:
        for shard in doing:
            count += len(shard)
            tell(count, len(asked.index))
    known = folder.known()
    folder.complete({shard.name: known[shard.name + work.ending] for shard in shards})


# --- Targets that fail --------------------------------------------------------------------------------------------------


class TolerantWork(ExplanationWork):
    """Shards of explanations in which a target may fail without the others."""

    def compute(self, shard: Shard) -> ExplanationSet:
        """Explain the targets of a shard; those that fail are left out, and `settings["failed"]` says why."""
        with one_thread():  # so that a shard has the same bytes wherever it is done
            parts, failed = _attempt(self.explain, shard.begin, shard.end)
            found = joined(parts) if parts else self._none(failed[str(shard.begin)])
        return replace(found, settings=Settings({**found.settings, FAILED: failed})) if failed else found

    def _none(self, reason: str) -> ExplanationSet:
        """No explanations, with the graph and the settings that some target elsewhere has; refused if none is found."""
        for begin in spread(len(self.index)):
            parts, _ = _attempt(self.explain, begin, begin + 1)
            if parts:
                return parts[0][[]]
        raise ModelError(f"The model fails on a whole shard, and on targets all over the job. The first one: {reason}")

    def describe(self, part: ExplanationSet) -> dict[str, Any]:
        """How many targets failed."""
        return {FAILED: len(part.settings.get(FAILED, {}))}

    def _of_shard(self, part: ExplanationSet, shard: Shard) -> bool:
        return torch.equal(part.index, self.index[good_positions(shard, part.settings)])


def failures(shard: Shard, settings: Mapping[str, Any]) -> dict[int, str]:
    """The positions of a shard's targets that failed, and why.

    >>> failures(Shard("shard-00000", 4, 8), {"failed": {"5": "NaN"}})
    {5: 'NaN'}
    """
    told = settings.get(FAILED, {})
    known = {str(position) for position in range(shard.begin, shard.end)}
    require(
        isinstance(told, Mapping) and set(told) <= known, "what it says about targets that failed is not about its own"
    )
    return {int(position): str(reason) for position, reason in told.items()}


def good_positions(shard: Shard, settings: Mapping[str, Any]) -> Tensor:
    """The positions of a shard's targets that did not fail.

    >>> good_positions(Shard("shard-00000", 4, 8), {"failed": {"5": "NaN"}})
    tensor([4, 6, 7])
    """
    failed = set(failures(shard, settings))
    return torch.tensor([one for one in range(shard.begin, shard.end) if one not in failed], dtype=torch.long)


def _attempt(
    explain: Callable[[slice], ExplanationSet], begin: int, end: int
) -> tuple[list[ExplanationSet], dict[str, str]]:
    """Explain a range of targets; if that fails, its halves, down to the targets that fail by themselves."""
    try:
        return [explain(slice(begin, end))], {}
    except _FAILURES as error:
        if end - begin == 1:
            return [], {str(begin): f"{type(error).__name__}: {error}"}
    middle = (begin + end) // 2
    first, second = _attempt(explain, begin, middle), _attempt(explain, middle, end)
    return first[0] + second[0], first[1] | second[1]
