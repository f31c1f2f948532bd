"""Options that take `KEY=VALUE` pairs: `--model-args hidden=16 layers=3` and `--set epochs=50`.

The parser of the command line takes one value for each option, so `one_pair_each` repeats the option before every further
pair; `read_pairs` turns the texts into a dict of Python values.
"""

import ast
from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand

from edgewise.errors import SettingError

PAIR_OPTIONS = ("--model-args", "--set")
_WORDS = {"true": True, "false": False, "none": None}


def one_pair_each(arguments: list[str]) -> list[str]:
    """Repeat the option before every `key=value` that follows it, as the parser wants it.

    >>> one_pair_each(["--model-args", "hidden=16", "layers=3", "--index", "4"])
    ['--model-args', 'hidden=16', '--model-args', 'layers=3', '--index', '4']
    """
    done: list[str] = []
    open_option = ""
    for argument in arguments:
        follows = open_option and done[-1] != open_option and "=" in argument and not argument.startswith("-")
        if follows:
            done.append(open_option)
        elif argument.startswith("-") or (done and done[-1] != open_option):
            open_option = argument if argument in PAIR_OPTIONS else ""
        done.append(argument)
    return done


class PairsCommand(TyperCommand):
    """A command some of whose options take several pairs in a row."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was typed after the name of the command."""
        return super().parse_args(ctx, one_pair_each(args))


def read_pairs(given: Iterable[str] | None, option: str) -> dict[str, Any]:
    """The values by name; several pairs may stand in one text. `option` is named in errors.

    >>> read_pairs(["hidden=64 dropout=0.5", "act=relu", "bias=false"], "--model-args")
    {'hidden': 64, 'dropout': 0.5, 'act': 'relu', 'bias': False}
    """
    found: dict[str, Any] = {}
    for pair in (part for text in given or () for part in text.split()):
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise SettingError(
                f"{option} must be a name and its value, got {pair!r}. Use {option} hidden=64, for example."
            )
        if name in found:
            raise SettingError(f"{option} names {name} twice. Use it once.")
        found[name] = read_value(value)
    return found


def read_value(text: str) -> Any:
    """A number, True, False, None, a tuple or list of such; anything else is the text itself.

    >>> [read_value(text) for text in ("3", "1e-3", "True", "none", "[8,8]", "relu")]
    [3, 0.001, True, None, [8, 8], 'relu']
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
