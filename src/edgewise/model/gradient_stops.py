"""Places at which a gradient may stop or bend: operations that read what is differentiated, and make numbers that are not.

A `detach`, a `no_grad` block, `.data`, a checkpoint or a number taken out of torch (`float(h)`) leaves the output as it is; a
hook on a tensor or a derivative of the user's own (`torch.autograd.Function`) may hand on any gradient. Where one is met, a
gradient may be right for some targets and wrong for others, so that none can speak for the rest.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any

import torch
import torch_geometric
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode

from edgewise.errors import ModelError
from edgewise.model.module_tree import modules_of

_PYG = str(Path(torch_geometric.__file__).parent)
NAMES = frozenset({"detach", "detach_", "data", "no_grad", "checkpoint", "item", "tolist", "numpy", "register_hook"})
"""Operations that stop gradients, as a recorded pass names them."""
_SCRIPTED = (torch.jit.ScriptModule, torch.jit.ScriptFunction)
_TAKEN = (torch.autograd.grad, torch.autograd.backward, Tensor.backward)
"""Gradients being taken: what they are is no longer on its way."""


class GradientStops(TorchFunctionMode):
    """Watches operations while gradients are recorded; `seen` says whether one may have stopped a gradient.

    PyG's own softmax subtracts a detached maximum, which changes nothing, whatever it is: that is no stop.

    >>> weight = torch.ones(2, requires_grad=True)
    >>> with GradientStops() as plain:
    ...     _ = (weight * 3).relu().sum()
    >>> with GradientStops() as partly:
    ...     _ = torch.where(weight > 0, (weight * 3).detach(), weight)
    >>> plain.seen, partly.seen
    (False, True)
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if (
            not self.seen
            and func not in _TAKEN
            and _stops(getattr(func, "__name__", ""), (*args, *(kwargs or {}).values()), result)
        ):
            self.seen = not (func is Tensor.detach and sys._getframe(1).f_code.co_filename.startswith(_PYG))
        return result


def named_so(functions: Iterable[Any]) -> bool:
    """Whether one of some operations stops gradients by its name; code that is not torch's may do anything.

    >>> named_so([torch.relu, torch.Tensor.relu]), named_so([torch.Tensor.detach])
    (False, True)
    """
    names = {getattr(function, "__name__", "") for function in functions}
    return not NAMES.isdisjoint(names) or "__get__" in names or any(map(_is_foreign, functions))


def _is_foreign(function: Any) -> bool:
    module = getattr(function, "__module__", None) or ""
    return not (isinstance(function, BuiltinFunctionType) or module.startswith(("torch", "edgewise")) or not module)


def may_hide(model: nn.Module, reached: Iterable[Any]) -> bool:
    """Whether a part of a model, or of what its code reaches, runs where operations cannot be watched."""
    return any(issubclass(kind, _SCRIPTED) for kind in {*map(type, modules_of(model)), *map(type, reached)})


def _stops(name: str, given: tuple[Any, ...], result: Any) -> bool:
    """Whether an operation read what is differentiated and made floating-point numbers that are not.

    So does one that reads what has a derivative of the user's own, or hangs a hook on a gradient: it may stop there.
    """
    if name == "register_hook" or any(isinstance(part.grad_fn, BackwardCFunction) for part in _floating(given)):
        return True
    read = given[:1] if name.endswith("_as") else given  # of the other one only the shape or the type
    if name.startswith("new_") or name.endswith("_like") or not any(part.requires_grad for part in _floating(read)):
        return False
    if isinstance(result, float):
        return True
    if name in ("tolist", "numpy", "__array__"):
        return True
    return any(not part.requires_grad for part in _floating((result,)))


def _floating(parts: Any) -> Iterator[Tensor]:
    """The floating-point tensors among some values and in lists of them."""
    for part in parts:
        if isinstance(part, Tensor):
            if part.is_floating_point():
                yield part
        elif isinstance(part, (tuple, list)):
            yield from _floating(part)


def refuse_writes(error: Exception) -> None:
    """Refuse a model that writes where its own gradient cannot follow, if that is what torch's error says."""
    if "functions with out=... arguments" in str(error):
        raise ModelError(
            "The model writes with out=, which torch cannot take a gradient through, not even in training. Leave out= away: "
            "h = torch.clamp(h, max=1), for example. Or use method='occlusion'."
        ) from error
    if "modified by an inplace operation" in str(error):
        raise ModelError(
            "The model writes in place into numbers that its own gradient needs (h[:, 0] *= h[:, 1], for example), so that it "
            "has no gradient, not even in training. Write into a copy: h = h.clone() before it. Or use method='occlusion'."
        ) from error
