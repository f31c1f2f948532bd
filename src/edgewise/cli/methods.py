"""`edgewise methods`: the table of methods."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from edgewise.cli.guarding import guarded

EPILOG = """Example:

edgewise methods --json"""


def methods(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: levels, settings with defaults, cost, reference.")
    ] = False,
) -> None:
    """Every method with its levels, settings, cost and reference."""
    with guarded(debug=False):
        import edgewise as ew

        table = ew.methods()
        if as_json:
            from edgewise.cli.showing import print_json

            keys = ("levels", "settings", "cost", "reference")
            print_json({name: {key: _plain(getattr(row, key)) for key in keys} for name, row in table.items()})
        else:
            typer.echo(repr(table))


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
