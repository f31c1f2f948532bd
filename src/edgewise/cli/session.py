"""A run of `explain` or `walks`: read everything, work in shards, write the results and the page as one step.

`started` reads and opens the job beside the result (`edgewise.jobs`); `Session.work` goes through the shards of one method:
those that an earlier run has finished are read, the others are done and kept as they finish; `Session.finish` writes. Whatever
ends it early (Ctrl-C, SIGTERM, an error, a full disk) leaves finished shards where the same command finds them. Without
`--out` there is no job, and shards are only how progress shows. Loaded when a command runs: it needs torch.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from edgewise.cli.guard import Interrupted
from edgewise.cli.options import CommonOptions, story_of
from edgewise.cli.output import Destination, Output, Save, files_of, hidden_job
from edgewise.cli.read.cli_question import CliQuestion, read_question
from edgewise.cli.terminal import SHOWN_TARGETS, Voice
from edgewise.errors import EdgewiseError
from edgewise.jobs.digests import digest_of_index
from edgewise.jobs.job_folder import JobFolder, differences, key_of
from edgewise.jobs.plan import Shard, costs_of, plan
from edgewise.jobs.publication import copy
from edgewise.jobs.shard_run import Here, ShardWork, finished, run_shards

Part = TypeVar("Part")

PAGE_TARGETS = 50
"""How many targets a page of the command line is about: more are too many to look at."""
_PAGE = "page.html"
_SAMPLE, _FEW = 200, 5
"""Targets whose predictions are compared with the labels before the work; of a graph on disk, a few."""


@dataclass
class Session:
    """What was read, where the result goes, and how far the work is."""

    question: CliQuestion
    voice: Voice
    story: dict[str, Any]
    """What was asked, ready for JSON."""
    destination: Destination | None
    """Where `--out` goes; `None` without it."""
    page: Path | None
    paged: dict[str, Any]
    """Arguments of `ew.write_page` that only concern a page."""
    shards: Mapping[str, Sequence[Shard]]
    """The shards of each method, by its name."""
    folder: JobFolder | None = None
    """The job beside the result; `None` without one."""
    key: str = ""
    """The job's own."""
    begun: float = field(default_factory=perf_counter)

    @property
    def total(self) -> int:
        """Targets of all methods together."""
        return sum(len(shard) for some in self.shards.values() for shard in some)

    @property
    def seconds(self) -> float:
        """How long it took so far."""
        return round(perf_counter() - self.begun, 3)

    def work(self, method: str, title: str, work: ShardWork[Part]) -> list[Part]:
        """The parts of a method, shard by shard; those that are finished are not done again."""
        shards = self.shards[method]
        known = () if self.folder is None else finished(self.folder, shards, work, self.key)
        parts = {shard.name: part for shard, part in known}
        earlier = sum(len(shard) for shard in shards if shard.name in parts)
        total = sum(map(len, shards))
        if earlier and self.folder is not None:
            self.voice.note(f"Resuming from {self.folder.path}: {title}, {earlier} of {total} targets are finished.")
        left = [shard for shard in shards if shard.name not in parts]
        if left:
            with self.voice.progress(title, total, earlier) as tell:
                for shard, part in self._run(left, work):
                    parts[shard.name] = part
                    earlier += len(shard)
                    tell(earlier)
        return [parts[shard.name] for shard in shards]

    def _run(self, shards: Sequence[Shard], work: ShardWork[Part]) -> Iterator[tuple[Shard, Part]]:
        if self.folder is None:
            return ((shard, work.compute(shard)) for shard in shards)
        return run_shards(self.folder, shards, work, self.key, Here())

    def finish(self, saves: Mapping[str, Save], settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Write the results and the page, and say so.

        Args:
            saves: What writes the result of each method, by its name.
            settings: Those of the methods, for the page.

        Returns:
            What the manifest says, for `--json`.
        """
        written: dict[str, Any] = {"seconds": self.seconds}
        paged = {**self.paged, **(settings or {})}
        if self.destination is None:
            if self.page is not None:
                self._write_page(self.page, paged)
        else:
            assert self.folder is not None
            beside = {} if self.page is None else {self.page: self._kept_page(self.folder, paged)}
            written = self.destination.publish(self.folder, saves, beside, {"seconds": self.seconds})
            self.folder.remove()
            for file in files_of(self.destination.path, list(saves)).values():
                self.voice.note(f"Written: {file}")
        if self.page is not None:
            written["page"] = str(self.page)
            self.voice.note(f"Written: {self.page} (open it in a browser)")
        return written

    def _kept_page(self, folder: JobFolder, paged: dict[str, Any]) -> Save:
        """What copies the page to its place; it is a part of the job, and not made again if it is there."""
        if not folder.is_kept(_PAGE, folder.known()):
            folder.keep(_PAGE, lambda path: self._write_page(path, paged))
        return lambda path: copy(folder.shards / _PAGE, path)

    def _write_page(self, path: Path, paged: dict[str, Any]) -> None:
        write_page(self.question, path, self.voice, page_settings(self.story, self.question), **paged)


@contextmanager
def started(
    command: str, asked: CommonOptions, voice: Voice, output: Output, how: dict[str, Any], paged: dict[str, Any]
) -> Iterator[Session]:
    """Read everything and open the job.

    Args:
        command: The name of the command.
        asked: The shared options.
        voice: Tells what is going on.
        output: The files to write; they have been claimed.
        how: What this command asks besides the shared options; part of the manifest.
        paged: Arguments of `ew.write_page` that only concern a page.
    """
    question = read_question(asked, voice)
    story, index = story_of(asked, **how), question.index
    everyone = output.out is not None or asked.json
    index = index if everyone else index[:SHOWN_TARGETS]
    costs = costs_of(question.graphs.data, index, question.graphs.task)
    shards = {name: plan(name, costs) for name in output.methods or [command]}
    tell_plan(question, voice, [(name, how["level"]) for name in output.methods] if "level" in how else [], len(index))
    destination = Destination(output.out, command, story, question.hashes, len(index)) if output.out else None
    session = Session(question, voice, story, destination, output.page, paged, shards)
    with ExitStack() as stack:
        try:
            if destination is not None:
                session.folder = stack.enter_context(JobFolder(hidden_job(destination.path)))
                session.key = _begin(session.folder, destination, session)
            yield session
        except (KeyboardInterrupt, Exception) as stop:
            _end_early(session, stop)


def tell_plan(question: CliQuestion, voice: Voice, asked: Sequence[tuple[str, str]], explained: int) -> None:
    """Before the work: what is asked, how far predictions agree with the labels, and what it will cost."""
    if voice.quiet:
        return
    import edgewise as ew

    stored = isinstance(question.graphs.data, ew.GraphStore)  # each target is a part of a large graph
    some = slice(min(len(question.index), _FEW if stored else _SAMPLE))
    posed = ew.Question(
        question.model,
        question.graphs.data,
        question.targets(some),
        target=question.classes_of(some),
        **question.options,
    )
    for line in posed.brief(asked, len(question.index), explained):
        voice.note(line)


def _begin(folder: JobFolder, destination: Destination, session: Session) -> str:
    """Make the folder that of this question; work on another one is given up, and a note says so. The key of the job."""
    identity = {**destination.identity, "index": digest_of_index(session.question.index)}
    identity |= {} if session.page is None else {"page": session.paged}
    found = folder.manifest
    if found is not None and (differing := differences(found["identity"], identity)):
        session.voice.note(f"Parts of another question in {folder.path} are given up: {differing[0]}.")
    folder.begin(identity, [shard.plain() for some in session.shards.values() for shard in some])
    return key_of(identity)


def _end_early(session: Session, stop: BaseException) -> None:
    """Raise what stopped the work, with a sentence about what is kept; a job in which nothing is finished is removed."""
    kept, folder = "", session.folder
    if folder is not None and folder.has_files():  # what counts is what is on the disk: the stop may have come any time
        done = {Path(name).stem for name in folder.known()}
        count = sum(len(shard) for some in session.shards.values() for shard in some if shard.name in done)
        kept = f" {count} of {session.total} targets are finished and kept in {folder.path}."
        kept += " The same command resumes from there."
    elif folder is not None:
        folder.remove()
    if isinstance(stop, KeyboardInterrupt):
        raise Interrupted(f"Stopped.{kept or ' Nothing was written.'}") from stop
    if isinstance(stop, EdgewiseError) and kept:
        raise type(stop)(f"{stop}{kept}") from stop
    raise stop


def page_settings(story: dict[str, Any], question: CliQuestion) -> dict[str, Any]:
    """The rows under "What made this page": what was asked, and the hashes of the files."""
    typed = {name.replace("_", " "): value for name, value in story.items() if value not in (None, {}, [])}
    return {**typed, **{f"SHA-256 of {name}": value for name, value in question.hashes.items() if value}}


def write_page(question: CliQuestion, path: Path, voice: Voice, settings: dict[str, Any], **options: Any) -> Path:
    """Write the page about the first `PAGE_TARGETS` targets; `options` go to `ew.write_page`."""
    import edgewise as ew

    if len(question.index) > PAGE_TARGETS:
        voice.note(f"The page shows the first {PAGE_TARGETS} of {len(question.index)} targets.")
    classes = question.classes_of(slice(PAGE_TARGETS))
    classes = classes.tolist() if hasattr(classes, "tolist") else classes
    asked, graphs = question.asked, question.graphs
    shared = {name: value for name, value in question.options.items() if value not in (None, "logit")}
    written: Path = ew.write_page(
        path,
        question.model,
        graphs.data,
        question.targets(slice(PAGE_TARGETS)),
        target="predicted" if classes is None else classes,
        node_names=graphs.page_names,
        class_names=graphs.class_names,
        edge_texts=graphs.edge_texts or None,
        settings=settings,
        seed=asked.seed,
        **shared,
        **options,
    )
    return written
