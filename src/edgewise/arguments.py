"""Checks of arguments that many functions share, so that every refusal reads alike: "`x` must be …, got …. Use …"."""

import sys
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from operator import index
from reprlib import Repr
from typing import Any, TypeVar

from edgewise.errors import EdgewiseError, SettingError

_LARGEST = 2**63 - 1
Choice = TypeVar("Choice", bound=str)


def whole_number(
    name: str,
    value: Any,
    *,
    at_least: int | None = None,
    or_none: str = "",
    such_as: int | None = None,
    error: type[EdgewiseError] = SettingError,
) -> Any:
    """An int (numpy's too), or None where `or_none` says what that means.

    >>> whole_number("k", 3, at_least=1)
    3
    >>> whole_number("top", None, at_least=1, or_none="for all edges") is None
    True
    >>> whole_number("k", 0, at_least=1, such_as=10)
    Traceback (most recent call last):
    edgewise.errors.SettingError: `k` must be an integer ≥ 1, got 0. Use k=10, for example.
    """
    if value is None and or_none:
        return None
    try:
        number = None if isinstance(value, bool) or hasattr(value, "requires_grad") else index(value)
    except Exception:  # an array may have no number and is asked for it all the same; a stranger's object may fail
        number = None
    if number is not None and abs(number) <= _LARGEST and (at_least is None or number >= at_least):
        return number
    wanted = "an integer" if at_least is None else f"an integer ≥ {at_least}"
    wanted += f", or None {or_none}" if or_none else ""
    raise error(f"`{name}` must be {wanted}, got {shown(value)}.{_example(name, such_as)}")


def real_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    such_as: float | None = None,
    hint: str = "",
) -> float:
    """A finite float within the bounds; `hint` is a sentence that ends the refusal.

    >>> real_number("noise", 0, above=0, such_as=0.1)
    Traceback (most recent call last):
    edgewise.errors.SettingError: `noise` must be a number > 0, got 0. Use noise=0.1, for example.
    """
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    fits = fits and (above is None or value > above) and (at_least is None or value >= at_least)
    if fits and (at_most is None or value <= at_most):
        return float(value)
    bound = "" if above is None else f" > {above:g}"
    bound = bound if at_least is None else f" ≥ {at_least:g}"
    bound += "" if at_most is None else f"{' and' if bound else ''} ≤ {at_most:g}"
    raise SettingError(
        f"`{name}` must be a number{bound}, got {shown(value)}.{_example(name, such_as)}{hint and ' ' + hint}"
    )


def share(name: str, value: Any, *, such_as: float) -> float:
    """A float strictly between 0 and 1.

    >>> share("confidence", 95, such_as=0.95)
    Traceback (most recent call last):
    edgewise.errors.SettingError: `confidence` must be between 0 and 1, got 95. Use confidence=0.95, for example.
    """
    if isinstance(value, float) and 0 < value < 1:
        return value
    raise SettingError(f"`{name}` must be between 0 and 1, got {shown(value)}.{_example(name, such_as)}")


def one_of(
    name: str, value: Any, choices: Iterable[Choice], *, also: str = "", error: type[EdgewiseError] = SettingError
) -> Choice:
    """One of several names, with "did you mean"; `also` ends the list ("or None to infer it").

    >>> one_of("level", "layers", ["input", "layer"])
    Traceback (most recent call last):
    edgewise.errors.SettingError: Unknown level 'layers'. Choose one of: input, layer. Did you mean 'layer'?
    """
    known = list(choices)
    if isinstance(value, str) and value in known:
        return value
    listed = ", ".join(known) + (f", {also}" if also else "")
    raise error(f"Unknown {name} {shown(value)}. Choose one of: {listed}.{did_you_mean(value, known)}")


def did_you_mean(value: Any, choices: Collection[str]) -> str:
    """A sentence that names the nearest choice, with a space in front; empty if none is near.

    >>> did_you_mean("gradeint", ["gradient", "occlusion"])
    " Did you mean 'gradient'?"
    """
    near = get_close_matches(value, list(choices), n=1) if isinstance(value, str) else []
    return f" Did you mean {near[0]!r}?" if near else ""


def are_texts(names: Any) -> bool:
    """Whether names came one by one, and none of them is a list or a table of further ones.

    >>> are_texts(["Ann", 3]), are_texts([["Ann"]]), are_texts("Ann")
    (True, False, False)
    """
    each = isinstance(names, Iterable) and not isinstance(names, (str, bytes))
    return each and not any(isinstance(one, Collection) and not isinstance(one, (str, bytes)) for one in names)


_BRIEF = Repr()  # a list may hold another one many times: what is cut off must not be written first
_BRIEF.maxlevel, _BRIEF.maxlist, _BRIEF.maxtuple, _BRIEF.maxset, _BRIEF.maxdict = 3, 40, 40, 40, 40
_BRIEF.maxstring = _BRIEF.maxother = 200


def shown(value: Any, longest: int = 80) -> str:
    """What came, in a few words on one line: its kind and the beginning of what it is.

    >>> shown("3"), shown(None), shown([1] * 100)
    ("'3'", 'None', 'list [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,...')
    """
    try:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple) and hasattr(value, "dtype"):
            return f"a {type(value).__name__} of shape {list(shape)}, {value.dtype}"
        plain = value is None or isinstance(value, (bool, int, float, str))
        text = " ".join((repr(value) if plain else f"{type(value).__name__} {_BRIEF.repr(value)}").split())
    except Exception:  # a stranger's `__repr__` may fail
        text = type(value).__name__
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _example(name: str, such_as: float | None) -> str:
    return "" if such_as is None else f" Use {name}={such_as!r}, for example."
