"""What counts as proof that two ways of running a model are the same function.

Outputs are compared column by column, on the scale on which weights change them: a class that is masked with −1e9, or a
regression near 30,000, must not hide a difference of 1. Rounding of the numbers themselves is allowed for.
"""

import warnings
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from edgewise import random_numbers
from edgewise.errors import LocalityWarning

_PROBE_SEED = 20250803
_ROUNDING = 32.0
"""How many units in the last place of a number may come from another order of summation."""
NOT_REPEATABLE = (
    "The model gives another output on the same input each time, although it is in eval mode. Does forward draw random "
    "numbers, such as dropout with training=True (F.dropout's default)? Use F.dropout(x, training=self.training)."
)

PICKS_ROWS = (
    "forward takes the largest of all nodes, or their order, which another node may be as soon as a number changes"
)
"""Why neighbourhoods are not enough although they may give the same values."""
NORMALISES = "forward computes edge weights from nodes, and a layer may normalise them by sums at the senders"
"""The same: those sums depend on nodes one hop further away."""


def tolerance(dtype: torch.dtype) -> float:
    """The share of a change by which two computations of it may differ."""
    return 1e-9 if dtype == torch.float64 else 1e-4


def close(found: Tensor, true: Tensor, scale: Tensor | None = None) -> bool:
    """Equal up to rounding; `scale` `[columns]` is how much weights change each column (None: as large as its numbers).

    >>> true = torch.tensor([[1.0, -1e9], [2.0, -1e9]])
    >>> close(true + torch.tensor([0.1, 0.0]), true)              # a large column does not excuse a small one
    False
    """
    if found.shape != true.shape:
        return False
    if not true.numel():
        return True
    size = true.abs().amax(dim=0).clamp(min=1e-30)
    scale = size if scale is None else scale.to(size)
    allowed = tolerance(true.dtype) * scale + _ROUNDING * torch.finfo(true.dtype).eps * size
    same = (found - true).abs() <= allowed
    return bool(same.all()) or _close_but_for_nan(found, true, scale)


def _close_but_for_nan(found: Tensor, true: Tensor, scale: Tensor) -> bool:
    """The same where some rows are no numbers: they must be so in both, and say nothing about the size of the others."""
    finite = true.isfinite()
    if bool(finite.all()):
        return False
    odd = (found == true) | (found.isnan() & true.isnan())
    if not bool((odd | finite).all()):
        return False
    size = torch.where(finite, true, 0).abs().amax(dim=0).clamp(min=1e-30)
    allowed = tolerance(true.dtype) * torch.where(scale.isfinite(), scale, size)
    allowed = allowed + _ROUNDING * torch.finfo(true.dtype).eps * size
    return bool((((found - true).abs() <= allowed) | ~finite).all())


def _largest(rows: Tensor) -> Tensor:
    """`[columns]`: the largest magnitude of each column, of what is a number."""
    return rows.abs().nan_to_num(0.0, 0.0, 0.0).amax(dim=0)


def scale_of_change(changed: Tensor, true: Tensor) -> Tensor:
    """`[columns]`: how far weights move each column; where they move nothing, nothing can be decided, and any scale does."""
    moved = _largest(changed - true) if len(true) else true.new_zeros(true.shape[1:])
    size = _largest(true) if len(true) else moved
    return torch.where(moved > 0, moved, size)


def moves(scale: Tensor, true: Tensor) -> bool:
    """Whether weights that move columns by `scale` `[columns]` do so by more than the rounding of the numbers."""
    return bool((scale > _ROUNDING * torch.finfo(true.dtype).eps * _largest(true)).all()) if len(true) else True


_FEW = 2**17
"""Numbers that are kept to be used again."""


@lru_cache(maxsize=8)
def _first_weights(size: int, num_layers: int, dtype: torch.dtype) -> Tensor:
    return _drawn(torch.arange(size), num_layers, dtype)


def first_random_weights(size: int, num_layers: int, like: Tensor) -> Tensor:
    """The weights `[L, size]` of the numbers from 0 on; not to be written into, as they may be kept for the next question.

    They say nothing about any model: the same numbers come out whenever they are drawn.
    """
    if like.is_cuda or size * num_layers > _FEW:
        return _drawn(torch.arange(size, device=like.device), num_layers, like.dtype)
    return _first_weights(size, num_layers, like.dtype)


def random_weight(ids: Tensor, num_layers: int, like: Tensor) -> Tensor:
    """Weights `[L, ids]` that depend on nothing but layer and number: the same for a copy as for the original."""
    if not ids.is_cuda and 0 < ids.numel() < _FEW:
        size = 1 << int(ids.max()).bit_length()  # more than the largest number: a table that many questions share
        if size * num_layers <= _FEW:
            return _first_weights(size, num_layers, like.dtype).index_select(1, ids)
    return _drawn(ids, num_layers, like.dtype)


def _drawn(ids: Tensor, num_layers: int, dtype: torch.dtype) -> Tensor:
    layer = torch.arange(num_layers, device=ids.device).view(-1, 1)
    return random_numbers.uniform(_PROBE_SEED, layer, ids).to(dtype)


def at_random(engine: Any, num_layers: int, like: Tensor) -> Tensor:
    """An engine's rows at such weights of edges and of own terms."""
    weights = [random_weight(part, num_layers, like) for part in (engine.edge_id, engine.self_node)]
    rows: Tensor = engine.output(*weights)
    return rows


def warn_not_local(why: str, what: str) -> None:
    """Say once that explaining will be slow."""
    text = f"The model is not local ({why}), so every {what}: slower and right."
    warnings.warn(text, LocalityWarning, stacklevel=2)


@dataclass
class Audit:
    """What was compared to be sure of a question's numbers."""

    value_error: float = 0.0
    """Largest deviation of the explained rows from the model's own output."""
    weighted_error: float = 0.0
    """Largest deviation at random weights, as a share of the change that they make."""
    errors: dict[str, float] = field(default_factory=dict)
    """Largest deviation of each primitive from the model: `"slope"` and `"features"` (gradients beside differences),
    `"occlusion"` and `"feature_occlusion"` (messages and features that are missing, beside runs without them)."""
    targets: int = 0
    """For how many targets."""
    undecided: list[str] = field(default_factory=list)
    """What could not be decided, and why."""

    def note(self, what: str, error: float, targets: int) -> None:
        """How far a primitive is off at most, and for how many targets it was compared."""
        if targets:
            self.errors[what] = max(error, self.errors.get(what, 0.0))
            self.targets = max(targets, self.targets)

    def plain(self) -> dict[str, object]:
        """As `settings["audit"]`."""
        return {
            "value": self.value_error,
            "weighted": self.weighted_error,
            "slope": 0.0,
            **self.errors,
            "targets": self.targets,
            "undecided": "; ".join(dict.fromkeys(self.undecided)),
        }
