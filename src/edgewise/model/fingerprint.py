"""The content of a model at one moment, to say later whether and where it has changed.

Versions of tensors do not see an edit through `.data`, and identities do not see one in place, so contents are compared.
"""

import dataclasses
import math
import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from edgewise.model.call import assigned_by_forward
from edgewise.model.twin import model_lock, unwrapped

DEPTH = 4
_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, range, slice, Enum)
_TORCH_OWN = (
    "_parameters",
    "_buffers",
    "_modules",
    "_non_persistent_buffers_set",
    "_is_full_backward_hook",
    "_compiled_call_impl",
)
_COPIES = ("inspector", "_flat_weights", "_flat_weight_refs")  # what the class or the parameters say already
_TRAINERS = ("_trainer", "trainer", "_fabric", "fabric")
_NOT_THE_FUNCTION = frozenset(("training", *_TORCH_OWN, *_COPIES, *_TRAINERS))


class Fingerprint:
    """Parameters, buffers and attributes of a model as they were.

    Attributes are compared by value where they are plain values, tensors, arrays or containers of these (four levels deep), and
    by identity where they are other objects. `training` and cached graphs do not count: they do not belong to the function in
    eval mode. Nor do attributes that `forward` itself assigns (an attention kept for later): another thread that predicts
    meanwhile changes them.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Dropout(0.5))
    >>> before = Fingerprint(model)
    >>> before.changed(model)
    ''
    >>> model[0].bias.data += 1
    >>> before.changed(model)
    'parameter 0.bias'
    """

    def __init__(self, model: nn.Module) -> None:
        with model_lock(model):
            self._modules = dict(unwrapped(model).named_modules())
            self._parts = {name: _photograph(module) for name, module in self._modules.items()}
        self._parameters = [
            (before, module._parameters, key)
            for name, module in self._modules.items()
            for key, before in self._parts[name][0].items()
            if before is not None
        ]
        self._glance: _Glance | None = None

    def changed(self, model: nn.Module) -> str:
        """What has changed first, in words such as `parameter convs.0.bias`; empty if nothing has."""
        with model_lock(model):
            inner = unwrapped(model)
            if inner is self._modules[""] and self._glance is not None and self._glance.is_same():
                return ""
            found = next(self._differences(inner), "")
            if not found and self._glance is None:  # nothing has changed, so what is there now can stand for what was
                self._glance = _Glance(self._modules.values(), self._parts.values())
            return found

    def moved(self) -> str:
        """The first parameter that has other numbers now, in words; empty if none has. Cheaper than `changed`.

        A twin shares the memory of the parameters and nothing else, so this is what may go wrong while it runs.
        """
        if all(_equal(before, table.get(key)) for before, table, key in self._parameters):
            return ""
        for name, module in self._modules.items():
            before, now = self._parts[name][0], module._parameters
            for key, then in before.items():
                if then is not None and not _same(then, now.get(key)):
                    return f"parameter {name}.{key}" if name else f"parameter {key}"
        return ""

    def differences(self, model: nn.Module) -> list[str]:
        """Everything that has changed."""
        with model_lock(model):
            return list(self._differences(unwrapped(model)))

    def _differences(self, model: nn.Module) -> Iterator[str]:
        modules = dict(model.named_modules())
        yield from self._replaced(modules)
        for name, module in modules.items():
            if name in self._modules and self._modules[name] is module:
                yield from self._differences_of(name, module)

    def _replaced(self, modules: dict[str, nn.Module]) -> Iterator[str]:
        for name, module in self._modules.items():
            if name not in modules:
                yield f"module {name} was removed"
            elif modules[name] is not module:
                yield f"module {name or 'model'} was replaced"
        yield from (f"module {name} was added" for name in modules if name not in self._modules)

    def _differences_of(self, name: str, module: nn.Module) -> Iterator[str]:
        place = f"{name}." if name else ""
        for word, before, now in zip(_WORDS, self._parts[name], _contents(module), strict=True):
            for key in before if before.keys() == now.keys() else dict.fromkeys([*before, *now]):
                then, value = before.get(key, _ABSENT), now.get(key, _ABSENT)
                if then is not value and not _same(then, value):
                    yield f"{word} {place}{key}"


_WORDS = ("parameter", "buffer", "attribute")
_ABSENT = object()


@dataclasses.dataclass(frozen=True, eq=False)
class _Container:
    """A container as it was: its class, its keys or positions, and its parts."""

    kind: type
    parts: dict[Any, Any]


class _Glance:
    """A quick look at all modules: True only if every attribute is the very object that it was, with its contents.

    `tables` pairs each dictionary of the modules with a copy of it; `empty` are the dictionaries that had nothing in them
    (hooks, mostly).
    """

    def __init__(self, modules: Iterable[nn.Module], parts: Iterable[list[dict[str, Any]]]) -> None:
        self.tables: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.empty: list[dict[Any, Any]] = []
        self.tensors: list[tuple[Tensor, dict[str, Any], str]] = []
        self.lists: list[tuple[list[Any], list[Any]]] = []
        self.contents: list[tuple[Any, dict[str, Any], str]] = []
        for module, (parameters, buffers, attributes) in zip(modules, parts, strict=True):
            own = vars(module)
            self.tables.append((own, dict(own)))
            for table, kept in ((module._parameters, parameters), (module._buffers, buffers), (module._modules, {})):
                (self.tables.append((table, dict(table))) if table else self.empty.append(table))
                self.tensors += [(value, table, key) for key, value in kept.items() if value is not None]
            self.empty += [value for key, value in own.items() if _role(key) == "hooks" and not value]
            for key, kept in attributes.items():
                self._watch(own, key, kept)

    def _watch(self, own: dict[str, Any], key: str, kept: Any) -> None:
        """Note how to look at an attribute whose contents may change: flat lists and dictionaries object by object."""
        value = own.get(key)
        if kept is value:
            return
        if isinstance(kept, _Container) and all(
            map(operator.is_, kept.parts.values(), (_parts_of(value) or {}).values())
        ):
            if type(value) is dict:
                self.tables.append((value, dict(value)))
                return
            if type(value) is list:
                self.lists.append((value, list(value)))
                return
        self.contents.append((kept, own, key))

    def is_same(self) -> bool:
        """Whether nothing has changed; False may also mean that it takes a closer look."""
        if any(self.empty):
            return False
        for now, before in self.tables:
            if "training" in before:
                before["training"] = now.get("training")  # does not belong to the function
            if len(now) != len(before) or not all(map(operator.is_, now.values(), before.values())):
                return False
            if not all(map(operator.is_, now, before)):
                return False
        if any(len(now) != len(before) or not all(map(operator.is_, now, before)) for now, before in self.lists):
            return False
        if not all(_equal(before, table[key]) for before, table, key in self.tensors):
            return False
        return all(key in table and _same(before, table[key]) for before, table, key in self.contents)


def _equal(before: Tensor, now: Any) -> bool:
    """Whether two tensors are of one kind and have the same numbers."""
    try:
        return torch.equal(before, now)
    except (RuntimeError, TypeError):  # another dtype or device, a sparse one, or no tensor at all
        return False


@lru_cache(maxsize=4096)
def _role(key: str) -> str:
    """What an attribute of this name is to the function: a value, hooks, or nothing."""
    if "_hooks" in key:
        return "hooks" if "forward" in key else ""
    return "" if key in _NOT_THE_FUNCTION or key.startswith("_cached") else "value"


def _contents(module: nn.Module) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """(parameters, buffers, attributes) that are there now."""
    attributes, left_behind = {}, assigned_by_forward(type(module))  # type: ignore[arg-type]  # classes are hashable
    for key, value in list(vars(module).items()):
        role = _role(key)
        if role == "value" and key not in left_behind:
            attributes[key] = value
        elif role == "hooks" and value:
            attributes[key] = list(value.values())  # which hooks, in which order; their numbers mean nothing
    return module._parameters, module._buffers, attributes


def _photograph(module: nn.Module) -> list[dict[str, Any]]:
    return [{key: _frozen(value, DEPTH) for key, value in list(part.items())} for part in _contents(module)]


def _parts_of(value: Any) -> dict[Any, Any] | None:
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


def _frozen(value: Any, depth: int) -> Any:
    """A copy of what is compared by content, and everything else itself."""
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, (np.ndarray, set)):
        return value.copy()
    parts = _parts_of(value) if depth else None
    if parts is None:
        return value
    return _Container(type(value), {key: _frozen(part, depth - 1) for key, part in parts.items()})


def _same(before: Any, now: Any) -> bool:
    """Whether a value is what it was when it was frozen."""
    if before is now:
        return True
    if isinstance(before, Tensor):
        return isinstance(now, Tensor) and _same_tensor(before, now)
    if isinstance(before, _Container):
        return type(now) is before.kind and _same_parts(before.parts, _parts_of(now) or {})
    if type(before) is not type(now):
        return False
    if isinstance(before, np.ndarray):
        return np.array_equal(before, now, equal_nan=before.dtype.kind in "fc")
    if isinstance(before, (set, *_PLAIN)):
        return before == now or (isinstance(before, float) and math.isnan(before) and math.isnan(now))
    return False


def _same_parts(before: dict[Any, Any], now: dict[Any, Any]) -> bool:
    return list(before) == list(now) and all(_same(part, now[key]) for key, part in before.items())


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
