"""`edgewise check`: how far explanations of a model can be trusted on its data.

`--require` makes it a test for scripts: exit code 3 unless the named statements hold, exactly or nearly. The library is
imported when the command runs.
"""

from typing import Annotated

import typer

from edgewise.cli.exit_codes import DOUBTFUL
from edgewise.cli.options import CommonOptions, with_common_options
from edgewise.cli.terminal import Voice

EPILOG = """Examples:

edgewise check --data infection --index 0-19

edgewise check --model my_model:GCN --weights weights.pt --data graph.npz --index test --require "Corollary 1"

Exit codes: 0 done, 1 bad input, 2 wrong usage, 3 what --require names does not hold here."""

_GOOD = ("holds", "nearly", "does not apply")
"""Verdicts that satisfy `--require`."""


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
    from edgewise.cli.show import print_json

    question = read_question(asked, voice)
    report = ew.check(
        question.model, question.graphs.data, question.index.tolist(),
        target=question.classes, edges=edges, seed=asked.seed, progress=voice.is_watched, **question.options,
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
