"""`edgewise walks`: the most relevant walks. Options and help; the work is in `walks_work`.

As in `explain_command`, torch is loaded when the command runs, after the output files were checked.
"""

from pathlib import Path
from typing import Annotated

import typer

from edgewise.cli import options
from edgewise.cli.explain_command import Force, PageOption
from edgewise.cli.options import CommonOptions, with_common_options
from edgewise.cli.output import Output
from edgewise.cli.terminal import Voice

EPILOG = """Examples:

edgewise walks --data infection --index 22 --top 3

edgewise walks --model my_model.py:GCN --weights weights.pt --data graph.npz --index test --out walks.csv

Exit codes: 0 done, 1 bad input, 2 wrong usage, 130 Ctrl-C (what is finished is kept in walks.partial.csv)."""


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
    """Along which walks did it travel? The most relevant walks from a source to the target, proven to be the best."""
    voice, output = Voice(quiet=asked.quiet), Output(out, page, force)
    output.claim(asked)
    from edgewise.cli.walks_work import WalkOptions, run

    run(asked, voice, output, WalkOptions(top, search, sign, budget))
