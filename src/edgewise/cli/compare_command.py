"""`edgewise compare`: who agrees with whom."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from edgewise.cli import options
from edgewise.cli.explain_command import Force
from edgewise.cli.options import CommonOptions, asks, question
from edgewise.cli.output import Output
from edgewise.cli.terminal import Voice

EPILOG = """Examples:

edgewise compare --data infection --index 0-49

edgewise compare --model my_model:GCN --weights weights.pt --data graph.npz --index test --method gradient,occlusion
--out agreement.csv"""


@asks
def compare(
    asked: CommonOptions,
    *,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"Methods with commas between them, of {', '.join(options.METHODS)}.",
            autocompletion=options.completing_list(options.METHODS),
            show_default="gradient,positive_gradient,occlusion,gnn_explainer,integrated_gradients",
        ),
    ] = None,
    level: Annotated[
        str, typer.Option(help="input, layer, or both.", autocompletion=options.completing_list(options.LEVELS))
    ] = "input,layer",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, for methods that draw random numbers.")] = 1,
    top: Annotated[int, typer.Option(min=1, help="Edges in the overlap of the strongest.")] = 10,
    out: Annotated[Path | None, typer.Option(help="Write every pair as a row: .parquet or .csv.")] = None,
    force: Force = False,
) -> None:
    """Which methods say the same about this model? Cosines, rank correlations, overlaps and signs of every two of them."""
    voice = Voice(quiet=asked.quiet)
    Output(out, None, force).claim(asked)
    from edgewise.api.compare import CORE

    chosen = tuple(_names(method)) if method is not None else CORE
    _run(asked, voice, out, {"methods": chosen, "levels": tuple(_names(level)), "k": top, "seeds": list(range(seeds))})


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _run(asked: CommonOptions, voice: Voice, out: Path | None, how: dict[str, Any]) -> None:
    import edgewise as ew
    from edgewise.cli.output import Destination, write_columns
    from edgewise.cli.read.cli_question import read_subject
    from edgewise.cli.show import print_json

    subject = read_subject(asked, voice)
    how = {**how, "seeds": [asked.seed + number for number in how["seeds"]]}
    found = ew.compare(
        subject.model, subject.graphs.data, subject.index.tolist(),
        target=subject.classes, progress=voice.is_watched, **how, **subject.options,
    )  # fmt: skip
    if out is not None:
        rows = [{**row, "reasons": json.dumps(row["reasons"])} for row in found.rows()]
        table = {name: [row[name] for row in rows] for name in rows[0]}
        destination = Destination(out, "compare", question(asked, **how), subject.hashes, len(subject.index))
        destination.write(lambda path: write_columns(path, table))
        voice.note(f"Written: {out}")
    if asked.json:
        print_json({"command": "compare", **found.to_dict()})
    elif not asked.quiet:
        typer.echo(str(found))
