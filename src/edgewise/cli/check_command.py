"""`edgewise check`: how far explanations can be trusted, here."""

from typing import Annotated

import typer

from edgewise.cli.exit_codes import DOUBTFUL
from edgewise.cli.options import CommonOptions, asks
from edgewise.cli.terminal import Voice

EPILOG = """Examples:

edgewise check --data infection --index 0-19

edgewise check --model my_model:GCN --weights weights.pt --data graph.npz --index test --require "Corollary 1"

Exit codes: 0 done, 1 bad input, 2 wrong usage, 3 what --require names does not hold here."""

_GOOD = ("holds", "nearly", "does not apply")


@asks
def check(
    asked: CommonOptions,
    *,
    edges: Annotated[
        int, typer.Option(min=1, help="About how many pairs of target and edge to ask about, a random part of all.")
    ] = 2000,
    require: Annotated[
        list[str] | None,
        typer.Option(
            help='End with exit code 3 unless this holds, exactly or nearly: "Proposition 2"; all: everything.'
        ),
    ] = None,
) -> None:
    """Which explanation can I believe here? What holds for this model, measured: completeness, sign flips, saturation."""
    voice = Voice(quiet=asked.quiet)
    import edgewise as ew
    from edgewise.cli.read.cli_question import read_subject
    from edgewise.cli.show import print_json

    subject = read_subject(asked, voice)
    report = ew.check(
        subject.model, subject.graphs.data, subject.index.tolist(),
        target=subject.classes, edges=edges, seed=asked.seed, progress=voice.is_watched, **subject.options,
    )  # fmt: skip
    if asked.json:
        print_json({"command": "check", **report.to_dict()})
    elif not asked.quiet:
        typer.echo(str(report))
    required = [report.statement(name) for name in require or () if name != "all"]
    required += report.statements if "all" in (require or ()) else ()
    doubtful = [f"{one.name} ({one.verdict})" for one in required if one.verdict not in _GOOD]
    if doubtful:
        voice.note(f"Doubtful here: {', '.join(doubtful)}.")
        raise typer.Exit(DOUBTFUL)
