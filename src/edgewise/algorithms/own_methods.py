"""Methods of other people beside ours: registered in Python, or by an installed package (entry points `edgewise.methods`).

A method is a function of a `Score`; it appears in `ew.methods()`, `explain`, `compare`, the command line and the page like any
other. Names that are taken are refused.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import torch
from torch import Tensor

from edgewise.algorithms.registry import Method, built_in_methods, check_level, registered_methods
from edgewise.arguments import shown
from edgewise.contract import checked
from edgewise.errors import EdgewiseError, SettingError
from edgewise.score import LEVELS, CopyScores, Score

GROUP = "edgewise.methods"
"""The group of entry points: `name = "module:function"` in the `pyproject.toml` of another package."""


@checked
def register_method(
    name: str,
    function: Callable[..., Any],
    *,
    levels: Sequence[str] = LEVELS,
    settings: Mapping[str, Any] | None = None,
    cost: str = "not said",
    reference: str = "registered",
) -> None:
    """Put a function of a `Score` beside the methods of Edgewise, for this process.

    Args:
        name: By which it is asked for: `ew.explain(..., method=name)`.
        function: `function(score, *, level, seed, **settings)`. It returns a number for each edge copy, `[L, M]` at layer level
            and `[M]` at input level, or a pair of that and the numbers of the nodes' own terms, `[L, S]` or `[S]`.
        levels: The levels that it knows; the others raise.
        settings: Names and defaults of its own settings; `None` reads them off the function's keyword arguments.
        cost: What a target costs, in words, for the table.
        reference: Where it comes from, for the table.

    >>> import edgewise as ew
    >>> def halves(score, *, level, seed):
    ...     return torch.full((score.num_layers, len(score.edge_id)), 0.5)
    >>> ew.register_method("halves", halves, levels=["layer"])
    >>> ew.methods()["halves"].levels
    ('layer',)
    >>> _ = registered_methods.pop("halves")                   # so that this example leaves nothing behind
    """
    registered_methods[_free(name)] = _as_method(name, function, tuple(levels), settings, cost, reference)


def _free(name: str) -> str:
    """The name, if it can be typed and nobody has it."""
    if not name.isidentifier():
        raise SettingError(f"`name` must be a word such as 'my_method', got {shown(name)}.")
    if name in built_in_methods() or name in registered_methods:
        raise SettingError(f"The name {name!r} is taken by another method. Choose another one.")
    return name


def _as_method(
    name: str,
    function: Callable[..., Any],
    levels: tuple[str, ...],
    settings: Mapping[str, Any] | None,
    cost: str,
    reference: str,
) -> Method:
    if not levels:
        raise SettingError("`levels` must name at least one level. Use levels=('input', 'layer').")
    for level in levels:
        check_level(level)
    own = _keywords(function) if settings is None else dict(settings)

    def run(score: Score, level: str, *, seed: int, **given: Any) -> CopyScores:
        try:
            found = function(score, level=level, seed=seed, **given)
        except EdgewiseError:
            raise
        except Exception as error:  # a stranger's code
            raise SettingError(f"The method {name!r} raised {type(error).__name__}: {error}.") from error
        return _read(name, found, score, level)

    run.__wrapped__ = function  # type: ignore[attr-defined]  # so that others can tell whether it is still the same function
    return Method(name, run, cost, reference, own, levels, seeded=True)


def _keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """The function's keyword arguments with defaults, apart from `level` and `seed`."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {p.name: p.default for p in found if p.kind is p.KEYWORD_ONLY and p.default is not p.empty}


def _read(name: str, found: Any, score: Score, level: str) -> CopyScores:
    """The scores of a block, refused unless there is a finite number for each copy."""
    edge, own = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    layers = (score.num_layers,) if level == "layer" else ()
    for what, part, copies in (("edge copy", edge, score.edge_id), ("own term", own, score.self_node)):
        if part is None and what == "own term":
            continue
        wanted = (*layers, len(copies))
        if not isinstance(part, Tensor) or tuple(part.shape) != wanted:
            raise SettingError(
                f"The method {name!r} must return a number for each {what}, a tensor of shape {list(wanted)} at {level} "
                f"level, got {shown(part)}."
            )
        if not bool(torch.isfinite(part).all()):
            raise SettingError(f"The method {name!r} returned NaN or infinite numbers.")
    like = score.target.truth
    return CopyScores(edge.detach().to(like), None if own is None else own.detach().to(like))


@cache
def load_entry_points() -> None:
    """Register the methods of installed packages, once; one that cannot be loaded is named in a warning."""
    for point in entry_points(group=GROUP):
        _load(point)


def _load(point: EntryPoint) -> None:
    try:
        function = point.load()
        levels, settings = getattr(function, "levels", LEVELS), getattr(function, "settings", None)
        register_method(point.name, function, levels=levels, settings=settings, reference=f"package {point.value}")
    except Exception as error:  # a stranger's package must not take ours down
        warnings.warn(f"The method {point.name!r} of {point.value} was left out: {error}", UserWarning, stacklevel=2)
