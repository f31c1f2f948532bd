"""Code that draws from torch's global generators, made to draw from one of ours: in this thread, and for a block.

The global generators belong to the whole process. Whoever starts them anew and puts them back makes other threads draw numbers
twice; so they are left alone, and torch's operations are handed another generator instead.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgewise.torch_internals import TorchDispatchMode, schema_of


class OwnDraws(TorchDispatchMode):
    """Torch's draws in this thread come from generators that start at `seed`: the numbers that `torch.manual_seed(seed)` gives.

    >>> with OwnDraws(3):
    ...     drawn = torch.rand(2), torch.randn_like(torch.ones(2)), torch.randperm(4)
    >>> generator = torch.Generator().manual_seed(3)
    >>> torch.equal(drawn[0], torch.rand(2, generator=generator))
    True
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would wrap the method below so that it costs ten times as much

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}
        self._ours: dict[Any, Callable[..., Any] | None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in self._ours:
            self._ours[func] = _with_generator(func) if torch.Tag.nondeterministic_seeded in func.tags else None
        ours = self._ours[func]
        if ours is None or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        return ours(*args, **kwargs, generator=self._generator(args, kwargs))

    def _generator(self, args: Any, kwargs: Any) -> torch.Generator:
        tensors = [value for value in args if isinstance(value, Tensor)]
        place = torch.device(kwargs.get("device") or (tensors[0].device if tensors else "cpu"))
        if place not in self._generators:
            self._generators[place] = torch.Generator(place).manual_seed(self._seed)
        return self._generators[place]


def _with_generator(func: Any) -> Callable[..., Any] | None:
    """An operation that draws the same, from a generator that is given; None where torch has none (it then draws as ever)."""
    if str(func) in _LIKE:
        return _LIKE[str(func)]
    packet, names = func.overloadpacket, [argument.name for argument in schema_of(func).arguments]
    if "generator" in names:
        return func
    for overload in packet.overloads():
        other = getattr(packet, overload)
        others = [argument.name for argument in schema_of(other).arguments]
        if "generator" in others and [name for name in others if name != "generator"] == names:
            return other
    return None


def _rand_like(like: Tensor, *, generator: torch.Generator, **options: Any) -> Tensor:
    return torch.empty_like(like, **_plain(options)).uniform_(generator=generator)


def _randn_like(like: Tensor, *, generator: torch.Generator, **options: Any) -> Tensor:
    return torch.empty_like(like, **_plain(options)).normal_(generator=generator)


def _randint_like(like: Tensor, *ends: int, generator: torch.Generator, **options: Any) -> Tensor:
    low, high = ends if len(ends) > 1 else (0, *ends)
    return torch.empty_like(like, **_plain(options)).random_(low, high, generator=generator)


def _native_dropout(x: Tensor, p: float, train: Any, *, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    mask = torch.empty_like(x).bernoulli_(1 - p, generator=generator)
    return x * mask.div(1 - p) if p < 1 else x * mask, mask.bool()


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None and key != "pin_memory"}


_LIKE: dict[str, Callable[..., Any]] = {
    "aten.rand_like.default": _rand_like,
    "aten.randn_like.default": _randn_like,
    "aten.randint_like.default": _randint_like,
    "aten.randint_like.low_dtype": _randint_like,
    "aten.native_dropout.default": _native_dropout,
}
