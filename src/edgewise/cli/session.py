"""A run of `explain` or `walks`, before its work and after it: read; write, or keep what is finished."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Generic, TypeVar

import torch

from edgewise.cli import show
from edgewise.cli.exit_codes import Interrupted
from edgewise.cli.options import CommonOptions, question
from edgewise.cli.output import Destination, Output
from edgewise.cli.read.cli_question import CliQuestion, read_subject
from edgewise.cli.terminal import Voice
from edgewise.errors import EdgewiseError
from edgewise.results.explanation_set import Entries, ExplanationSet
from edgewise.results.settings import Settings

# --- What `explain` and `walks` have in common: pieces of work, an end that may come early, and a page -----------------


Result = TypeVar("Result")
PAGE_TARGETS = 50


def page_settings(story: dict[str, Any], subject: "CliQuestion") -> dict[str, Any]:
    """What a page says about its making: the question as it was typed, and the hashes."""
    typed = {name.replace("_", " "): value for name, value in story.items() if value not in (None, {}, [])}
    return {**typed, **{f"SHA-256 of {name}": value for name, value in subject.hashes.items() if value}}


@dataclass
class Work(Generic[Result]):
    """Pieces that were finished, and what stopped the rest."""

    parts: list[Result]
    done: int
    seconds: float
    stopped: BaseException | None = None


def work_through(
    voice: Voice, title: str, total: int, work: Callable[[slice], Result], earlier: Sequence[Result] = (), done: int = 0
) -> Work[Result]:
    """Every piece; an interruption or an error ends it early, and is handed back with what is finished."""
    found = Work(list(earlier), done, 0.0)
    start = time.perf_counter()
    try:
        with voice.progress(title, total, done) as tell:

            def told(finished: int) -> None:
                found.done = finished
                tell(finished)

            for piece in in_pieces(total, work, told, done):
                found.parts.append(piece)
    except (KeyboardInterrupt, Exception) as stop:
        found.stopped = stop
    found.seconds = round(time.perf_counter() - start, 3)
    return found


def end_early(work: Work[Any], destination: "Destination | None", save: Callable[[Path], None]) -> None:
    """Keep what is finished, say where, and end as it ended."""
    stop, kept = work.stopped, ""
    assert stop is not None
    if destination is not None and work.done:
        path = destination.keep(save, work.done, seconds=work.seconds)
        again = " The same command goes on from there." if destination.kept() else ""
        kept = f" {work.done} of {destination.total} targets are finished and kept in {path}.{again}"
    if isinstance(stop, KeyboardInterrupt):
        raise Interrupted(f"Stopped.{kept or ' Nothing was written.'}") from stop
    if isinstance(stop, EdgewiseError) and kept:
        raise type(stop)(f"{stop}{kept}") from stop
    raise stop


def write_page(subject: "CliQuestion", path: Path, voice: Voice, settings: dict[str, Any], **options: Any) -> Path:
    """The page about the first targets; more than some dozens are too many to look at."""
    import edgewise as ew

    if len(subject.index) > PAGE_TARGETS:
        voice.note(f"The page shows the first {PAGE_TARGETS} of {len(subject.index)} targets.")
    classes = subject.classes_of(slice(PAGE_TARGETS))
    classes = classes.tolist() if hasattr(classes, "tolist") else classes
    asked, graphs = subject.asked, subject.graphs
    written: Path = ew.write_page(  # type: ignore[attr-defined,unused-ignore]
        path,
        subject.model,
        graphs.data,
        subject.index[:PAGE_TARGETS].tolist(),
        target="predicted" if classes is None else classes,
        node_names=graphs.names,
        class_names=graphs.class_names,
        settings=settings,
        seed=asked.seed,
        device=asked.device,
        **{name: value for name, value in subject.options.items() if name != "device" and value not in (None, "logit")},
        **options,
    )
    return written


# --- The whole ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Session:
    """What was read, and where the result goes."""

    subject: CliQuestion
    voice: Voice
    story: dict[str, Any]
    destination: Destination | None
    page: Path | None

    @classmethod
    def start(cls, command: str, asked: CommonOptions, voice: Voice, output: Output, how: dict[str, Any]) -> "Session":
        """Read everything; `how` is what this command is asked besides."""
        subject = read_subject(asked, voice)
        story, total = question(asked, **how), len(subject.index)
        destination = Destination(output.out, command, story, subject.hashes, total) if output.out else None
        return cls(subject, voice, story, destination, output.page)

    @property
    def targets(self) -> int:
        """How many are worked on: all, or without a file to write them to only those that will be shown."""
        total = len(self.subject.index)
        everyone = self.destination is not None or self.subject.asked.json
        return total if everyone else min(total, show.SHOWN_TARGETS)

    def finish(self, work: Work[Any], save: Callable[[Path], None], paged: dict[str, Any]) -> dict[str, Any]:
        """Write the result, and the page with the options `paged`, and say so; work that stopped ends here."""
        if work.stopped is not None:
            end_early(work, self.destination, save)
        written: dict[str, Any] = {"seconds": work.seconds}
        if self.destination is not None:
            written |= self.destination.write(save, seconds=work.seconds)
            self.voice.note(f"Written: {self.destination.path}")
        if self.page is not None:
            settings = page_settings(self.story, self.subject)
            written["page"] = str(write_page(self.subject, self.page, self.voice, settings, **paged))
            self.voice.note(f"Written: {self.page}")
        return written


# --- Long work in pieces: progress in between, and what is finished survives an interruption ---------------------------


_FIRST = 8
_SECONDS = 2.0  # a piece that takes less is too short to be worth a look
_PAYS = 1.2  # many targets share a pass: larger pieces are taken as long as they do so much more in the same time


def in_pieces(
    total: int, work: Callable[[slice], Result], tell: Callable[[int], None], done: int = 0
) -> Iterator[Result]:
    """`work` on slice after slice of `total` targets; `tell` is called with how many are done."""
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
    """The pieces of one question as one set, as if it had been asked at once."""
    first = sets[0]
    if len(sets) == 1:
        return first
    ways = dict.fromkeys(way for one in sets for way in str(one.settings.get("way", "")).split(", "))
    shared = first.settings.get("task", "node") == "node"
    return replace(
        first,
        index=torch.cat([one.index for one in sets]),
        target=torch.cat([one.target for one in sets]),
        value=torch.cat([one.value for one in sets]),
        graphs=first.graphs if shared else tuple(graph for one in sets for graph in one.graphs),
        edges=_joined([one.edges for one in sets], sets),
        own=_joined([one.own for one in sets], sets),
        own_missing=tuple(sorted({layer for one in sets for layer in one.own_missing})),
        errors=_joined([one.errors for one in sets], sets),
        settings=Settings({**first.settings, "way": ", ".join(ways)}),
    )


def _joined(parts: Sequence[Entries | None], sets: Sequence[ExplanationSet]) -> Entries | None:
    """A piece without any such entry has rows nevertheless."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    counts = [
        torch.zeros(len(one), dtype=torch.long) if part is None else part.start.diff()
        for part, one in zip(parts, sets, strict=True)
    ]
    start = torch.cat([torch.zeros(1, dtype=torch.long), torch.cat(counts).cumsum(0)])
    return Entries.of_rows(start, torch.cat([part.place for part in known]), torch.cat([part.score for part in known]))
