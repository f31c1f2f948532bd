"""A twin of the user's model: what we hook, put into eval mode and run, so that the model itself is never touched.

A twin is a copy of the module tree. Its parameters are aliases that share the memory of the user's and require no gradient; its
buffers and all other tensors are copies, because a forward pass may write into them. A model that cannot be copied, or that
reaches past its copy to the original (a closure over `self`), is borrowed instead, one thread at a time, and the twin says why.
"""

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode, _len_torch_function_stack, _pop_mode

from edgewise.errors import ModelError
from edgewise.model.borrow import borrowed
from edgewise.model.module_copy import copied_module, unwrapped

__all__ = ["Twin", "Watch", "lent", "make_twin", "model_lock", "unwrapped", "usable_model", "watch_originals"]

Result = TypeVar("Result")

_locks: "weakref.WeakKeyDictionary[nn.Module, threading.RLock]" = weakref.WeakKeyDictionary()  # type: ignore[type-arg]
_locks_lock = threading.Lock()


@dataclass(frozen=True, eq=False)
class Twin:
    """What is run in place of the user's model."""

    model: nn.Module
    """The copy, or the user's own model if it has to be borrowed: then run it inside `lent`."""

    borrowed: str = ""
    """Empty for a copy, otherwise why there is none, in words."""


def model_lock(model: nn.Module) -> Any:
    """The lock of a model: who changes the user's own model, or must not see it changed, holds it."""
    inner = unwrapped(model)
    with _locks_lock:
        if inner not in _locks:
            _locks[inner] = threading.RLock()
        return _locks[inner]


@contextmanager
def lent(model: nn.Module) -> Iterator[nn.Module]:
    """The user's own model in eval mode, for one thread at a time; given back as it was."""
    with model_lock(model), borrowed(unwrapped(model)) as ours:
        yield ours


@contextmanager
def differentiable() -> Iterator[None]:
    """Gradients can be taken, whatever mode the caller is in."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        yield


def make_twin(model: nn.Module) -> Twin:
    """A twin of the model: in eval mode as `model.eval()` has it, without gradients of parameters, without caches of a graph.

    Tied weights stay tied, the user's hooks run on the copy, and wrappers (`DataParallel`, `torch.compile`, …) are taken off.

    Raises:
        ModelError: If a parameter has no shape yet.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1)
    >>> twin = make_twin(model).model
    >>> twin.weight.data_ptr() == model.weight.data_ptr(), twin.weight.requires_grad, model.training, twin.training
    (True, False, True, False)
    """
    inner = unwrapped(model)
    _refuse_lazy(inner)
    try:
        with model_lock(inner), torch.inference_mode(mode=False), torch.no_grad():
            return Twin(copied_module(inner))
    except Exception as error:  # whatever the user's objects raise when they are copied
        return Twin(inner, f"the model cannot be copied: {type(error).__name__}: {error}")


def _refuse_lazy(model: nn.Module) -> None:
    for name, module in model.named_modules():
        for key, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if tensor is not None and is_lazy(tensor):
                path = f"{name}.{key}" if name else key
                raise ModelError(
                    f"`model` must be initialised, got {path} without a shape (a lazy layer that has not seen data). "
                    f"Use the model once first: model(data.x, data.edge_index)."
                )


@dataclass
class Watch:
    """Which parts of the original have been seen at work."""

    seen: list[str] = field(default_factory=list)

    def note(self, name: str) -> None:
        """One more part; each is listed once."""
        if name not in self.seen:
            self.seen.append(name)


class _TensorWatch(TorchFunctionMode):
    """Notices operations on tensors of the original, as in `lambda x: x @ self.weight`."""

    def __init__(self, names: dict[int, str], note: Callable[[str], None]) -> None:
        super().__init__()
        self.names, self.note = names, note

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for value in (*args, *kwargs.values()):
            for part in value if type(value) in (list, tuple) else (value,):
                if id(part) in self.names:
                    self.note(self.names[id(part)])
        return func(*args, **kwargs)


def _named_parts(model: nn.Module) -> tuple[dict[int, str], dict[int, str]]:
    """(modules, tensors): from the identity of each part to its name."""
    modules, tensors = {}, {}
    for name, module in model.named_modules():
        modules[id(module)] = name or "the model itself"
        for key, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if tensor is not None:
                tensors[id(tensor)] = f"{name}.{key}" if name else key
    return modules, tensors


def _forget(hook: Callable[..., None]) -> None:
    """Take a global hook away, by what it is: safe to repeat, and after an interrupt anywhere."""
    hooks = torch_module._global_forward_pre_hooks
    for key, value in list(hooks.items()):
        if value is hook:
            hooks.pop(key, None)


@contextmanager
def _module_watch(names: dict[int, str], note: Callable[[str], None]) -> Iterator[None]:
    """Notices, in this thread only, the modules that are called."""
    thread = threading.get_ident()

    def hook(module: nn.Module, args: Any) -> None:
        if threading.get_ident() == thread and id(module) in names:
            note(names[id(module)])

    try:
        torch_module.register_module_forward_pre_hook(hook)
        yield
    finally:
        try:
            _forget(hook)
        finally:
            _forget(hook)  # again: an interrupt may have come in the line above


@contextmanager
def _tensor_watch(names: dict[int, str], note: Callable[[str], None]) -> Iterator[None]:
    depth = _len_torch_function_stack()
    try:
        with _TensorWatch(names, note):
            yield
    finally:
        while _len_torch_function_stack() > depth:  # an interrupt on the way in or out leaves the mode on the stack
            _pop_mode()


@contextmanager
def watch_originals(model: nn.Module, twin: Twin, on_seen: Callable[[str], None] | None = None) -> Iterator[Watch]:
    """Notices if a module or a tensor of the original is used in this thread, although the twin runs.

    `on_seen` is called with the name before the module or the operation runs; what it raises stops the pass there.
    """
    watch = Watch()
    if twin.borrowed:
        yield watch
        return

    def note(name: str) -> None:
        watch.note(name)
        if on_seen is not None:
            on_seen(name)

    modules, tensors = _named_parts(model)
    with _module_watch(modules, note), _tensor_watch(tensors, note):
        yield watch


class _OriginalSeenError(BaseException):
    """Stops a pass before the original does anything; no `except Exception` in a forward may swallow it."""


def _stop(name: str) -> None:
    raise _OriginalSeenError(name)


def usable_model(model: nn.Module, run: Callable[[nn.Module], Result]) -> tuple[Twin, Result]:
    """The twin if it stands on its own, otherwise the borrowed model and the reason; and what `run` gave on it.

    `run` is called on the twin once. If that pass reaches for the original, it is stopped before the original does anything and
    `run` is called again on the borrowed model.
    """
    twin = make_twin(model)
    if not twin.borrowed:
        with watch_originals(model, twin, _stop) as watch:
            try:
                with differentiable():
                    result = run(twin.model)
            except (_OriginalSeenError, Exception):
                if not watch.seen:
                    raise
        if not watch.seen:
            return twin, result
        reason = f"forward calls modules of the original through a closure: {', '.join(watch.seen)}"
        twin = Twin(unwrapped(model), reason)
    with lent(model) as ours:
        return twin, run(ours)
