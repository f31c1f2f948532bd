"""Options that take several values in a row: `--model-args hidden=16 layers=3`."""

from typing import Any

from typer.core import TyperCommand

SPREAD = ("--model-args", "--set")


def spread(arguments: list[str]) -> list[str]:
    """Every `key=value` that follows such an option gets an option of its own, as the parser wants it.

    >>> spread(["--model-args", "hidden=16", "layers=3", "--index", "4"])
    ['--model-args', 'hidden=16', '--model-args', 'layers=3', '--index', '4']
    """
    done: list[str] = []
    open_option = ""
    for argument in arguments:
        follows = open_option and done[-1] != open_option and "=" in argument and not argument.startswith("-")
        if follows:
            done.append(open_option)
        elif argument.startswith("-") or (done and done[-1] != open_option):
            open_option = argument if argument in SPREAD else ""
        done.append(argument)
    return done


class SpreadingCommand(TyperCommand):
    """A command whose arguments are spread before they are read."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Called with what was typed behind the command."""
        return super().parse_args(ctx, spread(args))
