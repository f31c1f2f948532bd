"""The work of `edgewise explain`: read, explain piece by piece, write, show. Loaded when the command runs."""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import edgewise as ew
from edgewise.cli import show
from edgewise.cli.options import CommonOptions
from edgewise.cli.output import Output, write_columns
from edgewise.cli.read.cli_question import CliQuestion
from edgewise.cli.session import Session
from edgewise.cli.terminal import Voice
from edgewise.cli.work import Work, joined, work_through
from edgewise.results.export import columns
from edgewise.results.storage import named_columns, save


@dataclass(frozen=True)
class ExplainOptions:
    """What `explain` asks besides the shared options; part of the manifest."""

    method: str
    level: str
    top: int | None
    """How many edges of each target are kept; `None` for all."""
    settings: dict[str, Any]
    """The method's own, from `--set`."""


def run(asked: CommonOptions, voice: Voice, output: Output, how: ExplainOptions, paged: dict[str, Any]) -> None:
    """Read, explain, write, show; `paged` are the arguments of `ew.write_page` that only concern a page."""
    session = Session.start("explain", asked, voice, output, asdict(how))
    work = _explain(session, how)
    written = session.finish(work, partial(_save_parts, work, session.question), paged | how.settings)
    _show(session.question, joined(work.parts), how, written)


def _explain(session: Session, how: ExplainOptions) -> Work[ew.ExplanationSet]:
    """Explain the targets, piece by piece, after those that an earlier run has finished.

    Parts of an earlier run count only if the question, the files and the versions are the same (`Destination.kept`).
    """
    question, destination = session.question, session.destination

    def explain(positions: slice) -> ew.ExplanationSet:
        found = ew.explain(
            question.model,
            question.graphs.data,
            question.index[positions].tolist(),
            method=how.method,
            level=how.level,
            top=how.top,
            target=question.classes_of(positions),
            seed=question.asked.seed,
            **question.options,
            **how.settings,
        )
        assert isinstance(found, ew.ExplanationSet)  # a list was asked for
        return found

    kept = destination.kept() if destination is not None else None
    earlier = [ew.load(kept)] if kept is not None else []
    done = sum(map(len, earlier))
    if kept is not None:
        session.voice.note(f"Resuming from {kept}: {done} of {len(question.index)} targets are finished.")
    return work_through(session.voice, f"{how.method} ({how.level})", session.targets, explain, earlier, done)


def _save_parts(work: Work[ew.ExplanationSet], question: CliQuestion, path: Path) -> None:
    """Write the scores in the format of the file's ending, with the names of the nodes if the data has them."""
    explained = joined(work.parts)
    node_names = question.graphs.names if question.graphs.task == "node" else None
    if path.suffix == ".csv":
        write_columns(path, named_columns(columns(explained), node_names))
    else:
        save(explained, path, node_names)


def _show(question: CliQuestion, explained: ew.ExplanationSet, how: ExplainOptions, written: dict[str, Any]) -> None:
    """Print the JSON document, or a short table of the first targets; `written` is what the manifest says."""
    asked, total = question.asked, len(question.index)
    if asked.json:
        listed = show.records(question, list(explained), how.top or show.JSON_ROWS)
        about = {"command": "explain", "method": how.method, "level": how.level, "task": question.graphs.task}
        show.print_json({**about, "targets": listed, **written})
    elif not asked.quiet:
        few = list(explained[: show.SHOWN_TARGETS])
        listed = show.records(question, few, min(how.top or show.SHOWN_ROWS, show.SHOWN_ROWS))
        more = f", the first {len(few)} of {total} targets" if total > len(few) else ""
        show.print_table(f"{how.method}, {how.level} level{more}", listed, question.graphs.task)
