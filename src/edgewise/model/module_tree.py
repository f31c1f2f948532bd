"""The modules of a model, in the order of `model.modules()`, and whether they keep functions that may know the model.

Every question walks through its model a dozen times. Torch's own generators call themselves for each level, which costs more
than all else that is done with the names; these walks keep a list instead.
"""

import types
from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import nn


def named_modules(model: nn.Module) -> dict[str, nn.Module]:
    """The modules by their names, each once, as `dict(model.named_modules())`.

    >>> list(named_modules(nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))))
    ['', '0', '1', '1.0']
    """
    found: dict[str, nn.Module] = {}
    seen: set[int] = set()
    waiting: list[tuple[str, nn.Module]] = [("", model)]
    while waiting:
        name, module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        found[name] = module
        if module._modules:
            start = f"{name}." if name else ""
            parts = reversed(list(module._modules.items()))  # the first part is the next one, as in a depth-first walk
            waiting += [(start + key, part) for key, part in parts if part is not None]
    return found


def modules_of(model: nn.Module) -> list[nn.Module]:
    """The modules without their names, which take longer than the walk."""
    found: dict[int, nn.Module] = {}
    waiting = [model]
    while waiting:
        module = waiting.pop()
        if id(module) in found:
            continue
        found[id(module)] = module
        if module._modules:
            waiting += [part for part in reversed(list(module._modules.values())) if part is not None]
    return list(found.values())


def switches_itself(module: nn.Module) -> bool:
    """Whether `train` or `eval` of a module is code of its own: dropout that stays on, layers that fold weights together."""
    kind = type(module)
    return (
        kind.train is not nn.Module.train
        or kind.eval is not nn.Module.eval
        or not {"train", "eval"}.isdisjoint(module.__dict__)
    )


def holds_functions(model: nn.Module) -> bool:
    """Whether a module keeps a function of its own (a closure, a bound method, a hook), which may know the original's tensors.

    >>> model = torch.nn.Linear(2, 1)
    >>> holds_functions(model)
    False
    >>> model.block = lambda x: x @ model.weight
    >>> holds_functions(model)
    True
    """
    return any(_has_function(vars(module).values(), 3) for module in modules_of(model))


_SIMPLE = frozenset((bool, int, float, str, type(None), set, torch.Tensor, nn.Parameter))
_CONTAINERS = frozenset((dict, OrderedDict, list, tuple))


def _has_function(values: Iterable[Any], depth: int) -> bool:
    for value in values:
        kind = type(value)
        if kind in _SIMPLE or (kind in _CONTAINERS and not value):  # most are empty: the places for hooks
            continue
        if _is_function(value, depth):
            return True
    return False


def _is_function(value: Any, depth: int) -> bool:
    """Whether a value is a function that may know the model, or a container with one in it, up to some levels deep."""
    if isinstance(value, types.FunctionType):
        return not str(value.__module__).startswith("torch")  # F.relu knows no model
    if isinstance(value, (types.MethodType, partial)):
        return True
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return depth > 0 and bool(parts) and _has_function(parts, depth - 1)
