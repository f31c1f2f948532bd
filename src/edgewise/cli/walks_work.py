"""The work of `edgewise walks`: read, search piece by piece, write, show. Loaded when the command runs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import edgewise as ew
from edgewise.cli import show
from edgewise.cli.options import CommonOptions
from edgewise.cli.output import Output, write_columns
from edgewise.cli.read.cli_question import CliQuestion
from edgewise.cli.session import Session
from edgewise.cli.terminal import Voice
from edgewise.cli.work import work_through
from edgewise.results.export import columns


@dataclass(frozen=True)
class WalkOptions:
    """What `walks` asks besides the shared options: arguments of `ew.walks`, and part of the manifest."""

    k: int
    search: str
    sign: str
    budget: int | None


def run(asked: CommonOptions, voice: Voice, output: Output, how: WalkOptions) -> None:
    """Read, search, write, show."""
    session = Session.start("walks", asked, voice, output, asdict(how))
    question = session.question

    def search(positions: slice) -> list[ew.WalkSet]:
        index, classes = question.index[positions].tolist(), question.classes_of(positions)
        found: list[ew.WalkSet] = ew.walks(
            question.model, question.graphs.data, index, target=classes, **asdict(how), **question.options
        )
        return found

    work = work_through(voice, f"walks ({how.search})", session.targets, search)
    found = [one for part in work.parts for one in part]
    written = session.finish(work, partial(save_walks, found, question), {"walks": how.k})
    _show(question, found, how, written)


def save_walks(found: Sequence[ew.WalkSet], question: CliQuestion, path: Path) -> None:
    """Write a row for every walk: target, rank, score, its nodes, and whether the list is proven."""
    write_columns(path, walk_columns(found, question.graphs.names if question.graphs.task == "node" else None))


def walk_columns(found: Sequence[ew.WalkSet], names: Sequence[str] | None) -> dict[str, np.ndarray]:
    """The walks of all targets as one table, column by column; a target without walks has no row.

    For two layers the columns are `index`, `target`, `rank`, `score`, `node_0` to `node_2`, `exact`, `upper_bound`; with
    `names` also `index_name` and `node_0_name` to `node_2_name`.
    """
    parts = [
        columns(one) | {"exact": np.full(len(one), one.exact), "upper_bound": np.full(len(one), one.upper_bound)}
        for one in found
        if len(one)
    ]
    together = {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}
    if names is None:
        return together
    called = np.array(names, dtype=str)
    nodes = [name for name in together if name == "index" or name.startswith("node_")]
    return together | {f"{name}_name": called[together[name]] for name in nodes}


def _show(question: CliQuestion, found: Sequence[ew.WalkSet], how: WalkOptions, written: dict[str, Any]) -> None:
    """Print the JSON document, or a short table of the first targets; `written` is what the manifest says."""
    asked, total = question.asked, len(question.index)
    if asked.json:
        about = {"command": "walks", **asdict(how), "task": question.graphs.task}
        show.print_json({**about, "targets": show.records(question, found, how.k), **written})
    elif not asked.quiet:
        few = found[: show.SHOWN_TARGETS]
        listed = show.records(question, few, min(how.k, show.SHOWN_ROWS))
        unproven = sum(not one.exact for one in few)
        proof = "proven" if not unproven else f"{unproven} of {len(few)} lists not proven"
        more = f", the first {len(few)} of {total} targets" if total > len(few) else ""
        show.print_table(f"walks, {how.search} search, {proof}{more}", listed, question.graphs.task)
