"""The work of `edgewise explain`."""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import edgewise as ew
from edgewise.cli import showing
from edgewise.cli.asked import Asked
from edgewise.cli.pieces import joined
from edgewise.cli.reading.subject import Subject
from edgewise.cli.running import Run
from edgewise.cli.saying import Voice
from edgewise.cli.working import Output, Work, work_through
from edgewise.cli.writing.columns import write_columns
from edgewise.export.tables import columns
from edgewise.storage import named_columns, save


@dataclass(frozen=True)
class How:
    """By which method."""

    method: str
    level: str
    top: int | None
    settings: dict[str, Any]


def run(asked: Asked, voice: Voice, output: Output, how: How, paged: dict[str, Any]) -> None:
    """Read, explain, write, show."""
    started = Run.start("explain", asked, voice, output, asdict(how))
    work = _explain(started, how)
    written = started.finish(work, partial(_save_parts, work, started.subject), paged | how.settings)
    _show(started.subject, joined(work.parts), how, written)


def _explain(started: Run, how: How) -> Work[ew.ExplanationSet]:
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


def _save_parts(work: Work[ew.ExplanationSet], subject: Subject, path: Path) -> None:
    """By the ending of the name; nodes have their names in it."""
    explained = joined(work.parts)
    node_names = subject.graphs.names if subject.graphs.task == "node" else None
    if path.suffix == ".csv":
        write_columns(path, named_columns(columns(explained), node_names))
    else:
        save(explained, path, node_names)


def _show(subject: Subject, explained: ew.ExplanationSet, how: How, written: dict[str, Any]) -> None:
    asked, total = subject.asked, len(subject.index)
    if asked.json:
        listed = showing.records(subject, list(explained), how.top or showing.JSON_ROWS)
        about = {"command": "explain", "method": how.method, "level": how.level, "task": subject.graphs.task}
        showing.print_json({**about, "targets": listed, **written})
    elif not asked.quiet:
        few = list(explained[: showing.SHOWN_TARGETS])
        listed = showing.records(subject, few, min(how.top or showing.SHOWN_ROWS, showing.SHOWN_ROWS))
        more = f", the first {len(few)} of {total} targets" if total > len(few) else ""
        showing.print_table(f"{how.method}, {how.level} level{more}", listed, subject.graphs.task)
