"""`edgewise compare`: which methods agree with each other.

All targets are done in one call of `ew.compare`; with `--out` every pair of methods becomes a row. The library is imported when
the command runs.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from edgewise.cli import options
from edgewise.cli.explain_command import Force
from edgewise.cli.options import CommonOptions, split_names, story_of, with_common_options
from edgewise.cli.output import Output
from edgewise.cli.terminal import Voice

EPILOG = """Examples:

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
    _run(
        asked,
        voice,
        out,
        {"methods": chosen, "levels": tuple(split_names(level)), "k": top, "seeds": list(range(seeds))},
    )


def _run(asked: CommonOptions, voice: Voice, out: Path | None, how: dict[str, Any]) -> None:
    """Read, compare, write, show; `how` are the arguments of `ew.compare` besides the shared ones."""
    import edgewise as ew
    from edgewise.cli.output import Destination, write_columns
    from edgewise.cli.read.cli_question import read_question
    from edgewise.cli.show import print_json

    question = read_question(asked, voice)
    how = {**how, "seeds": [asked.seed + number for number in how["seeds"]]}
    found = ew.compare(
        question.model, question.graphs.data, question.index.tolist(),
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
        typer.echo(str(found))
