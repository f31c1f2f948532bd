"""`edgewise leaderboard`: every method on data sets whose right explanation is known, into a folder with a page.

As in the other commands, torch is loaded when the command runs.
"""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgewise.cli.guard import Interrupted, guarded
from edgewise.cli.options import import_module_of_user, split_names
from edgewise.cli.terminal import Voice, print_json

if TYPE_CHECKING:
    from edgewise.board.board import Board

EPILOG = """Examples:

edgewise leaderboard --quick --out board

edgewise leaderboard --out board --engine processes --workers 16

edgewise leaderboard --out board --plugin my_method --data infection,my_graphs --methods gradient,my_method

Exit codes: 0 done, 1 bad input, 2 wrong usage, 130 Ctrl-C or SIGTERM (the same command goes on)."""


def leaderboard(
    *,
    out: Annotated[Path, typer.Option(help="The folder; it is made if it is not there, and gone on with if it is.")],
    data: Annotated[
        str | None, typer.Option(help="Data sets, with commas between them; without it, all. See docs/datasets.md.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, with commas; also PyG, walks or walks:exact. Without it, all. Yardsticks always run."
        ),
    ] = None,
    networks: Annotated[int | None, typer.Option(help="Networks of each data set; without it, 50, 20 or 10.")] = None,
    targets: Annotated[int | None, typer.Option(help="Targets of each network; without it, 10.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Three data sets, three networks each, the faster methods: two minutes.")
    ] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(
            help="A module that registers methods or data sets, from this folder or installed; may be repeated."
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Where networks are done: here, or by processes of this machine.")
    ] = "here",
    workers: Annotated[int | None, typer.Option(help="How many processes; without it, one for each core.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout, everything else on stderr.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Which method finds the truth, and at what cost? Every method on data whose right explanation is known."""
    with guarded(debug=debug):
        import edgewise as ew

        for name in plugin or ():
            import_module_of_user(name)
        voice = Voice(quiet=quiet)
        voice.note(f"Networks are trained and explained; what is finished is kept in {out}.")
        asked: dict[str, Any] = {"networks": networks, "targets": targets, "quick": quick}
        names = {"data": data, "methods": methods}
        asked |= {key: None if given is None else split_names(given) for key, given in names.items()}
        try:
            board = ew.leaderboard(out, **asked, engine=engine, workers=workers, progress=voice.is_watched)
        except KeyboardInterrupt as stop:
            raise Interrupted(f"Stopped. What is finished is kept in {out}; the same command goes on.") from stop
        _show(board, out, as_json=json, quiet=quiet)


def _show(board: Board, out: Path, *, as_json: bool, quiet: bool) -> None:
    """Print the tables, or all standings as JSON."""
    if as_json:
        print_json({"command": "leaderboard", "folder": str(out), "standings": [_plain(s) for s in board.standings]})
    elif not quiet:
        typer.echo(repr(board))
        typer.echo(f"\nWritten: {out / 'results.parquet'}. Open this: {(out / 'index.html').resolve()}")


def _plain(standing: Any) -> dict[str, Any]:
    """A standing as a dict; its ranks as a pair."""
    found = dict(vars(standing))
    return {**found, "rank": None if standing.rank is None else list(standing.rank)}
