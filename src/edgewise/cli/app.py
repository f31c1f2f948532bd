"""The commands, each in a file of its own."""

from typing import Annotated

import typer

import edgewise
from edgewise.cli.reproduce import reproduce

app = typer.Typer(name="edgewise", no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)


def _print_version(value: bool) -> None:  # noqa: FBT001 - typer calls it
    if value:
        typer.echo(f"edgewise {edgewise.__version__}")
        raise typer.Exit


@app.callback()
def _about(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Which edges, in which layer, along which walks, made a graph neural network predict what it predicted."""


app.command()(reproduce)
