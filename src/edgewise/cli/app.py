"""The command line's table of contents: every command, the version, and `methods`, which is small enough to be here.

The other commands are in `explain_command`, `walks_command`, `features_command`, `counterfactual_command`,
`question_commands` (`compare`, `check`, `ask`), `job_commands`, `page_command`, `store_commands`, `leaderboard_command` and
`demo_command`, each with its options, its help and its work. Those files import nothing heavy when they are loaded: torch
is imported inside the functions that work, never for help or completion.
"""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from edgewise.cli import (
    counterfactual_command,
    demo_command,
    explain_command,
    features_command,
    job_commands,
    leaderboard_command,
    page_command,
    question_commands,
    store_commands,
    walks_command,
)
from edgewise.cli.guard import BAD_INPUT, for_a_program, guarded, told_usage
from edgewise.cli.options import PairsCommand

METHODS_EPILOG = """Example:

edgewise methods --json"""

PLUGINS = {"reproduce": "edgewise_paper.command"}
"""Commands of other packages by module. They are loaded when they are asked for: the core does not need them."""


class _Commands(TyperGroup):
    """Our commands, and those of `PLUGINS`; a plug-in is a module with a typer `app` of one command.

    `edgewise --help` lists a plug-in with its help and so imports it: such a module must be as light as ours.
    """

    def main(self, args: Any = None, *, standalone_mode: bool = True, **extra: Any) -> Any:  # type: ignore[override]
        """Run a command and exit; a wrong option is said in one sentence, or as JSON where JSON was asked for."""
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **extra)
        given = sys.argv[1:] if args is None else list(args)
        asked = for_a_program.set("--json" in given)
        try:
            code = super().main(args, standalone_mode=False, **extra)
        except typer.Abort:
            code = BAD_INPUT
        except Exception as error:
            code = told_usage(error)
        finally:
            for_a_program.reset(asked)
        sys.exit(code if isinstance(code, int) else 0)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the help."""
        return [*super().list_commands(ctx), *PLUGINS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; a plug-in is imported here."""
        if cmd_name in PLUGINS:
            command = typer.main.get_command(import_module(PLUGINS[cmd_name]).app)
            command.name = cmd_name
            return command
        return super().get_command(ctx, cmd_name)


app = typer.Typer(name="edgewise", cls=_Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(value: bool) -> None:  # noqa: FBT001 - typer calls it
    """Print the version and end, if `--version` was given."""
    if value:
        from edgewise.api.show_versions import version_lines

        typer.echo("\n".join(version_lines()))
        raise typer.Exit


@app.callback()
def _about(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the versions of everything."),
    ] = False,
) -> None:
    """Which edges, in which layer, along which walks, made a graph neural network predict what it predicted."""


def methods(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: levels, settings with defaults, cost, reference.")
    ] = False,
) -> None:
    """List every method with its levels, settings, cost and reference."""
    with guarded(debug=False):
        import edgewise as ew

        table = ew.methods()
        if as_json:
            from edgewise.cli.terminal import print_json

            keys = ("levels", "settings", "cost", "reference")
            print_json({name: {key: _plain(getattr(row, key)) for key in keys} for name, row in table.items()})
        else:
            typer.echo(repr(table))


def _plain(value: Any) -> Any:
    """A mapping as a dict, which JSON takes; anything else as it is."""
    return dict(value) if isinstance(value, Mapping) else value


app.command(cls=PairsCommand, epilog=explain_command.EPILOG)(explain_command.explain)
app.command(cls=PairsCommand, epilog=walks_command.EPILOG)(walks_command.walks)
app.command(cls=PairsCommand, epilog=features_command.EPILOG)(features_command.features)
app.command(cls=PairsCommand, epilog=counterfactual_command.EPILOG)(counterfactual_command.counterfactual)
app.command(cls=PairsCommand, epilog=question_commands.COMPARE_EPILOG)(question_commands.compare)
app.command(cls=PairsCommand, epilog=question_commands.CHECK_EPILOG)(question_commands.check)
app.command(cls=PairsCommand, epilog=question_commands.ASK_EPILOG)(question_commands.ask)
app.add_typer(job_commands.job_app, name="job", epilog=job_commands.JOB_EPILOG)
app.command(epilog=page_command.EPILOG)(page_command.page)
app.add_typer(store_commands.store_app, name="store", epilog=store_commands.STORE_EPILOG)
app.command(epilog=METHODS_EPILOG)(methods)
app.command(epilog=leaderboard_command.EPILOG)(leaderboard_command.leaderboard)
app.command(epilog=demo_command.EPILOG)(demo_command.demo)
