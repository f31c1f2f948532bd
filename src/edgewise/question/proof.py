"""The last proof about a model on its data, kept for the next question as long as nothing has changed."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.data import Data

from edgewise import random_numbers
from edgewise.errors import LocalityWarning
from edgewise.graph.stores import attributes

_LARGEST_KEPT = 2**26
_CONTAINERS = (dict, list, tuple, set)
_PLAIN = (bool, int, float, str, bytes, torch.dtype)
_DEEPEST = 4
_LARGE = 2**17
_FEW_TENSORS = 16


def _add_parts(value: Any, parts: list[Any], depth: int = 0) -> None:
    """A value, or what a container of it holds, one by one."""
    if depth < _DEEPEST and isinstance(value, dict):
        for key, item in value.items():
            parts.append(key)
            _add_parts(item, parts, depth + 1) if isinstance(item, _CONTAINERS) else parts.append(item)
    elif depth < _DEEPEST and isinstance(value, (list, tuple, set)):
        parts.append(len(value))
        for item in value:
            _add_parts(item, parts, depth + 1) if isinstance(item, _CONTAINERS) else parts.append(item)
    else:
        parts.append(value)


_ramps: dict[str, Tensor] = {"double": torch.zeros(0, dtype=torch.double)}


def _ramp(length: int) -> Tensor:
    """Different weights for different places, between 1 and 2."""
    if len(_ramps["double"]) < length:
        _ramps["double"] = 1 + (torch.arange(2 * length, dtype=torch.double) * 0.6180339887498949) % 1
    return _ramps["double"][:length]


def _checksum(tensor: Tensor) -> float:
    """A number that changes with the contents: `.data` and numpy change them without a new version."""
    if tensor.device.type != "cpu" or tensor.numel() == 0 or tensor.is_complex():
        return 0.0
    if tensor.dim() == 2 and tensor.is_floating_point() and tensor.numel() > _LARGE:
        tensor = tensor @ _ramp(tensor.size(1)).to(tensor.dtype)  # without a copy in double precision
    flat = tensor.reshape(-1).double()
    return float(flat.dot(_ramp(len(flat))))


def _joined(tensors: list[Tensor]) -> list[Tensor]:
    """Many small tensors as a few long ones, by type."""
    kinds = dict.fromkeys((t.dtype, t.device) for t in tensors)
    return [torch.cat([t.reshape(-1) for t in tensors if (t.dtype, t.device) == kind]) for kind in kinds]


class Fingerprint:
    """What must stay the same for a proof to be kept: every tensor's identity and version, and every attribute of the model.

    It holds on to the objects themselves, so that no other can come to have their identity.
    """

    def __init__(self, model: nn.Module, graphs: list[Data], device: Any) -> None:
        weights = [*model.parameters(), *model.buffers()]
        stores = [attributes(graph) for graph in graphs]
        inputs = [value for store in stores for value in store.values() if isinstance(value, Tensor)]
        self.tensors = [*weights, *inputs]
        self.usable = all(not t.is_inference() and t.layout == torch.strided and not is_lazy(t) for t in self.tensors)
        if not self.usable:
            return
        self.versions = [t._version for t in self.tensors]
        with torch.no_grad():
            small = sum(t.numel() for t in weights) < _LARGE
            self.totals = [_checksum(t) for t in (_joined(weights) if small else weights)]
            few = len(inputs) <= _FEW_TENSORS
            self.totals += [_checksum(t) for t in (inputs if few else _joined(inputs))]
        self.attributes: list[Any] = [model, str(device)]
        _add_parts(stores, self.attributes)
        for module in model.modules():
            _add_parts({k: v for k, v in module.__dict__.items() if k != "training"}, self.attributes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fingerprint) or not (self.usable and other.usable):
            return False
        if (
            self.versions != other.versions
            or self.totals != other.totals
            or len(self.attributes) != len(other.attributes)
        ):
            return False
        if any(a is not b for a, b in zip(self.tensors, other.tensors, strict=True)):
            return False
        pairs = zip(self.attributes, other.attributes, strict=True)
        return all(a is b or (isinstance(a, _PLAIN) and type(a) is type(b) and a == b) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]


_kept: dict[str, tuple[Fingerprint, Any]] = {}


def keep(mark: Fingerprint | None, what: Any, size: int) -> None:
    """Remember the last subject (or the last graphs), unless it is large: the next question needs no new proof."""
    _kept.clear()
    if mark is not None and mark.usable and size <= _LARGEST_KEPT:
        _kept["last"] = (mark, what)


def recall(mark: Fingerprint | None) -> Any:
    """What was kept, if nothing changed; otherwise None."""
    kept = _kept.get("last")
    return kept[1] if kept is not None and mark is not None and kept[0] == mark else None


_PROBE_SEED = 20250803


NOT_REPEATABLE = (
    "The model gives another output on the same input each time, although it is in eval mode. Does forward draw random "
    "numbers, such as dropout with training=True (F.dropout's default)? Type F.dropout(x, training=self.training)."
)


def close(found: Tensor, true: Tensor) -> bool:
    """Equal up to rounding, on the scale of the largest number."""
    if found.shape != true.shape:
        return False
    tolerance = 1e-9 if true.dtype == torch.float64 else 1e-4
    scale = true.abs().max().clamp(min=1e-30) if true.numel() else 1.0
    return bool(((found - true).abs() <= tolerance * scale).all())


def random_weight(ids: Tensor, num_layers: int, like: Tensor) -> Tensor:
    """Weights `[L, ids]` that depend on nothing but layer and number: the same for a copy as for the original."""
    layer = torch.arange(num_layers, device=ids.device).view(-1, 1)
    return random_numbers.uniform(_PROBE_SEED, layer, ids).to(like.dtype)


def warn_not_local(why: str, what: str) -> None:
    """Say once that explaining will be slow."""
    text = f"The model is not local ({why}), so every {what}: slower and right."
    warnings.warn(text, LocalityWarning, stacklevel=2)
