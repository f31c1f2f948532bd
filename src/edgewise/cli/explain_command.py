"""`edgewise explain`: a signed score for every edge. Options and help; the work is in `explain_work`.

`explain_work` imports torch, so it is imported when the command runs: `edgewise explain --help` stays fast. The order matters
for users too: files that could not be written are refused (`Output.claim`) before anything slow is loaded.
"""

from pathlib import Path
from typing import Annotated

import typer

from edgewise.cli import options
from edgewise.cli.options import CommonOptions, split_names, with_common_options
from edgewise.cli.output import Output
from edgewise.cli.pairs import read_pairs
from edgewise.cli.terminal import Voice
from edgewise.errors import SettingError

EPILOG = """Examples:

edgewise explain --data infection --index 22 --page why.html

edgewise explain --model my_model:GCN --model-args hidden=16 --weights weights.pt --data graph.npz --index test
--method occlusion --level layer --out result.parquet

Exit codes: 0 done, 1 bad input, 2 wrong usage, 130 Ctrl-C (what is finished is kept in result.partial.parquet)."""

# The options `--force` and `--page`, which other commands have too.
Force = Annotated[bool, typer.Option("--force", help="Replace files that this command did not write.")]
PageOption = Annotated[Path | None, typer.Option(help="Write an .html page to look at and to share: --page why.html.")]


@with_common_options
def explain(
    asked: CommonOptions,
    *,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(options.METHODS)}; for a page also several, separated by commas. Default: gradient; on a "
            f"page {', '.join(options.PAGE_METHODS)}.",
            autocompletion=options.completing_list(options.METHODS),
        ),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(
            help="input: one score per edge; layer: one per layer and edge. Default: input; on a page both.",
            autocompletion=options.completing(options.LEVELS),
        ),
    ] = None,
    top: Annotated[int | None, typer.Option(help="Keep only this many of the strongest edges of each target.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE ...", help="Settings of the method: --set epochs=50 lr=0.1."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write all scores to this .parquet, .csv or .npz; the settings go into a .json beside it."),
    ] = None,
    page: PageOption = None,
    force: Force = False,
) -> None:
    """Why does the model predict this? A signed score for every edge: positive supports the class, negative opposes it."""
    chosen = split_names(method or "gradient")
    if out is not None and len(chosen) > 1:
        raise SettingError(
            f"--out holds the scores of one method, got {', '.join(chosen)}. Run the command once for each."
        )
    voice, output = Voice(quiet=asked.quiet), Output(out, page, force)
    output.claim(asked)
    from edgewise.cli.explain_work import ExplainOptions, run

    paged = {} if method is None else {"methods": chosen}
    paged |= {} if level is None else {"levels": [level]}
    run(asked, voice, output, ExplainOptions(chosen[0], level or "input", top, read_pairs(set_, "--set")), paged)
