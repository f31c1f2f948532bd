"""Job: what `ew.jobs.open` returns. The explanations of a folder, read shard by shard when they are looked at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from edgewise.archives import require
from edgewise.arguments import shown, whole_number
from edgewise.arrays import plain_index, positions_of
from edgewise.contract import checked
from edgewise.errors import FileError, InputError, PositionError, SettingError, missing_extra
from edgewise.files import digest_of, is_file, is_folder
from edgewise.folder_lock import owner_of
from edgewise.inner_paths import inside
from edgewise.jobs.digests import read_index
from edgewise.jobs.explanation_job import failures, good_positions
from edgewise.jobs.job_folder import INDEX, finished_files, journal_of, read_manifest, shards_of
from edgewise.jobs.journal import Journal
from edgewise.jobs.plan import Shard, read_shards
from edgewise.results.explanation import Explanation
from edgewise.results.explanation_set import MARKS, ExplanationSet
from edgewise.results.score_table import pyarrow
from edgewise.results.storage import load_part
from edgewise.text import duration

_ENDING = ".parquet"
_KEPT = 4  # shards in memory


class JobStatus(NamedTuple):
    """How far a job is."""

    targets: int
    done: int
    """Targets whose shards are finished, those that failed among them."""
    failed: int
    running: str | None
    """Who works on it, in words; None if nobody does."""
    rate: float
    """Targets a second, of those that were done so far; 0 if none was."""
    seconds_left: float | None
    """At that rate; None if nothing is known yet."""

    def __str__(self) -> str:
        left = "" if not self.seconds_left else f", about {duration(self.seconds_left)} left"
        failed = f", {self.failed} failed" if self.failed else ""
        who = f", worked on by {self.running}" if self.running else ""
        return f"{self.done} of {self.targets} targets done{failed}, {self.rate:.3g} a second{left}{who}"


@dataclass(frozen=True, eq=False)
class Job:
    """The explanations of a job, in the order of its index: `len(job)`, `job[3]`, `job.of(42)`, `for why in job`.

    Shards are read when they are looked at, and prove themselves then. A target that is not done yet, or that failed, raises
    `InputError`; `job.status` counts them, `job.failed` says why.
    """

    path: Path
    index: Tensor
    """`[T]`: the targets; `[T, 2]`: the ends of links."""
    shards: tuple[Shard, ...]
    key: str
    method: str
    level: str

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, position: int) -> Explanation:
        """The explanation of the target at a position."""
        position = whole_number("position", position, error=InputError, such_as=0)
        if not -len(self) <= position < len(self):
            raise PositionError(
                f"Position {position} is outside the {len(self)} targets. Use .of({position}) for a node."
            )
        return self._at(position % len(self))

    def __iter__(self) -> Iterator[Explanation]:
        return (self._at(position) for position in range(len(self)))

    @checked
    def of(self, index: Any) -> Explanation:
        """The explanation of the node or graph with that number, or of a link, a pair; of a typed graph `("paper", 3)`."""
        typed = isinstance(index, tuple) and len(index) == 2 and isinstance(index[0], (str, tuple))
        found = positions_of(self.index, self._number(index) if typed else index)
        if not found:
            some = plain_index(self.index[:5])
            raise InputError(f"{shown(index)} is not among the {len(self)} targets ({some} …) of this job.")
        return self._at(found[0])

    def _number(self, index: tuple[Any, Any]) -> Any:
        """A target of a typed graph as a number, or of a link a pair of numbers, of the union of its types."""
        parts = (self.part(shard) for shard in self.shards)
        types = next((part.types for part in parts if part is not None), None)
        return index if types is None else types.number(index)

    def _at(self, position: int) -> Explanation:
        shard = self.shards[int(np.searchsorted(self._begins, position, side="right")) - 1]
        part = self.part(shard)
        if part is None:
            raise InputError(f"Position {position} is not done yet: {self.status}. Run the job again to go on.")
        failed = failures(shard, part.settings)
        if position in failed:
            raise InputError(f"Position {position} failed: {failed[position]} Use retry to try it again.")
        return part[int((good_positions(shard, part.settings) == position).nonzero()[0])]

    @cached_property
    def _begins(self) -> np.ndarray:
        """`[shards]`: the position of the first target of each."""
        return np.array([shard.begin for shard in self.shards], dtype=np.int64)

    def part(self, shard: Shard) -> ExplanationSet | None:
        """The explanations of a shard; None if it is not done."""
        path = self._file(shard)
        digest = _digests(journal_of(self.path).path).get(path.name)
        if digest is None or not is_file(path):
            return None
        part = _read(path.resolve(), digest, self.key, _state(path))
        try:
            fits = torch.equal(part.index, self.index[good_positions(shard, part.settings)])
        except FileError as error:
            raise _altered(path) from error
        if not fits:
            raise _altered(path)
        return part

    def _file(self, shard: Shard) -> Path:
        return inside(shards_of(self.path), f"{shard.name}{_ENDING}")

    @property
    def failed(self) -> dict[Any, str]:
        """The targets that failed, and why."""
        parts = [(shard, part) for shard in self.shards if (part := self.part(shard)) is not None]
        return {
            plain_index(self.index[position].unsqueeze(0))[0]: reason
            for shard, part in parts
            for position, reason in failures(shard, part.settings).items()
        }

    @property
    def status(self) -> JobStatus:
        """How far the job is; it may be running elsewhere."""
        lines = {line["file"]: line for line in journal_of(self.path) if finished_files([line])}
        done = [shard for shard in self.shards if f"{shard.name}{_ENDING}" in lines]
        count = sum(map(len, done))
        said = [lines[f"{shard.name}{_ENDING}"] for shard in done]
        timed = [
            (len(shard), _amount(line, "seconds") / max(_amount(line, "workers"), 1))
            for shard, line in zip(done, said, strict=True)
        ]
        seconds = sum(spent for _, spent in timed if spent)
        rate = sum(size for size, spent in timed if spent) / seconds if seconds else 0.0
        left = (len(self) - count) / rate if rate else None
        failed = int(sum(_amount(line, "failed") for line in said))
        return JobStatus(len(self), count, failed, owner_of(self.path), rate, left)

    @checked
    def to_frame(self, *, columns: Sequence[str] | None = None, filters: Any = None) -> Any:
        """The scores of all finished targets as a pandas data frame, a row each, as `ExplanationSet.to_frame` gives it.

        `columns` and `filters` (`[("index", "==", 42)]`, as pyarrow takes them) are looked at while reading, so that nothing
        else is read. `position` counts in the whole job. Needs `edgewise[table]`.
        """
        arrow = pyarrow()
        try:
            import pandas
        except ImportError as error:
            raise missing_extra("pandas", "table", "to_frame()") from error
        frames = []
        wanted = None if columns is None else list(dict.fromkeys([*columns, "position"]))
        for shard in self.shards:
            part = self.part(shard)  # it proves itself
            if part is None:
                continue
            try:
                frame = arrow.parquet.read_table(self._file(shard), columns=wanted, filters=filters).to_pandas()
            except OSError as error:
                raise _altered(self._file(shard)) from error
            except Exception as error:  # whatever pyarrow makes of them, or a stranger's object raises
                raise SettingError(
                    f"`filters` must be like [('index', '==', 42)] and `columns` names of columns: {error}."
                ) from error
            frame["position"] = good_positions(shard, part.settings).numpy()[frame["position"].to_numpy()]
            for mark in MARKS:
                if told := part.settings.get(mark):
                    frame[mark] = np.isin(self.index.numpy()[frame["position"]], [int(one) for one in told])
            frames.append(frame if columns is None else frame[list(columns)])
        return pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame(columns=columns)

    @checked
    def page(
        self,
        path: str | Path,
        *,
        other: "Job | str | Path | None" = None,
        first: int = 30,
        class_names: Any = None,
        node_names: Any = None,
        labels: Any = None,
        title: str | None = None,
    ) -> Path:
        """Write one HTML file about the whole job, as far as it is done; it needs no network and no script.

        It counts classes, shows how completeness and the size of explanations are distributed and which edges and nodes explain
        most targets, and lists the targets to look at first, each with its explanation.

        Args:
            path: The name of the file, such as `"job.html"`.
            other: Another job about the same targets, at the same level: where the two disagree is where to look first.
            first: How many targets to look at first are shown with their explanations.
            class_names: A name for every class, or `{class: name}`.
            node_names: `{node: text}` or a text for every node; of a typed graph by node type.
            labels: The label of every node, or for a graph task of every graph: where the model predicts another class is
                where to look, too. Only for jobs that explain the predicted class.
            title: The heading.

        >>> import tempfile
        >>> from edgewise.examples import path_model
        >>> from edgewise.jobs import run
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run(*path_model(gains=[2.0, 3.0]), out=f"{folder}/job").page(f"{folder}/job.html").name
        'job.html'
        """
        from edgewise.jobs.summary.job_summary import write_job_page

        return write_job_page(self, Path(path), other, first, class_names, node_names, labels, title)

    def __repr__(self) -> str:
        return f"Job({str(self.path)!r}, {self.method}, {self.level} level: {self.status})"


def _digests(journal: Path) -> dict[str, str]:
    """The finished files of a job and their digests; the journal is read again when it has changed."""
    return _digests_at(journal.resolve(), _state(journal)) if is_file(journal) else {}


def _state(path: Path) -> tuple[int, ...]:
    """What changes when a file does."""
    try:
        state = path.stat()
    except OSError as error:  # gone in this moment
        raise _altered(path) from error
    return state.st_ino, state.st_size, state.st_mtime_ns


@lru_cache(maxsize=_KEPT)
def _digests_at(journal: Path, _state: tuple[int, ...]) -> dict[str, str]:
    return finished_files(Journal(journal))


@lru_cache(maxsize=_KEPT)
def _read(path: Path, digest: str, key: str, _state: tuple[int, ...]) -> ExplanationSet:
    """A shard, if it is the one that the journal knows."""
    part, owner = load_part(path) if digest_of(path) == digest else (None, None)
    if owner != key or not isinstance(part, ExplanationSet):
        raise _altered(path)
    return part


def _altered(path: Path) -> FileError:
    return FileError(f"{path} is not what was written. Run the job again: it is then computed anew.")


def _amount(line: dict[str, Any], name: str) -> float:
    """A number that a line of the journal says, from 0 on; 0 if it says something else."""
    found = line.get(name, 0)
    return found if isinstance(found, (int, float)) and 0 <= found < 2**53 else 0


def open_job(path: str | Path) -> Job:
    """Open the folder of a job: `ew.jobs.open`."""
    path = Path(path)
    found = read_manifest(path) if is_folder(path) else None
    if found is None or not is_file(inside(path, INDEX)):
        raise FileError(
            f"{path} is not the folder of a job. Make one with ew.jobs.run(model, data, out={str(path)!r})."
        )
    try:
        index = read_index(path, found["identity"].get("index"))
        shards = tuple(read_shards(found["shards"], len(index)))
        plain = all(isinstance(found.get(name), str) for name in ("method", "level"))
        require(plain and index.dim() in (1, 2), "its manifest lacks something")
    except FileError as error:
        raise FileError(f"{path} cannot be read as a job: {error}. Run the job again.") from error
    return Job(path, index, shards, found["key"], found["method"], found["level"])
