"""Tensors as they were, in the places where they are looked up: the parameters and buffers of a model."""

import operator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.model.contents import as_bits, same_tensor

_FEW = 2**16
"""Numbers that are copied to be compared in one go."""
_OFTEN = 8
"""From so many looks on it is worth to prepare for them."""


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
        """Whether all have their shapes and numbers; False may also mean that it takes a closer look."""
        self._looks += 1
        if self._looks == _OFTEN and self._has_views:
            self._live = self._views()
        if self._live is not None:
            return self._live.are_same()
        now: list[Any] = [table.get(key) for _, table, key in self._kept]
        try:
            if self._flat is None:
                return all(map(same_tensor, (before for before, _, _ in self._kept), now))
            if [tensor.shape for tensor in now] != self._shapes:
                return False
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in now])
            return flat.dtype == self._flat.dtype and torch.equal(as_bits(self._flat), as_bits(flat))
        except (RuntimeError, TypeError, AttributeError):  # another dtype or device, a sparse one, or no tensor at all
            return False

    def _views(self) -> _Live | None:
        """Views of the memory of all tensors as they are now; None where numpy cannot have them."""
        try:
            found = _Live(self._kept)
        except (RuntimeError, TypeError, ValueError, BufferError, KeyError):
            return None
        return found if found.are_same() else None
