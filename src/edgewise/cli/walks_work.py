"""The work of `edgewise walks`."""

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
from edgewise.cli.session import Session, work_through
from edgewise.cli.terminal import Voice
from edgewise.results.export import columns


@dataclass(frozen=True)
class WalkOptions:
    """Which walks, found how."""

    k: int
    search: str
    sign: str
    budget: int | None


def run(asked: CommonOptions, voice: Voice, output: Output, how: WalkOptions) -> None:
    """Read, search, write, show."""
    started = Session.start("walks", asked, voice, output, asdict(how))
    subject = started.subject

    def search(positions: slice) -> list[ew.WalkSet]:
        index, classes = subject.index[positions].tolist(), subject.classes_of(positions)
        found: list[ew.WalkSet] = ew.walks(
            subject.model, subject.graphs.data, index, target=classes, **asdict(how), **subject.options
        )
        return found

    work = work_through(voice, f"walks ({how.search})", started.targets, search)
    found = [one for part in work.parts for one in part]
    written = started.finish(work, partial(save_walks, found, subject), {"walks": how.k})
    _show(subject, found, how, written)


def save_walks(found: Sequence[ew.WalkSet], subject: CliQuestion, path: Path) -> None:
    """A row for every walk: target, rank, score, its nodes, and whether the list is proven."""
    write_columns(path, walk_columns(found, subject.graphs.names if subject.graphs.task == "node" else None))


def walk_columns(found: Sequence[ew.WalkSet], names: Sequence[str] | None) -> dict[str, np.ndarray]:
    """Of all targets, one after another; those without a walk have no row."""
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


def _show(subject: CliQuestion, found: Sequence[ew.WalkSet], how: WalkOptions, written: dict[str, Any]) -> None:
    asked, total = subject.asked, len(subject.index)
    if asked.json:
        about = {"command": "walks", **asdict(how), "task": subject.graphs.task}
        show.print_json({**about, "targets": show.records(subject, found, how.k), **written})
    elif not asked.quiet:
        few = found[: show.SHOWN_TARGETS]
        listed = show.records(subject, few, min(how.k, show.SHOWN_ROWS))
        unproven = sum(not one.exact for one in few)
        proof = "proven" if not unproven else f"{unproven} of {len(few)} lists not proven"
        more = f", the first {len(few)} of {total} targets" if total > len(few) else ""
        show.print_table(f"walks, {how.search} search, {proof}{more}", listed, subject.graphs.task)
