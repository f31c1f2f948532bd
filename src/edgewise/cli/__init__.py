"""The command line: `edgewise --help`. Nothing heavy is imported before a command runs."""

import sys

from edgewise.errors import missing_extra


def main() -> None:
    """Entry point of `edgewise` and of `python -m edgewise`."""
    try:
        import typer  # noqa: F401
    except ImportError:
        sys.exit(str(missing_extra("typer", "cli", "The command line")))
    from edgewise.cli.app import app

    app()
