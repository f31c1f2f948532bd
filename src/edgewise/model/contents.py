"""Values as they were at one moment, and whether they are the same now, by what they hold and what they can reach."""

import copy
import math
import types
from collections import deque
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.model.bit_sums import bit_sums
from edgewise.model.code_names import same_code
from edgewise.model.reach import CodeReach

_LARGE = 2**22
"""Numbers of a tensor that is remembered by sums of its bits instead of a copy."""
_DEEPEST = 100
"""How many containers inside each other are looked into."""
_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, range, slice, frozenset)
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_CONTAINERS = (Mapping, list, deque, tuple, set)
_MANY = 1000
ANYTHING = object()
"""Stands for a value that the model itself changes while it runs."""


@dataclass(eq=False, slots=True)
class Container:
    """What consists of parts, as it was: its class, its parts by key, position or name, and the object itself."""

    kind: type
    parts: dict[Any, Any]
    live: Any
    is_loose: bool = False
    """Whether it may hold anything by now."""


@dataclass(frozen=True, slots=True)
class Summed:
    """A large tensor as it was."""

    like: tuple[Any, ...]
    sums: tuple[int, ...]


@dataclass(frozen=True)
class Difference:
    """Where two values differ: the way there, and the container with the key of what differs (None: all of it)."""

    way: tuple[Any, ...]
    container: Container | None = None
    key: Any = None


class Photographer:
    """Copies of values, for one model; what several of them share is looked at once.

    >>> photographer = Photographer(CodeReach([]))
    >>> options = {"scale": 2.0}
    >>> before = photographer.frozen(options)
    >>> options["scale"] = 2.5
    >>> same(before, options, photographer.reach)
    False
    """

    def __init__(self, reach: CodeReach) -> None:
        self.reach = reach
        self.containers: list[Container] = []
        self.leaves: list[tuple[Any, Any]] = []
        """Copies of tensors, arrays and sets, each with the object that it is a copy of."""
        self._known: dict[int, Container] = {}

    def frozen(self, value: Any, depth: int = _DEEPEST) -> Any:
        """A copy of what is compared by content, and everything else itself."""
        kind = type(value)
        if kind in _COMMON:
            return value
        if isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.dtype != object):
            return self._leaf(value)
        known = self._known.get(id(value))
        if known is not None:
            return known
        parts = self.reach.parts_of(value) if depth else None
        if parts is None:
            return self._leaf(value) if isinstance(value, set) else value
        found = self._known[id(value)] = Container(kind, {}, value)  # before its parts: one may hold it
        self.containers.append(found)
        found.parts.update((key, self.frozen(part, depth - 1)) for key, part in parts.items())
        return found

    def _leaf(self, value: Any) -> Any:
        copied = _copied(value)
        self.leaves.append((copied, value))
        return copied


_COMMON = frozenset((type(None), bool, int, float, str, types.CodeType, types.BuiltinFunctionType))


def _copied(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value.copy()
    if value.numel() >= _LARGE and value.layout == torch.strided and not value.is_quantized and not value.is_meta:
        return Summed(_like(value), bit_sums(value))
    return value.detach().clone()


def _like(value: Tensor) -> tuple[Any, ...]:
    return (value.dtype, value.shape, value.device, value.layout)


def same(before: Any, now: Any, reach: CodeReach) -> bool:
    """Whether a value is what it was when it was frozen."""
    if not isinstance(before, Container):
        return before is ANYTHING or is_same_leaf(before, now)
    return next(differences(before, now, reach), None) is None


def same_parts(before: Container, now: Any, reach: CodeReach) -> bool:
    """`same` for whoever watches each container inside as well: those only have to be the very objects that they were."""
    parts = reach.parts_of(now) if type(now) is before.kind else None
    if before.is_loose or parts is None or list(parts) != list(before.parts):
        return before.is_loose
    return all(
        (isinstance(part, Container) and part.live is value) or same(part, value, reach)
        for part, value in zip(before.parts.values(), parts.values(), strict=True)
    )


def differences(before: Any, now: Any, reach: CodeReach) -> Iterator[Difference]:
    """Where a value is not what it was."""
    return _differences(before, now, reach, (), {})


def _differences(
    before: Any, now: Any, reach: CodeReach, way: tuple[Any, ...], seen: dict[tuple[int, int], Any]
) -> Iterator[Difference]:
    if not isinstance(before, Container):
        if before is not ANYTHING and not is_same_leaf(before, now):
            yield Difference(way)
        return
    if (id(before), id(now)) in seen or before.is_loose:
        return
    seen[id(before), id(now)] = now  # kept alive: its identity must stay its own
    parts = reach.parts_of(now) if type(now) is before.kind else None
    if parts is None:
        yield Difference(way)
        return
    loose = {key for key, part in before.parts.items() if part is ANYTHING}
    keys = [key for key in before.parts if key not in loose]
    if [key for key in parts if key not in loose] != keys:
        extra = [*(key for key in keys if key not in parts), *(key for key in parts if key not in before.parts), None]
        yield Difference((*way, extra[0]) if extra[0] is not None else way, before, extra[0])
        return
    for key in keys:
        for found in _differences(before.parts[key], parts[key], reach, (*way, key), seen):
            yield found if found.container is not None else Difference(found.way, before, key)


def forgive(found: Difference) -> None:
    """From now on what differs there may be anything: a whole dictionary or sequence that has other keys or another length."""
    container = found.container
    if container is None:
        return
    if found.key is None or (found.key not in container.parts and issubclass(container.kind, (Mapping, list, deque))):
        container.is_loose = True
    else:
        container.parts[found.key] = ANYTHING


def is_same_leaf(before: Any, now: Any) -> bool:
    """The same for what has no parts: tensors and arrays bit by bit, plain values by value, all else by identity."""
    if before is now:
        return True
    if isinstance(before, Summed):
        return isinstance(now, Tensor) and before.like == _like(now) and before.sums == bit_sums(now)
    if isinstance(before, Tensor):
        return isinstance(now, Tensor) and same_tensor(before, now)
    if type(before) is not type(now):
        return False
    if isinstance(before, types.CodeType):
        return same_code(before, now)
    if isinstance(before, np.ndarray):
        return before.shape == now.shape and before.dtype == now.dtype and before.tobytes() == now.tobytes()
    if isinstance(before, float):
        return before.hex() == now.hex() or (math.isnan(before) and math.isnan(now))
    return isinstance(before, (set, *_PLAIN)) and bool(before == now)


def same_tensor(before: Tensor, now: Tensor) -> bool:
    """Whether two tensors are of one kind and equal bit by bit: 0 is not -0, and a missing number is equal to itself."""
    if _like(before) != _like(now):
        return False
    if before.layout != torch.strided:
        pairs = zip(_dense_parts(before), _dense_parts(now), strict=True)
        return before.is_meta or all(same_tensor(*pair) for pair in pairs)
    return torch.equal(as_bits(before), as_bits(now))


def as_bits(tensor: Tensor) -> Tensor:
    """A view of floating-point numbers as integers, so that equal means every bit."""
    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    if not plain.is_floating_point() or plain.is_meta:
        return plain
    return plain.resolve_neg().view(_INTEGERS[plain.element_size()])


def _dense_parts(tensor: Tensor) -> list[Tensor]:
    """The tensors that a sparse one consists of."""
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]


def objects_in(value: Any, depth: int = _DEEPEST) -> Iterator[tuple[Any, int]]:
    """What containers hold in the end, object by object, tensors with torch's count of changes: other ones after a write.

    >>> kept = {"log": [1, 2]}
    >>> list(objects_in(kept))
    [('log', 0), (1, 0), (2, 0)]
    """
    if isinstance(value, _CONTAINERS) and depth:
        parts = [part for pair in value.items() for part in pair] if isinstance(value, Mapping) else list(value)
        for part in parts:
            yield from objects_in(part, depth - 1)
    else:
        yield value, value._version if isinstance(value, Tensor) and not value.is_inference() else 0


def other_numbers(value: Any, depth: int = _DEEPEST) -> Any:
    """A copy with other numbers in it, and with more in its lists: who only writes there does not notice.

    >>> other_numbers({"steps": 1, "on": True})
    {'steps': 12346, 'on': False}
    """
    if isinstance(value, Tensor):
        return ~value if value.dtype == torch.bool else value * -3 + (17 if value.is_floating_point() else 12345)
    if isinstance(value, (bool, int, float)):
        return (not value) if isinstance(value, bool) else value + 12345 if isinstance(value, int) else value * -3 + 17
    if type(value) is tuple:
        return tuple(other_numbers(part, depth - 1) for part in value)
    if not isinstance(value, (MutableMapping, list, deque)) or not depth:
        return value
    other: Any = copy.copy(value)
    if isinstance(value, MutableMapping):
        for key, part in value.items():
            other[key] = other_numbers(part, depth - 1)
        return other
    parts = [other_numbers(part, depth - 1) for part in value]
    other.clear()
    other.extend(parts * _MANY)
    return other
