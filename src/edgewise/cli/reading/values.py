"""`key=value` arguments."""

import ast
from collections.abc import Iterable
from typing import Any

from edgewise.errors import SettingError

_WORDS = {"true": True, "false": False, "none": None}


def read_pairs(given: Iterable[str] | None, option: str) -> dict[str, Any]:
    """The values by name; several pairs may stand in one text.

    >>> read_pairs(["hidden=64 dropout=0.5", "act=relu", "bias=false"], "--model-args")
    {'hidden': 64, 'dropout': 0.5, 'act': 'relu', 'bias': False}
    """
    found: dict[str, Any] = {}
    for pair in (part for text in given or () for part in text.split()):
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise SettingError(f"{option} got {pair!r}; needed is a name and its value, such as {option} hidden=64.")
        if name in found:
            raise SettingError(f"{option} names {name} twice; once is needed.")
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
