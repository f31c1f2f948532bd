"""A run of `explain` or `walks`: read everything, work in pieces, write the result and the page.

`Session.start` reads. `work_through` runs a function on slice after slice of the targets and hands back a `Work`: the
pieces that were finished, and what stopped the rest; `joined` makes one `ExplanationSet` of the pieces. `Session.finish`
writes the result, or keeps what is finished if the work stopped early. Loaded when a command runs: it needs torch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Generic, TypeVar

import torch

from edgewise.cli.options import CommonOptions, story_of
from edgewise.cli.output import Destination, Output
from edgewise.cli.read.cli_question import CliQuestion, read_question
from edgewise.cli.terminal import SHOWN_TARGETS, Interrupted, Voice
from edgewise.errors import EdgewiseError
from edgewise.results.entries import Entries
from edgewise.results.explanation import Settings
from edgewise.results.explanation_set import ExplanationSet

Result = TypeVar("Result")

PAGE_TARGETS = 50
"""How many targets a page of the command line is about: more are too many to look at."""
RESUMABLE = ("explain",)
"""Commands that go on from the parts that an earlier run has kept."""
_FIRST = 8  # targets in the first piece
_SECONDS = 2.0  # a piece that takes less is too short to be worth a look
_PAYS = 1.2  # many targets share a pass: larger pieces are taken as long as they do so much more in the same time


# --- Work in pieces -----------------------------------------------------------------------------------------------------


@dataclass
class Work(Generic[Result]):
    """Pieces that were finished, and what stopped the rest."""

    parts: list[Result]
    done: int
    """Targets in `parts`."""
    seconds: float
    stopped: BaseException | None = None
    """Ctrl-C, or the error; `None` if everything is finished."""


def work_through(
    voice: Voice, title: str, total: int, work: Callable[[slice], Result], earlier: Sequence[Result] = (), done: int = 0
) -> Work[Result]:
    """Do all pieces; an interruption or an error ends it early and is handed back with what is finished.

    Args:
        voice: Shows the progress.
        title: What is done, for the progress.
        total: The number of targets.
        work: Does the targets of one slice.
        earlier: Pieces that an earlier run has finished.
        done: The number of targets in `earlier`.
    """
    found = Work(list(earlier), done, 0.0)
    start = perf_counter()
    try:
        with voice.progress(title, total, done) as tell:

            def told(finished: int) -> None:
                found.done = finished
                tell(finished)

            for piece in in_pieces(total, work, told, done):
                found.parts.append(piece)
    except (KeyboardInterrupt, Exception) as stop:
        found.stopped = stop
    found.seconds = round(perf_counter() - start, 3)
    return found


def in_pieces(
    total: int, work: Callable[[slice], Result], tell: Callable[[int], None], done: int = 0
) -> Iterator[Result]:
    """`work` on slice after slice of `total` targets; `tell` is called with how many are done.

    The first piece is small, so that progress shows early. A piece that took less than two seconds is followed by one four
    times as large; a slower one by one twice as large, as long as the larger piece did more targets per second.
    """
    size, rate = _FIRST, 0.0
    while done < total:
        start = perf_counter()
        end = min(done + size, total)
        yield work(slice(done, end))
        done = end
        tell(done)
        seconds = max(perf_counter() - start, 1e-6)
        before, rate = rate, size / seconds
        if seconds < _SECONDS:
            size *= 4
        elif rate > _PAYS * before:
            size *= 2


def joined(sets: Sequence[ExplanationSet]) -> ExplanationSet:
    """The pieces of one question as one set, as if it had been asked at once.

    Nodes and links share one graph, so the first piece's is kept; graph tasks bring the graphs of every piece. If the pieces
    were computed in different ways, `settings["way"]` lists all of them.
    """
    first = sets[0]
    if len(sets) == 1:
        return first
    ways = dict.fromkeys(way for one in sets for way in str(one.settings.get("way", "")).split(", "))
    shared = first.settings.get("task", "node") != "graph"
    return replace(
        first,
        index=torch.cat([one.index for one in sets]),
        target=torch.cat([one.target for one in sets]),
        value=torch.cat([one.value for one in sets]),
        graphs=first.graphs if shared else tuple(graph for one in sets for graph in one.graphs),
        graph_types=tuple(types for one in sets for types in one.graph_types),
        edges=_joined([one.edges for one in sets], sets),
        own=_joined([one.own for one in sets], sets),
        own_missing=tuple(sorted({layer for one in sets for layer in one.own_missing})),
        errors=_joined([one.errors for one in sets], sets),
        settings=Settings({**first.settings, "way": ", ".join(ways)}),
    )


def _joined(parts: Sequence[Entries | None], sets: Sequence[ExplanationSet]) -> Entries | None:
    """The stored entries of all pieces, row after row; a piece without such entries still has its (empty) rows.

    For example, pieces with 2 and 1 targets, the second one without entries: the counts per row are `[3, 1, 0]`, and the
    rows start at `[0, 3, 4, 4]`.
    """
    known = [part for part in parts if part is not None]
    if not known:
        return None
    counts = [
        torch.zeros(len(one), dtype=torch.long) if part is None else part.start.diff()
        for part, one in zip(parts, sets, strict=True)
    ]
    start = torch.cat([torch.zeros(1, dtype=torch.long), torch.cat(counts).cumsum(0)])
    return Entries.of_rows(start, torch.cat([part.place for part in known]), torch.cat([part.score for part in known]))


# --- Around the work ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Session:
    """What was read, and where the result goes."""

    question: CliQuestion
    voice: Voice
    story: dict[str, Any]
    """What was asked, ready for JSON."""
    destination: Destination | None
    """Where `--out` goes; `None` without it."""
    page: Path | None

    @classmethod
    def start(cls, command: str, asked: CommonOptions, voice: Voice, output: Output, how: dict[str, Any]) -> "Session":
        """Read everything; `how` is what this command asks besides the shared options."""
        question = read_question(asked, voice)
        story, total = story_of(asked, **how), len(question.index)
        destination = Destination(output.out, command, story, question.hashes, total) if output.out else None
        return cls(question, voice, story, destination, output.page)

    @property
    def targets(self) -> int:
        """How many targets are worked on: all of them, or only those that will be shown if nothing is written."""
        total = len(self.question.index)
        everyone = self.destination is not None or self.question.asked.json
        return total if everyone else min(total, SHOWN_TARGETS)

    def finish(self, work: Work[Any], save: Callable[[Path], None], paged: dict[str, Any]) -> dict[str, Any]:
        """Write the result and the page, and say so; work that stopped early ends here with its exception.

        Args:
            work: The finished pieces.
            save: Writes them to a path.
            paged: Arguments of `ew.write_page` besides the shared ones.

        Returns:
            What the manifest says, for `--json`.
        """
        if work.stopped is not None:
            end_early(work, self.destination, save)
        written: dict[str, Any] = {"seconds": work.seconds}
        if self.destination is not None:
            written |= self.destination.write(save, seconds=work.seconds)
            self.voice.note(f"Written: {self.destination.path}")
        if self.page is not None:
            settings = page_settings(self.story, self.question)
            written["page"] = str(write_page(self.question, self.page, self.voice, settings, **paged))
            self.voice.note(f"Written: {self.page}")
        return written


def end_early(work: Work[Any], destination: Destination | None, save: Callable[[Path], None]) -> None:
    """Keep what is finished, and raise what stopped the work with a sentence about what was kept."""
    stop, kept = work.stopped, ""
    assert stop is not None
    if destination is not None and work.done:
        path = destination.keep(save, work.done, seconds=work.seconds)
        resumes = destination.command in RESUMABLE and destination.kept() is not None
        again = " The same command resumes from there." if resumes else ""
        kept = f" {work.done} of {destination.total} targets are finished and kept in {path}.{again}"
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
        node_names=graphs.node_names,
        class_names=graphs.class_names,
        settings=settings,
        seed=asked.seed,
        **shared,
        **options,
    )
    return written
