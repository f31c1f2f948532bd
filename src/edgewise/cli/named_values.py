"""`name=value` on the command line: settings of methods (`--set`) and arguments of a model (`--model-args`)."""

import ast
from collections.abc import Iterable
from typing import Any

from edgewise.errors import SettingError

_WORDS = {"true": True, "false": False, "none": None}
_OPTIONS = (
    "method",
    "level",
    "target",
    "task",
    "mode",
    "of",
    "output",
    "device",
    "memory",
    "seed",
    "top",
    "index",
    "threads",
)
_ARGUMENTS = ("model", "data", "progress", "forward", "stopped", "without_itself", "batch_size", "question")


def named_values(given: Iterable[str] | None, option: str) -> dict[str, Any]:
    """The values by name; several pairs may stand in one text. `option` is named in errors.

    >>> named_values(["hidden=64 dropout=0.5", "act=relu", "bias=false"], "--model-args")
    {'hidden': 64, 'dropout': 0.5, 'act': 'relu', 'bias': False}
    """
    found: dict[str, Any] = {}
    for pair in (part for text in given or () for part in text.split()):
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise SettingError(
                f"{option} must be a name and its value, got {pair!r}. Use {option} hidden=64, for example."
            )
        if option == "--set" and name in _OPTIONS:
            raise SettingError(f"--set is for settings of a method, and {name} is an option. Use --{name} {value}.")
        if option == "--set" and name in _ARGUMENTS:
            raise SettingError(f"--set is for settings of a method, and {name} is none. Leave it out.")
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
