"""`edgewise demo`: everything on a small data set, in a minute or two."""

from pathlib import Path
from typing import Annotated

import typer

from edgewise.cli.guarding import guarded

EPILOG = """Example:

edgewise demo --nodes 100 --out demo-output"""


def demo(
    *,
    out: Annotated[Path, typer.Option(help="Folder for the results and the picture.")] = Path("demo-output"),
    nodes: Annotated[int, typer.Option(min=1, max=1000, help="How many nodes of the test graph.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the graphs and the training.")] = 0,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Train a model on Infection, explain its nodes with every method at both levels, compare, save, draw one of them."""
    with guarded(debug=debug):
        from edgewise.demo import run

        run(out, nodes, seed)
