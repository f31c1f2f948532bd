"""`edgewise reproduce`: the paper's experiments, beside the published numbers."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from edgewise.cli.guarding import guarded
from edgewise.cli.names import completing
from edgewise.experiments.catalogue import EXPERIMENTS
from edgewise.experiments.options import FLIP_EDGES, Options

_NAMES = "Experiments: all, " + ", ".join(EXPERIMENTS) + "."
EPILOG = """Examples:

edgewise reproduce --quick

edgewise reproduce infection theorems --out reproduction

Exit codes: 0 done, 1 bad input or a failed task, 2 wrong usage, 130 Ctrl-C (the same command goes on from there)."""


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(help=_NAMES, show_default="all", autocompletion=completing(("all", *EXPERIMENTS))),
    ] = None,
    *,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds for real data; cheap experiments take ten or more.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for the report, the figures and the cache.")] = Path("reproduction"),
    data: Annotated[
        Path | None, typer.Option(help="Folder of raw data sets; else $EDGEWISE_DATA, else downloads.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, cuda:1.")] = "cpu",
    workers: Annotated[int, typer.Option(min=1, help="Processes, one thread each.")] = 2,
    flip_edges: Annotated[int, typer.Option(min=1, help="Edges that are varied for sign flips.")] = FLIP_EDGES,
    quick: Annotated[bool, typer.Option("--quick", help="A small grid of everything, in minutes.")] = False,
    full: Annotated[bool, typer.Option("--full", help="All depths and seeds of PROTEINS too.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Run the paper's experiments; interrupted, the same command goes on where it stopped."""
    options = Options(out, data, seeds, device, quick, full, flip_edges, workers)
    with guarded(debug=debug):
        code = _run(names or ["all"], options)
    raise typer.Exit(code)


def _run(names: list[str], options: Options) -> int:
    from edgewise.cli.telling import Teller
    from edgewise.experiments.catalogue import choose
    from edgewise.experiments.reporting.writing import write_report
    from edgewise.experiments.running import Interrupted, reproduce

    choose(names)  # a misspelt name is said before anything heavy is loaded
    try:
        with Teller(sys.stderr) as tell:
            run = reproduce(names, options, tell)
    except Interrupted:
        typer.echo("Stopped. Nothing is lost: the same command goes on from here.", err=True)
        return 130
    for path in write_report(run):
        typer.echo(str(path))
    for problem in run.problems:
        typer.echo(f"\nFailed: {problem.task.title}\n{problem.problem}", err=True)
    return 1 if run.problems else 0
