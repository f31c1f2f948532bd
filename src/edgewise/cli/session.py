"""A run of `explain` or `walks` around its work: read everything before it, write the result and the page after it.

`Session.start` reads; the command does its work piece by piece (see `work`); `Session.finish` writes the result, or keeps
what is finished if the work stopped early.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgewise.cli import show
from edgewise.cli.exit_codes import Interrupted
from edgewise.cli.options import CommonOptions, story_of
from edgewise.cli.output import Destination, Output
from edgewise.cli.read.cli_question import CliQuestion, read_question
from edgewise.cli.terminal import Voice
from edgewise.cli.work import Work
from edgewise.errors import EdgewiseError

PAGE_TARGETS = 50
"""How many targets a page of the command line is about: more are too many to look at."""


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
        return total if everyone else min(total, show.SHOWN_TARGETS)

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
        again = " The same command resumes from there." if destination.kept() else ""
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
        question.index[:PAGE_TARGETS].tolist(),
        target="predicted" if classes is None else classes,
        node_names=graphs.names,
        class_names=graphs.class_names,
        settings=settings,
        seed=asked.seed,
        **shared,
        **options,
    )
    return written
