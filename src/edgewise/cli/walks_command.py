"""`edgewise walks`: the most relevant walks.

First the command with its options and help, then its work: read, search piece by piece, write, show. As in `explain_command`,
torch is loaded when the command runs, after the output files were checked.
"""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli import options, terminal
from edgewise.cli.options import CommonOptions, Force, PageOption, with_common_options
from edgewise.cli.output import Output
from edgewise.cli.table_files import write_columns
from edgewise.cli.terminal import Voice

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    import edgewise as ew
    from edgewise.cli.read.cli_question import CliQuestion

EPILOG = """Examples:

edgewise walks --data infection --index 22 --top 3

edgewise walks --model my_model.py:GCN --weights weights.pt --data graph.npz --index test --out walks.csv

Exit codes: 0 done, 1 bad input, 2 wrong usage, 130 Ctrl-C or SIGTERM (the same command goes on from what is finished)."""


@with_common_options
def walks(
    asked: CommonOptions,
    *,
    top: Annotated[int, typer.Option(min=1, help="How many walks for each target.")] = 5,
    search: Annotated[
        str,
        typer.Option(
            help=f"One of {', '.join(options.SEARCHES)}.", autocompletion=options.completing(options.SEARCHES)
        ),
    ] = "exact",
    sign: Annotated[
        str,
        typer.Option(
            help="positive: walks that support the class; negative: walks that oppose it; magnitude: both.",
            autocompletion=options.completing(options.SIGNS),
        ),
    ] = "positive",
    budget: Annotated[
        int | None,
        typer.Option(min=1, help="At most this many search steps per target; fewer may leave walks unproven."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write all walks to this .parquet, .csv or .npz; the settings go into a .json beside it."),
    ] = None,
    page: PageOption = None,
    force: Force = False,
) -> None:
    """Along which walks did it travel? The most relevant walks from a source to the target, and whether that is proven."""
    voice, output = Voice(quiet=asked.quiet), Output(out, page, force)
    output.claim(asked)
    _run(asked, voice, output, WalkOptions(top, search, sign, budget))


@dataclass(frozen=True)
class WalkOptions:
    """What `walks` asks besides the shared options: arguments of `ew.walks`, and part of the manifest."""

    k: int
    """How many walks for each target."""
    search: str
    """A name of `options.SEARCHES`."""
    sign: str
    """A name of `options.SIGNS`: which walks come first."""
    budget: int | None
    """At most so many steps of the search for each target; `None` for as many as it takes."""


def _run(asked: CommonOptions, voice: Voice, output: Output, how: WalkOptions) -> None:
    """Read, search, write, show.

    Args:
        asked: The shared options.
        voice: Tells what is going on.
        output: The files to write; they have been claimed.
        how: The command's own options.
    """
    import edgewise as ew
    from edgewise.cli.session import started
    from edgewise.jobs.explanation_work import WalkWork

    with started("walks", asked, voice, output, asdict(how), {"walks": how.k}) as session:
        question = session.question

        def search(positions: slice) -> list[ew.WalkSet]:
            index, classes = question.targets(positions), question.classes_of(positions)
            found: list[ew.WalkSet] = ew.walks(
                question.model, question.graphs.data, index, target=classes, **asdict(how), **question.options
            )
            return found

        parts: list[Sequence[ew.WalkSet]] = session.work(
            "walks", f"walks ({how.search})", WalkWork(search, question.stored_index)
        )
        found = [one for part in parts for one in part]
        written = session.finish({"walks": partial(save_table, found, question)})
    _show(question, found, how, written)


def save_table(found: "Sequence[ew.WalkSet]", question: "CliQuestion", path: Path) -> None:
    """Write a row for every walk: target, rank, score, its nodes, and whether the list is proven."""
    graphs = question.graphs
    called = (graphs.node_names, graphs.node_ids) if graphs.is_one else (None, None)
    write_columns(path, walk_columns(found, *called))


def walk_columns(found: "Sequence[ew.WalkSet]", names: Any, ids: Any = None) -> "dict[str, np.ndarray]":
    """The walks of all targets as one table, column by column; a target without walks has no row.

    For two layers the columns are `index`, `target`, `rank`, `score`, `node_0` to `node_2`, `exact`, `upper_bound`; with
    `names` also `index_name` and `node_0_name` to `node_2_name`, with `ids` the same of ids.
    """
    import numpy as np

    from edgewise.results.export import columns
    from edgewise.results.typed_tables import named_columns

    parts = [
        columns(one) | {"exact": np.full(len(one), one.exact), "upper_bound": np.full(len(one), one.upper_bound)}
        for one in found
        if len(one)
    ]
    together = {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}
    return named_columns(together, names, ids)


def _show(question: "CliQuestion", found: "Sequence[ew.WalkSet]", how: WalkOptions, written: dict[str, Any]) -> None:
    """Print the JSON document, or a short table of the first targets; `written` is what the manifest says.

    The title of the table says whether the lists of walks are proven to be the best.
    """
    asked, total = question.asked, len(question.index)
    if asked.json:
        about = {"command": "walks", **asdict(how), "task": question.graphs.task}
        terminal.print_json({**about, "targets": terminal.records(question, found, how.k), **written})
    elif not asked.quiet:
        few = found[: terminal.SHOWN_TARGETS]
        unproven = sum(not one.exact for one in few)
        proof = "proven up to ties of 1e-9" if not unproven else f"{unproven} of {len(few)} lists not proven"
        more = f", the first {len(few)} of {total} targets" if total > len(few) else ""
        terminal.print_table(
            f"walks, {how.search} search, {proof}{more}", question, few, min(how.k, terminal.SHOWN_ROWS)
        )
