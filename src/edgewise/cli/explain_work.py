"""The work of `edgewise explain`."""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import edgewise as ew
from edgewise.cli import show
from edgewise.cli.options import CommonOptions
from edgewise.cli.output import Output, write_columns
from edgewise.cli.read.cli_question import CliQuestion
from edgewise.cli.session import Session, Work, joined, work_through
from edgewise.cli.terminal import Voice
from edgewise.results.export import columns
from edgewise.results.storage import named_columns, save


@dataclass(frozen=True)
class ExplainOptions:
    """By which method."""

    method: str
    level: str
    top: int | None
    settings: dict[str, Any]


def run(asked: CommonOptions, voice: Voice, output: Output, how: ExplainOptions, paged: dict[str, Any]) -> None:
    """Read, explain, write, show."""
    started = Session.start("explain", asked, voice, output, asdict(how))
    work = _explain(started, how)
    written = started.finish(work, partial(_save_parts, work, started.subject), paged | how.settings)
    _show(started.subject, joined(work.parts), how, written)


def _explain(started: Session, how: ExplainOptions) -> Work[ew.ExplanationSet]:
    """The targets, after those that an earlier run has finished."""
    subject, destination = started.subject, started.destination

    def explain(positions: slice) -> ew.ExplanationSet:
        found = ew.explain(
            subject.model,
            subject.graphs.data,
            subject.index[positions].tolist(),
            method=how.method,
            level=how.level,
            top=how.top,
            target=subject.classes_of(positions),
            seed=subject.asked.seed,
            **subject.options,
            **how.settings,
        )
        assert isinstance(found, ew.ExplanationSet)  # a list was asked for
        return found

    kept = destination.kept() if destination is not None else None
    earlier = [ew.load(kept)] if kept is not None else []
    done = sum(map(len, earlier))
    if kept is not None:
        started.voice.note(f"Going on from {kept}: {done} of {len(subject.index)} targets are finished.")
    return work_through(started.voice, f"{how.method} ({how.level})", started.targets, explain, earlier, done)


def _save_parts(work: Work[ew.ExplanationSet], subject: CliQuestion, path: Path) -> None:
    """By the ending of the name; nodes have their names in it."""
    explained = joined(work.parts)
    node_names = subject.graphs.names if subject.graphs.task == "node" else None
    if path.suffix == ".csv":
        write_columns(path, named_columns(columns(explained), node_names))
    else:
        save(explained, path, node_names)


def _show(subject: CliQuestion, explained: ew.ExplanationSet, how: ExplainOptions, written: dict[str, Any]) -> None:
    asked, total = subject.asked, len(subject.index)
    if asked.json:
        listed = show.records(subject, list(explained), how.top or show.JSON_ROWS)
        about = {"command": "explain", "method": how.method, "level": how.level, "task": subject.graphs.task}
        show.print_json({**about, "targets": listed, **written})
    elif not asked.quiet:
        few = list(explained[: show.SHOWN_TARGETS])
        listed = show.records(subject, few, min(how.top or show.SHOWN_ROWS, show.SHOWN_ROWS))
        more = f", the first {len(few)} of {total} targets" if total > len(few) else ""
        show.print_table(f"{how.method}, {how.level} level{more}", listed, subject.graphs.task)
