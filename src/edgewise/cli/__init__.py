"""The command line: `edgewise --help`. Read `app.py` first. Nothing heavy is imported before a command runs."""

import sys

from edgewise.errors import missing_extra


def main() -> None:
    """Run the command line: the entry point of `edgewise` and of `python -m edgewise`."""
    try:
        import typer  # noqa: F401
    except ImportError:
        sys.exit(str(missing_extra("typer", "cli", "The command line")))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that knows ASCII only shows an arrow as its number
            stream.reconfigure(errors="backslashreplace")
    try:
        from edgewise.cli.app import app

        app()
    except KeyboardInterrupt:  # while modules load; a command that has begun says what it kept
        sys.exit(130)
