"""A twin of the user's model: what we hook, put into eval mode and run, so that the model itself is never touched.

A twin is a copy of the module tree. Its parameters are aliases that share the memory of the user's and require no gradient; its
buffers and all other tensors are copies, because a forward pass may write into them. A model that reaches past its copy to the
original (a closure over `self`) is borrowed instead, one thread at a time, and the twin says why.
"""

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from edgewise.errors import ModelError
from edgewise.model.borrow import borrowed
from edgewise.model.forks import renewed_in_forks
from edgewise.model.global_state import ThreadState, push_mode, thread_kept
from edgewise.model.module_copy import copied_module, unwrapped
from edgewise.model.module_tree import holds_functions, modules_of, named_modules
from edgewise.torch_internals import OwnHook, remove_global_pre_hooks

__all__ = ["Twin", "Watch", "lent", "make_twin", "model_lock", "unwrapped", "usable_model", "watch_originals"]

Result = TypeVar("Result")

_locks: "weakref.WeakKeyDictionary[nn.Module, threading.RLock]" = weakref.WeakKeyDictionary()
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


def forget_locks() -> None:
    """In a forked process: whoever held one is not there to give it back."""
    global _locks, _locks_lock
    _locks, _locks_lock = weakref.WeakKeyDictionary(), threading.Lock()


renewed_in_forks(forget_locks)


@contextmanager
def lent(model: nn.Module) -> Iterator[nn.Module]:
    """The user's own model in eval mode, for one thread at a time; given back as it was."""
    with model_lock(model), borrowed(unwrapped(model)) as ours:
        yield ours


def _outside_inference_mode(run: Callable[[], Result]) -> Result:
    """What is made in inference mode can never be differentiated."""
    if not torch.is_inference_mode_enabled():
        return run()
    with torch.inference_mode(mode=False):
        return run()


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
        with thread_kept(), model_lock(inner):  # not while another thread has borrowed it
            return Twin(_outside_inference_mode(lambda: copied_module(inner)))
    except Exception as error:  # whatever the user's objects raise when they are copied
        return Twin(inner, f"the model cannot be copied: {type(error).__name__}: {error}")


def _refuse_lazy(model: nn.Module) -> None:
    for module in modules_of(model):
        for key, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None and is_lazy(tensor):
                name = next(name for name, part in named_modules(model).items() if part is module)
                path = f"{name}.{key}" if name else key
                raise ModelError(
                    f"`model` must be initialised, got {path} without a shape (a lazy layer that has not seen data). "
                    f"Use the model once first: model(data.x, data.edge_index)."
                )


class Watch(OwnHook, TorchFunctionMode):
    """Notices modules that are called and tensors that are used (as in `lambda x: x @ self.weight`), in one thread.

    `seen` lists the names, each once. `on_seen` is called with the name before the module or the operation runs; what it raises
    stops the pass there. `tensors=False` looks at modules only, which costs next to nothing.
    """

    def __init__(self, model: nn.Module, on_seen: Callable[[str], None] | None = None, *, tensors: bool = True) -> None:
        super().__init__()
        self.seen: list[str] = []
        self._tensors = tensors
        self._on_seen, self._names = on_seen, _names_of_parts(model)
        self._thread, self._before = threading.get_ident(), ThreadState()

    def start(self) -> None:
        """From now on; call it in a `try` whose `finally` stops the watch, twice (see `ThreadState`)."""
        torch_module.register_module_forward_pre_hook(self)
        if self._tensors:
            push_mode(self)

    def stop(self) -> None:
        """No longer, and the thread is as it was when the watch was made; may be repeated."""
        remove_global_pre_hooks(lambda hook: hook is self)
        self._names = {}  # deaf from now on
        self._before.put_back()

    @property
    def is_orphaned(self) -> bool:
        """Whether another thread made it: in a forked process there is only one, and nobody to stop what others began."""
        return threading.get_ident() != self._thread

    def __call__(self, module: nn.Module, args: Any) -> None:
        """Torch calls this before any module runs, in every thread."""
        if not self.is_orphaned and id(module) in self._names:
            self._note(module)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        names = self._names
        for value in (*args, *kwargs.values()) if kwargs else args:
            if id(value) in names:
                self._note(value)
            elif type(value) is list or type(value) is tuple:  # torch.cat, torch.stack, an index
                for part in value:
                    if id(part) in names:
                        self._note(part)
        return func(*args, **kwargs)

    def _note(self, part: Any) -> None:
        name = self._names[id(part)]
        if name not in self.seen:
            self.seen.append(name)
        if self._on_seen is not None:
            self._on_seen(name)


def forget_watches() -> None:
    """In a forked process: take away what watches of threads that are not there have hung on every module."""
    remove_global_pre_hooks(lambda hook: isinstance(hook, Watch) and hook.is_orphaned)


renewed_in_forks(forget_watches)


def _names_of_parts(model: nn.Module) -> dict[int, str]:
    """From the identity of every module, parameter and buffer to its name."""
    names = {}
    for name, module in named_modules(model).items():
        names[id(module)] = name or "the model itself"
        for key, tensor in [*module._parameters.items(), *module._buffers.items()]:
            if tensor is not None:
                names[id(tensor)] = f"{name}.{key}" if name else key
    return names


@contextmanager
def watch_originals(model: nn.Module, twin: Twin) -> Iterator[Watch]:
    """Notices if a module or a tensor of the original is used in this thread, although the twin runs.

    A borrowed model is the original, so nothing is noted then.
    """
    watch = Watch(model)
    try:
        if not twin.borrowed:
            watch.start()
        yield watch
    finally:
        try:
            watch.stop()
        finally:
            watch.stop()


class _OriginalSeenError(BaseException):
    """Stops a pass before the original does anything; no `except Exception` in a forward may swallow it."""


def _stop(name: str) -> None:
    raise _OriginalSeenError(name)


def usable_model(model: nn.Module, run: Callable[[nn.Module], Result], *, tensors: bool = False) -> tuple[Twin, Result]:
    """The twin if it stands on its own, otherwise the borrowed model and the reason; and what `run` gave on it.

    `run` is called on the twin. If that pass reaches for the original, it is stopped before the original does anything and
    `run` is called on the borrowed model. Tensors of the original are watched only where something may know them:
    `tensors=True` (a `forward` of the user's), or a function that a module holds.
    """
    twin = make_twin(model)
    if not twin.borrowed:
        seen, outcome = _tried(model, lambda: run(twin.model), tensors=tensors or holds_functions(model))
        if outcome is not None:
            return twin, outcome[0]
        reason = f"forward calls modules of the original through a closure: {', '.join(seen)}"
        twin = Twin(unwrapped(model), reason)
    with thread_kept(), lent(model) as ours:
        return twin, run(ours)


def _tried(model: nn.Module, run: Callable[[], Result], *, tensors: bool) -> tuple[list[str], tuple[Result] | None]:
    """(parts of the original that `run` reached for, its result if it reached for none)."""
    watch = Watch(model, _stop, tensors=tensors)
    try:
        with thread_kept():
            watch.start()
            torch.set_grad_enabled(True)
            result = _outside_inference_mode(run)
        return watch.seen, None if watch.seen else (result,)
    except (_OriginalSeenError, Exception):
        if not watch.seen:
            raise
        return watch.seen, None
    finally:
        try:
            watch.stop()
        finally:
            watch.stop()
