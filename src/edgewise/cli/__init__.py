"""The command line: `edgewise --help`. Read `app.py` first. Nothing heavy is imported before a command runs."""

import sys

from edgewise.errors import missing_extra


def main() -> None:
    """Run the command line: the entry point of `edgewise` and of `python -m edgewise`."""
    try:
        import typer  # noqa: F401
    except ImportError:
        sys.exit(str(missing_extra("typer", "cli", "The command line")))
    try:
        from edgewise.cli.app import app

        app()
    except KeyboardInterrupt:  # while modules load; a command that has begun says what it kept
        sys.exit(130)
