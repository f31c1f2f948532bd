"""`edgewise ask`, `edgewise compare` and `edgewise check`: the commands that put one question about all targets at once.

`ask` says what a question is about and what each method will cost, before any long work. `compare` says which methods
agree with each other; with `--out` every pair of methods becomes a row. `check` says how far explanations of the model
can be trusted on its data; `--require` makes it a test for scripts, with exit code 3 unless the named statements hold,
exactly or nearly.

Each is one call of the library and one answer, without pieces that could be resumed. The library is imported when a
command runs.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli import options
from edgewise.cli.guard import DOUBTFUL
from edgewise.cli.options import CommonOptions, Force, split_names, story_of, with_common_options
from edgewise.cli.output import Destination, Output
from edgewise.cli.table_files import write_columns
from edgewise.cli.terminal import Voice, named, print_json, target_named
from edgewise.text import printable_lines

if TYPE_CHECKING:
    from edgewise.cli.read.cli_question import CliQuestion
    from edgewise.trust.report import LayerFindings, Report

ASK_EPILOG = """Examples:

edgewise ask --data infection --index 0-19

edgewise ask --model my_model:GCN --weights weights.pt --data graph.npz --index test --json

Exit codes: 0 done, 1 bad input, 2 wrong usage."""


@with_common_options
def ask(asked: CommonOptions) -> None:
    """What would be explained, and what would it cost? Task, output, layers, agreement with the labels, seconds."""
    voice = Voice(quiet=asked.quiet)
    import edgewise as ew
    from edgewise.cli.read.cli_question import read_question

    read = read_question(asked, voice)
    question = ew.Question(read.model, read.graphs.data, read.targets(slice(None)), target=read.classes, **read.options)
    if asked.json:
        kind = read.type
        listed = [index if kind is None else (kind, index) for index in read.index.tolist()]
        targets = [
            {"index": index, **target_named(read, index), "target": target, "value": value}
            for index, target, value in zip(listed, question.target.tolist(), question.value.tolist(), strict=True)
        ]
        about = {"layers": question.num_layers, "way": question.way, "settings": dict(question.settings)}
        print_json({"command": "ask", **about, "targets": targets})
    elif not asked.quiet:
        typer.echo(printable_lines(str(question)))


COMPARE_EPILOG = """Examples:

edgewise compare --data infection --index 0-49

edgewise compare --model my_model:GCN --weights weights.pt --data graph.npz --index test --method gradient,occlusion
--out agreement.csv"""


@with_common_options
def compare(
    asked: CommonOptions,
    *,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"Methods, separated by commas: {', '.join(options.METHODS)}.",
            autocompletion=options.completing_list(options.METHODS),
            show_default="gradient,positive_gradient,occlusion,gnn_explainer,integrated_gradients",
        ),
    ] = None,
    level: Annotated[
        str, typer.Option(help="input, layer, or both.", autocompletion=options.completing_list(options.LEVELS))
    ] = "input,layer",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run methods with that draw random numbers.")] = 1,
    top: Annotated[int, typer.Option(min=1, help="How many of the strongest edges the overlap compares.")] = 10,
    out: Annotated[
        Path | None, typer.Option(help="Write a row for every pair of methods to this .parquet or .csv.")
    ] = None,
    force: Force = False,
) -> None:
    """Which methods agree on this model? Cosines, rank correlations, overlaps and signs of every pair of methods."""
    voice = Voice(quiet=asked.quiet)
    Output(out, None, force).claim(asked)
    from edgewise.api.compare import CORE

    chosen = tuple(split_names(method)) if method is not None else CORE
    _compare(
        asked,
        voice,
        out,
        {"methods": chosen, "levels": tuple(split_names(level)), "k": top, "seeds": list(range(seeds))},
    )


def _compare(asked: CommonOptions, voice: Voice, out: Path | None, how: dict[str, Any]) -> None:
    """Read, compare, write, show.

    Args:
        asked: The shared options.
        voice: Tells what is going on.
        out: The table to write, if any: a row for every pair of methods, level, layer and measure, reasons as JSON.
        how: The arguments of `ew.compare` besides the shared ones; `seeds` counts from 0 and is moved by `--seed`.
    """
    import edgewise as ew
    from edgewise.cli.read.cli_question import read_question

    question = read_question(asked, voice)
    how = {**how, "seeds": [asked.seed + number for number in how["seeds"]]}
    found = ew.compare(
        question.model, question.graphs.data, question.targets(slice(None)),
        target=question.classes, progress=voice.is_watched, **how, **question.options,
    )  # fmt: skip
    if out is not None:
        rows = [{**row, "reasons": json.dumps(row["reasons"])} for row in found.rows()]
        table = {name: [row[name] for row in rows] for name in rows[0]}
        destination = Destination(out, "compare", story_of(asked, **how), question.hashes, len(question.index))
        destination.write(lambda path: write_columns(path, table))
        voice.note(f"Written: {out}")
    if asked.json:
        print_json({"command": "compare", **found.to_dict()})
    elif not asked.quiet:
        typer.echo(printable_lines(str(found)))


CHECK_EPILOG = """Examples:

edgewise check --data infection --index 0-19

edgewise check --model my_model:GCN --weights weights.pt --data graph.npz --index test --require "Corollary 1"

Exit codes: 0 done, 1 bad input, 2 wrong usage, 3 what --require names does not hold here."""

_GOOD = ("holds", "nearly", "does not apply")
"""Verdicts of a `Statement` that satisfy `--require`; "partly", "fails" and "open" do not."""


@with_common_options
def check(
    asked: CommonOptions,
    *,
    edges: Annotated[
        int, typer.Option(min=1, help="About how many pairs of target and edge to measure, drawn at random.")
    ] = 2000,
    require: Annotated[
        list[str] | None,
        typer.Option(
            help='Exit with code 3 unless this statement holds, exactly or nearly: "Proposition 2"; or all of them: all.'
        ),
    ] = None,
) -> None:
    """Which explanation can I believe? What holds for this model, measured: completeness, sign flips, saturation."""
    voice = Voice(quiet=asked.quiet)
    import edgewise as ew
    from edgewise.cli.read.cli_question import read_question

    question = read_question(asked, voice)
    report = ew.check(
        question.model, question.graphs.data, question.targets(slice(None)),
        target=question.classes, edges=edges, seed=asked.seed, progress=voice.is_watched, **question.options,
    )  # fmt: skip
    if asked.json:
        print_json({"command": "check", **_named_report(question, report)})
    elif not asked.quiet:
        typer.echo(printable_lines(str(_labelled(question, report))))
    required = [report.statement(name) for name in require or () if name != "all"]
    required += report.statements if "all" in (require or ()) else ()
    doubtful = [f"{one.name} ({one.verdict})" for one in required if one.verdict not in _GOOD]
    if doubtful:
        voice.note(f"Doubtful here: {', '.join(doubtful)}.")
        raise typer.Exit(DOUBTFUL)


def _labelled(question: "CliQuestion", report: "Report") -> "Report":
    """The report with ids and names in the places of numbers of nodes and targets."""

    def labelled(layer: "LayerFindings") -> "LayerFindings":
        worst = layer.worst
        if worst is None:
            return layer
        graph = None if question.graphs.is_one else worst.index
        source, receiver = (question.node_label(node, graph) for node in (worst.source, worst.receiver))
        index = question.target_label(worst.index)
        return replace(layer, worst=replace(worst, index=index, source=source, receiver=receiver))

    return replace(report, layers=tuple(map(labelled, report.layers)), whole=labelled(report.whole))


def _named_report(question: "CliQuestion", report: "Report") -> dict[str, Any]:
    """The report for JSON: its numbers, with the ids and names of the edges."""
    found = report.to_dict()
    for layer, given in zip([*found["layers"], found["whole"]], [*report.layers, report.whole], strict=True):
        if given.worst is not None:
            worst = layer["worst"] = dict(layer["worst"])
            worst |= {f"index_{key}": text for key, text in target_named(question, given.worst.index).items()}
            for end in ("source", "receiver"):
                worst |= named(question, given.worst, end, getattr(given.worst, end))
    return found
