"""Where piecewise linear functions have their kinks: ReLU in all its spellings, `clamp`, `maximum`, `abs`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from edgewise.program.ir import Ref, RowStep
from edgewise.program.operations import Kind, kind_of, plain_name


@dataclass(frozen=True, eq=False)
class Bend:
    """A function with a kink at `at`: x ↦ at + below · (x − at) on the left of it, at + above · (x − at) on the right.

    ReLU has `at` = 0, `below` = 0, `above` = 1; `clamp(max=6)` has 6, 1 and 0; `abs` has 0, −1 and 1.
    """

    below: Any
    above: Any
    at: Any = 0
    """A number, a tensor that is added to each row, or whatever stands for a value of the model (`maximum(a, b)`)."""
    kink: Any = None
    """The derivative that autograd has at the kink itself: 0 for ReLU, 1 for `clamp(min=0)`, ½ for `maximum`."""

    @property
    def is_off_at_kink(self) -> bool:
        """Whether the derivative at the kink is that on the left."""
        return _is_same(self.kink, self.below)

    @property
    def is_on_at_kink(self) -> bool:
        """Whether the derivative at the kink is that on the right."""
        return _is_same(self.kink, self.above)


def _is_same(a: Any, b: Any) -> bool:
    return a is b if isinstance(a, Tensor) or isinstance(b, Tensor) else bool(a == b)


def bends(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Bend, ...]] | None:
    """What a piecewise linear function reads, and its kinks, to be applied one after the other; None if it is no such function.

    >>> import torch; from torch.nn import functional; x = torch.ones(2)
    >>> [(bend.at, bend.below, bend.above) for bend in bends(functional.relu6, (x,), {})[1]]
    [(0, 0, 1), (6, 1, 0)]
    >>> bends(torch.tanh, (x,), {}), bends(functional.threshold, (x, 0, 5), {})                # a jump is no kink
    (None, None)
    """
    name = plain_name(function)
    if kind_of(function, args) is not Kind.RECTIFIER:
        return None
    name = {"max": "maximum", "min": "minimum", "clip": "clamp", "clamp_min": "clamp"}.get(name, name)
    names, read = _BENT[name]
    given = {**dict(zip(("input", *names), args, strict=False)), **kwargs}
    found = read(**{key: given[key] for key in names if key in given})
    return None if found is None else (given["input"], found)


def rectifier_bend(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Bend | None:
    """The kink of a ReLU or leaky ReLU, in any spelling, with a number `below` from 0 up to 1; None for any other function.

    >>> import torch; from torch.nn import functional; x = torch.ones(2)
    >>> rectifier_bend(functional.leaky_relu, (x, 0.2), {}).below, rectifier_bend(torch.clamp, (x,), {"min": 0}).below
    (0.2, 0.0)
    >>> rectifier_bend(torch.clamp, (x,), {"min": 1}), rectifier_bend(torch.abs, (x,), {})
    (None, None)
    """
    found = bends(function, args, kwargs)
    if found is None or len(found[1]) != 1:
        return None
    (bend,) = found[1]
    at = bool(bend.at.any()) if isinstance(bend.at, Tensor) else bend.at
    below = bend.below.item() if isinstance(bend.below, Tensor) and bend.below.numel() == 1 else bend.below
    if not isinstance(at, (int, float)) or not isinstance(below, (int, float)) or bend.above != 1:
        return None
    return (
        Bend(float(below), 1, kink=below if bend.is_off_at_kink else bend.kink) if at == 0 and 0 <= below < 1 else None
    )


def _leaky(below: Any) -> tuple[Bend, ...]:
    return (Bend(below, 1, kink=below),)


@cache
def _at_bound(*, is_tensor: bool) -> float:
    """The derivative of `clamp` at its bound: 1 with torch 2.13; with 2.15 it is 0, or ½ at a bound that is a tensor."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        at = torch.zeros(1, requires_grad=True)
        (slope,) = torch.autograd.grad(at.clamp(min=torch.zeros(1) if is_tensor else 0).sum(), at)
    return float(slope)


def _clamp(min: Any = None, max: Any = None) -> tuple[Bend, ...]:  # noqa: A002 (torch's names)
    kinks = [_at_bound(is_tensor=isinstance(one, Tensor)) for one in (min, max)]
    low = () if min is None else (Bend(0, 1, min, kink=kinks[0]),)
    return low if max is None else (*low, Bend(1, 0, max, kink=kinks[1]))


def _hardtanh(min_val: float = -1.0, max_val: float = 1.0) -> tuple[Bend, ...]:
    return Bend(0, 1, min_val, kink=0), Bend(1, 0, max_val, kink=0)


_BENT: dict[str, tuple[tuple[str, ...], Callable[..., tuple[Bend, ...] | None]]] = {
    "relu": ((), lambda: _leaky(0)),
    "leaky_relu": (("negative_slope",), lambda negative_slope=0.01: _leaky(negative_slope)),
    "prelu": (("weight",), lambda weight: _leaky(weight)),
    "rrelu": (("lower", "upper"), lambda lower=1 / 8, upper=1 / 3: _leaky((lower + upper) / 2)),
    "threshold": (
        ("threshold", "value"),
        lambda threshold, value: (Bend(0, 1, threshold, kink=0),) if threshold == value else None,
    ),
    "relu6": ((), lambda: _hardtanh(0, 6)),
    "hardtanh": (("min_val", "max_val"), _hardtanh),
    "clamp": (("min", "max"), _clamp),
    "clamp_max": (("max",), lambda max: _clamp(max=max)),  # noqa: A006
    "maximum": (("other",), lambda other: (Bend(0, 1, other, kink=0.5),)),
    "minimum": (("other",), lambda other: (Bend(1, 0, other, kink=0.5),)),
    "abs": ((), lambda: (Bend(-1, 1, kink=0),)),
}


def rectifier(segment: list[RowStep]) -> float | None:
    """The slope below zero, if a segment is one ReLU (0) or leaky ReLU and nothing else; otherwise None.

    Spellings whose derivative at 0 is not that below zero (`clamp(min=0)`) are left to autograd.
    """
    if len(segment) != 1 or len(segment[0].sources) != 1:
        return None
    (step,) = segment
    (source,) = step.sources
    if not isinstance(source, Ref) or source.own_call is not None:
        return None
    bend = rectifier_bend(step.function, *step.arguments)
    return float(bend.below) if bend is not None and bend.is_off_at_kink else None
