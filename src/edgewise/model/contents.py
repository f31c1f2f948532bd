"""Values as they were at one moment, and whether they are the same now: tensors, arrays, containers by what they hold."""

import dataclasses
import math
import operator
from collections import OrderedDict
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

DEPTH = 4
"""How many containers inside each other are looked into."""
_FEW = 2**16
"""Numbers that are copied to be compared in one go."""
_OFTEN = 8
"""From so many looks on it is worth to prepare for them."""
_COMMON = frozenset((type(None), bool, int, float, str))
_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, range, slice, Enum)


@dataclasses.dataclass(frozen=True, eq=False)
class Container:
    """A container as it was: its class, its keys or positions, and its parts."""

    kind: type
    parts: dict[Any, Any]


def parts_of(value: Any) -> dict[Any, Any] | None:
    """What a container holds, by key or position; `None` for anything else."""
    if type(value) in (list, tuple):
        return dict(enumerate(value))
    if type(value) in (dict, OrderedDict):
        return dict(value)
    if isinstance(value, (Data, HeteroData)):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: getattr(value, item.name, None) for item in dataclasses.fields(value)}
    return None


def frozen(value: Any, depth: int) -> Any:
    """A copy of what is compared by content, and everything else itself."""
    if type(value) in _COMMON or isinstance(value, _PLAIN):
        return value
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, (np.ndarray, set)):
        return value.copy()
    parts = parts_of(value) if depth else None
    if parts is None:
        return value
    return Container(type(value), {key: frozen(part, depth - 1) for key, part in parts.items()})


def same(before: Any, now: Any) -> bool:
    """Whether a value is what it was when it was frozen."""
    if before is now:
        return True
    if isinstance(before, Tensor):
        return isinstance(now, Tensor) and _same_tensor(before, now)
    if isinstance(before, Container):
        return type(now) is before.kind and _same_parts(before.parts, parts_of(now) or {})
    if type(before) is not type(now):
        return False
    if isinstance(before, np.ndarray):
        return np.array_equal(before, now, equal_nan=before.dtype.kind in "fc")
    if isinstance(before, (set, *_PLAIN)):
        return before == now or (isinstance(before, float) and math.isnan(before) and math.isnan(now))
    return False


def _same_parts(before: dict[Any, Any], now: dict[Any, Any]) -> bool:
    return list(before) == list(now) and all(same(part, now[key]) for key, part in before.items())


def _same_tensor(before: Tensor, now: Tensor) -> bool:
    if (before.dtype, before.shape, before.device, before.layout) != (now.dtype, now.shape, now.device, now.layout):
        return False
    if before.layout != torch.strided:
        return all(_same_tensor(a, b) for a, b in zip(_dense_parts(before), _dense_parts(now), strict=True))
    if torch.equal(before, now):
        return True
    if not (before.is_floating_point() or before.is_complex()):
        return False
    return bool(((before == now) | (before.isnan() & now.isnan())).all())


def _dense_parts(tensor: Tensor) -> list[Tensor]:
    """The tensors that a sparse one consists of."""
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]


class _Live:
    """Tensors in their places, with views of their memory: a look at one takes half a microsecond.

    Views are made through dlpack, which unlike `.numpy()` leaves no mark on a tensor. They are read only while the tensors are
    the same ones, in the same memory, so they can never point to memory that is gone.
    """

    __slots__ = ("_before", "_layouts", "_places", "_tensors", "_views")

    def __init__(self, kept: list[tuple[Tensor, dict[str, Any], str]]) -> None:
        self._places = [(table, key) for _, table, key in kept]
        self._tensors: list[Tensor] = [table[key] for table, key in self._places]
        self._layouts = _layouts(self._tensors)
        self._views = [np.from_dlpack(tensor.detach()) for tensor in self._tensors]
        self._before = [before.contiguous().numpy().tobytes() for before, _, _ in kept]

    def are_same(self) -> bool:
        """Whether all are where they were, with the numbers that they had."""
        now = [table.get(key) for table, key in self._places]
        if not all(map(operator.is_, now, self._tensors)) or _layouts(self._tensors) != self._layouts:
            return False
        return [view.tobytes() for view in self._views] == self._before


def _layouts(tensors: list[Tensor]) -> tuple[list[int], list[torch.Size], list[tuple[int, ...]]]:
    return (
        [tensor.data_ptr() for tensor in tensors],
        [tensor.shape for tensor in tensors],
        [tensor.stride() for tensor in tensors],
    )


class KeptTensors:
    """Tensors as they were, in places where they are looked up again; few numbers are compared in one go.

    >>> places = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}
    >>> kept = KeptTensors([(value.clone(), places, name) for name, value in places.items()])
    >>> kept.are_same()
    True
    >>> places["bias"][1] = 1.0
    >>> kept.are_same()
    False
    """

    def __init__(self, kept: list[tuple[Tensor, dict[str, Any], str]]) -> None:
        self._kept = kept
        self._shapes = [before.shape for before, _, _ in kept]
        kinds = {(before.dtype, before.device, before.layout) for before, _, _ in kept}
        few = sum(before.numel() for before, _, _ in kept) < _FEW
        dense = all(before.layout == torch.strided for before, _, _ in kept)
        self._flat = (
            torch.cat([before.reshape(-1) for before, _, _ in kept]) if len(kinds) == 1 and few and dense else None
        )
        self._looks = 0
        self._live: _Live | None = None
        self._has_views = self._flat is not None and not self._flat.is_cuda

    def are_same(self) -> bool:
        """Whether all have their shapes and numbers; False may also mean that it takes a closer look (a NaN, say)."""
        self._looks += 1
        if self._looks == _OFTEN and self._has_views:
            self._live = self._views()
        if self._live is not None:
            return self._live.are_same()
        now: list[Any] = [table.get(key) for _, table, key in self._kept]
        try:
            if self._flat is None:
                return all(map(torch.equal, (before for before, _, _ in self._kept), now))
            if [tensor.shape for tensor in now] != self._shapes:
                return False
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in now])
            return flat.dtype == self._flat.dtype and torch.equal(self._flat, flat)
        except (RuntimeError, TypeError, AttributeError):  # another dtype or device, a sparse one, or no tensor at all
            return False

    def _views(self) -> _Live | None:
        """Views of the memory of all tensors as they are now; None where numpy cannot have them."""
        try:
            found = _Live(self._kept)
        except (RuntimeError, TypeError, ValueError, BufferError, KeyError):
            return None
        return found if found.are_same() else None
