"""One contract for all input: every public function checks its arguments against its own signature, before any work.

`checked` reads the annotations, such as `bool`, `int | None`, `Callable[…] | None` or `Sequence[int]`.
A call that does not fit them is refused in one sentence that says what came and what is needed. What an annotation cannot say
(choices, ranges, shapes) is checked by the function itself, with the words of `edgewise.arguments`.
"""

import inspect
import math
import numbers
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, SupportsIndex, TypeVar, cast

from edgewise.arguments import did_you_mean, shown
from edgewise.errors import EdgewiseError, InputError, NoRoomError, SettingError
from edgewise.iterators import PLAIN, read_out

Function = TypeVar("Function", bound=Callable[..., Any])

_LARGEST = 2**63 - 1
_EMPTY = inspect.Parameter.empty
_SEVERAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def checked(function: Function) -> Function:
    """Refuse calls that do not fit the signature; for public functions, methods and constructors.

    >>> @checked
    ... def draw(count: int, title: str | None = None, *, arrows: bool = True) -> int:
    ...     return count
    >>> draw(3, arrows=False)
    3
    >>> draw("3")
    Traceback (most recent call last):
    edgewise.errors.SettingError: `count` must be an integer, got '3'.
    >>> draw(3, arows=False)
    Traceback (most recent call last):
    edgewise.errors.SettingError: draw() has no argument `arows`. Did you mean 'arrows'?
    """
    signature = inspect.signature(function)
    kinds = {name: parts for name, p in signature.parameters.items() if (parts := _kinds(p))}
    defaults = {name: p.default for name, p in signature.parameters.items()}
    bind, parameters = _quick_binding(signature), list(signature.parameters)
    listed = frozenset(name for name in parameters if _is_listed(name, kinds.get(name, ())))
    label = re.sub(r"(_of)?_(question|request)$|\.__(init|call)__$", "", function.__qualname__)

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        args, options = _with_lists(parameters, listed, args, options)
        given = bind(args, options)
        if given is None:
            try:
                given = signature.bind(*args, **options).arguments
            except TypeError as error:
                raise _misfit(_name_of(label, args, signature), signature, options, error) from None
        _refuse_misfits(given, kinds, defaults)
        try:
            return function(*args, **options)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, EdgewiseError) or not _is_lack_of_memory(error):
                raise
            raise _no_room(_name_of(label, args, signature), error) from error

    return cast("Function", call)


def _with_lists(
    names: Sequence[str], listed: Collection[str], args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with lists in place of iterators, where a list may stand; anything else is refused later."""

    def read(name: str, value: Any) -> Any:
        return read_out(name, value) if type(value) not in PLAIN and name in listed else value

    read_args = tuple(read(names[min(place, len(names) - 1)], value) for place, value in enumerate(args))
    return read_args, {name: read(name, value) for name, value in options.items()}


def _is_listed(name: str, kinds: tuple[str, ...]) -> bool:
    """Whether a list, or anything, may stand for an argument."""
    may_be = not kinds or any(kind.partition("[")[0] in (*_LISTS, "Mapping") for kind in kinds)
    return may_be and name != "self"


def _refuse_misfits(
    given: Mapping[str, Any], kinds: Mapping[str, tuple[str, ...]], defaults: Mapping[str, Any]
) -> None:
    for name, value in given.items():
        if isinstance(value, range) and value[_MOST:]:
            raise InputError(f"`{name}` must be numbers that fit in memory, got {shown(value)}. Use a shorter range.")
        parts = kinds.get(name)
        if parts is not None and value is not defaults[name] and not any(fits(part, value) for part in parts):
            raise _wrong_kind(name, parts, value, defaults[name])
        if odd := _odd_kind(value):
            raise InputError(f"`{name}` must be plain numbers, got {odd} tensor. Use a dense one, on a device.")


_MOST = 2**31
"""Numbers that a range may have: more are read for minutes, or fill the memory."""


def _odd_kind(value: Any) -> str:
    """How a tensor has no plain numbers: a meta, nested, quantised or sparse one; empty for anything else."""
    if type(value) in PLAIN or "Tensor" not in [part.__name__ for part in type(value).__mro__]:
        return ""
    kinds = {"a meta": "is_meta", "a nested": "is_nested", "a quantised": "is_quantized", "a sparse": "is_sparse"}
    kinds["a compressed sparse"] = "is_sparse_csr"
    return next((kind for kind, name in kinds.items() if getattr(value, name, False)), "")


def _is_lack_of_memory(error: Exception) -> bool:
    """Python's, numpy's and CUDA's error have classes of their own; those of torch for the CPU and of pyarrow have not."""
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return True
    return any(words in str(error) for words in ("can't allocate", "bad_alloc"))


def _no_room(label: str, error: Exception) -> NoRoomError:
    said = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    return NoRoomError(
        f"{label}() needs more memory than there is ({said}). Use fewer targets at once, memory='500MB' where it is an "
        f"argument, or smaller data."
    )


def _name_of(label: str, args: tuple[Any, ...], signature: inspect.Signature) -> str:
    """What a user calls a function: a method by the class of its object, not by the class that has it written down."""
    is_method = "." in label and bool(args) and next(iter(signature.parameters), "") == "self"
    return f"{type(args[0]).__name__}.{label.rpartition('.')[2]}" if is_method else label


def _quick_binding(signature: inspect.Signature) -> Callable[..., dict[str, Any] | None]:
    """A function that names the arguments of a call, or gives None where it takes a closer look; inspect's is ten times slower.

    >>> bind = _quick_binding(inspect.signature(lambda count, *, arrows=True: None))
    >>> bind((3,), {"arrows": False}), bind((3, 4), {}), bind((), {})
    ({'count': 3, 'arrows': False}, None, None)
    """
    parameters = signature.parameters.values()
    if any(p.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY) for p in parameters):
        return lambda args, options: None
    places = [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    named = {p.name for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD}
    needed = {p.name for p in parameters if p.default is _EMPTY and p.kind is not inspect.Parameter.VAR_KEYWORD}
    is_open = len(named) < len(signature.parameters)

    def bind(args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any] | None:
        if len(args) > len(places):
            return None
        given = dict(zip(places, args, strict=False))
        if not given.keys().isdisjoint(options) or not (is_open or named.issuperset(options)):
            return None
        given.update(options)
        return given if needed <= given.keys() else None

    return bind


def _kinds(parameter: inspect.Parameter) -> tuple[str, ...]:
    """The alternatives that an annotation names, as words without their modules; empty where anything goes."""
    if parameter.annotation is _EMPTY or parameter.kind in _SEVERAL:
        return ()
    written = parameter.annotation
    text = written if isinstance(written, str) else inspect.formatannotation(written)
    parts = _alternatives(re.sub(r"\b(?:\w+\.)+(?=\w)", "", text.strip("'\"")))
    return () if _ELSEWHERE & set(parts) else parts


_ELSEWHERE = {"Any", "object", "Module", "Method", "ExplainerAlgorithm"}
"""Refused by the functions themselves, with more than a word on their kind."""


def _alternatives(text: str) -> tuple[str, ...]:
    """Split at the bars that are outside of brackets.

    >>> _alternatives("Sequence[int | str] | None")
    ('Sequence[int | str]', 'None')
    """
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return tuple(part.strip().strip("'\"") for part in parts)


def fits(kind: str, value: Any) -> bool:
    """Whether a value is of a kind, as an annotation names it.

    >>> fits("int", 3), fits("int", True), fits("float", float("nan")), fits("Sequence[int]", [1, "a"])
    (True, False, False, False)
    """
    name, _, inner = kind.partition("[")
    test = _TESTS.get(name)
    if test is None:  # a class: known by its name, so that nothing has to be imported
        return any(part.__name__ == name for part in type(value).__mro__)
    try:
        return test(value) and (name not in _LISTS or _all_fit(inner.rstrip("]"), value))
    except Exception:  # a stranger's object may fail at any question
        return False


def _all_fit(inner: str, value: Iterable[Any]) -> bool:
    """Whether every entry of a list is of the kind in the brackets; what can be read only once is not looked into."""
    kinds = _alternatives(inner)
    if iter(value) is value or not inner or inner in ("Any", "...") or "[" in inner:
        return True
    return all(any(fits(kind, entry) for kind in kinds) for entry in value)


def _is_whole(value: Any) -> bool:
    """A whole number, numpy's too; a tensor or an array with one entry is none."""
    if type(value) is int:
        return -_LARGEST <= value <= _LARGEST
    if isinstance(value, bool) or not isinstance(value, SupportsIndex) or hasattr(value, "__len__"):
        return False
    return -_LARGEST <= int(value) <= _LARGEST


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _is_list(value: Any) -> bool:
    return (
        isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)) and getattr(value, "ndim", 1) > 0
    )


_TESTS: dict[str, Callable[[Any], bool]] = {
    "None": lambda value: value is None,
    "bool": lambda value: isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"),
    "int": _is_whole,
    "float": _is_number,
    "str": lambda value: isinstance(value, str),
    "Path": lambda value: isinstance(value, os.PathLike),
    "Callable": callable,
    "Sequence": _is_list,
    "Iterable": _is_list,
    "Collection": _is_list,
    "Mapping": lambda value: isinstance(value, Mapping),
}
_LISTS = ("Sequence", "Iterable", "Collection")

_WORDS = {
    "bool": "True or False",
    "int": "an integer",
    "float": "a finite number",
    "str": "a text",
    "Path": "a path",
    "Callable": "a function",
    "Mapping": "a dict",
    "Module": "a torch.nn.Module",
    "Tensor": "a tensor",
}


def in_plain_words(kind: str) -> str:
    """A kind as people say it.

    >>> in_plain_words("Sequence[int]"), in_plain_words("Callable[..., Tensor]"), in_plain_words("ExplanationSet")
    ('a list (int)', 'a function', 'an ExplanationSet')
    """
    name, _, inner = kind.partition("[")
    if name in _LISTS:
        return f"a list ({inner.rstrip(']')})" if inner and "[" not in inner else "a list"
    article = "" if name == "None" else "an " if name[0] in "AEIOU" else "a "
    return _WORDS.get(name, f"{article}{name}")


def _wrong_kind(name: str, kinds: tuple[str, ...], value: Any, default: Any) -> EdgewiseError:
    """A number, text or switch of another kind is a wrong setting; anything else a wrong input."""
    words = " or ".join(dict.fromkeys(in_plain_words(kind) for kind in kinds))
    is_setting = all(kind.partition("[")[0] in _TESTS for kind in kinds)
    example = (
        f" Use {name}={default!r}, for example." if type(default) in (bool, int, float, str) and default != "" else ""
    )
    return (SettingError if is_setting else InputError)(f"`{name}` must be {words}, got {shown(value)}.{example}")


def _misfit(label: str, signature: inspect.Signature, options: Mapping[str, Any], error: TypeError) -> SettingError:
    """What is wrong with a call whose arguments cannot be matched with the parameters."""
    known = [name for name in signature.parameters if name != "self"]
    unknown = [name for name in options if name not in known]
    if unknown:
        return SettingError(f"{label}() has no argument `{unknown[0]}`.{did_you_mean(unknown[0], known)}")
    missing = re.search(r"missing a required argument: '(\w+)'", str(error)) or re.search(r"'(\w+)'", str(error))
    if missing and "missing" in str(error):
        return SettingError(f"{label}() needs `{missing.group(1)}`. Its arguments are: {', '.join(known)}.")
    return SettingError(f"{label}() cannot be called so ({error}). Its arguments are: {', '.join(known)}.")
