"""The commands, each in a file of its own."""

from typing import Annotated

import typer

import edgewise
from edgewise.cli import check, compare, demo, explain, methods, reproduce, walks
from edgewise.cli.spreading import SpreadingCommand

app = typer.Typer(name="edgewise", no_args_is_help=True, pretty_exceptions_enable=False)


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


app.command(cls=SpreadingCommand, epilog=explain.EPILOG)(explain.explain)
app.command(cls=SpreadingCommand, epilog=walks.EPILOG)(walks.walks)
app.command(cls=SpreadingCommand, epilog=compare.EPILOG)(compare.compare)
app.command(cls=SpreadingCommand, epilog=check.EPILOG)(check.check)
app.command(epilog=methods.EPILOG)(methods.methods)
app.command(epilog=demo.EPILOG)(demo.demo)
app.command(epilog=reproduce.EPILOG)(reproduce.reproduce)
