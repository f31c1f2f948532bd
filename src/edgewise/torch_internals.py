"""Private names of torch: the one file that reads them, each with another that takes its place where a torch lacks it.

What has a public twin does not stand here; a public name that our oldest torch lacks does. `Module._parameters`, `_buffers`,
`_modules` and `Tensor._version` may be read anywhere: they have no twin, and have been the same since torch 1.
`edgewise.trees` says what the functions on trees do.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn, overrides
from torch.nn.modules import module as module_file
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch as dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

__all__ = [
    "HooksOfAll",
    "OwnHook",
    "TorchDispatchMode",
    "TreeSpec",
    "base_of",
    "dispatch_depth",
    "dispatch_mode",
    "function_modes",
    "has_hooks",
    "no_dispatch",
    "no_functions",
    "pop_dispatch_mode",
    "pop_function_mode",
    "push_function_mode",
    "remove_global_pre_hooks",
    "safe_globals",
    "schema_of",
    "set_gradients",
    "storage_key",
    "tree_flatten",
    "tree_leaves",
    "tree_unflatten",
]

_C: Any = torch._C
_GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)


def _either(place: Any, name: str, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """A private function, or what takes its place in a torch that has none of that name."""
    return getattr(place, name, otherwise)


def _function_modes() -> list[Any]:
    return [_C._get_function_stack_at(i) for i in range(_C._len_torch_function_stack())]


def _push_function_mode(mode: TorchFunctionMode) -> None:
    TorchFunctionMode.__enter__(mode)


def _pop_function_mode() -> None:
    TorchFunctionMode.__exit__(function_modes()[-1], None, None, None)


def _dispatch_depth() -> int:
    return len(dispatch._get_current_dispatch_mode_stack())


def _dispatch_mode() -> Any:
    depth = dispatch_depth()
    return _C._get_dispatch_stack_at(depth - 1) if depth else None


def _pop_dispatch_mode() -> None:
    _C._pop_torch_dispatch_stack(None)


def _without_modes() -> Any:
    return dispatch._disable_current_modes()


@contextmanager
def _safe_globals(allowed: list[Any]) -> Iterator[None]:
    before = list(torch.serialization.get_safe_globals())
    torch.serialization.add_safe_globals(allowed)
    try:
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


function_modes: Callable[[], list[Any]] = _either(overrides, "_get_current_function_mode_stack", _function_modes)
"""The function modes of this thread, the newest last."""
push_function_mode: Callable[[TorchFunctionMode], None] = _either(overrides, "_push_mode", _push_function_mode)
"""Let a mode see every torch function of this thread."""
pop_function_mode: Callable[[], Any] = _either(overrides, "_pop_mode", _pop_function_mode)
"""Take the newest function mode of this thread off."""
dispatch_depth: Callable[[], int] = _either(_C, "_len_torch_dispatch_stack", _dispatch_depth)
"""How many dispatch modes this thread has."""
dispatch_mode: Callable[[], Any] = _either(dispatch, "_get_current_dispatch_mode", _dispatch_mode)
"""The newest dispatch mode of this thread; None without one."""
pop_dispatch_mode: Callable[[], Any] = _either(dispatch, "_pop_mode", _pop_dispatch_mode)
"""Take the newest dispatch mode of this thread off."""
set_gradients: Callable[[bool], Any] = _either(_C, "_set_grad_enabled", torch.set_grad_enabled)
"""Whether this thread records gradients from now on."""
no_dispatch: Callable[[], AbstractContextManager[Any]] = _either(_C, "_DisableTorchDispatch", _without_modes)
"""Inside, no dispatch mode of this thread sees what torch does. Written in C: an interrupt cannot leave it open."""
no_functions: Callable[[], AbstractContextManager[Any]] = _C.DisableTorchFunction
"""Inside, no function mode of this thread sees what torch does."""

safe_globals: Callable[[list[Any]], AbstractContextManager[Any]] = _either(
    torch.serialization, "safe_globals", _safe_globals
)
"""Inside, a file that `torch.load` reads with `weights_only` may name these; torch 2.4 only adds to its list and empties it."""


class OwnHook:
    """Marks our own hook among those of all modules: it looks on for a moment, changes nothing, and counts as no hook."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class HooksOfAll:
    """The user's hooks in one of torch's tables of hooks that every module runs, in every thread."""

    table: str

    def now(self) -> dict[int, Any]:
        """By torch's number of each hook; other threads may add and remove hooks meanwhile."""
        found = getattr(module_file, self.table, {})
        return {key: hook for key, hook in list(found.items()) if not isinstance(hook, OwnHook)}


def has_hooks(module: nn.Module) -> bool:
    """Whether a user looks into what a module gets or gives: hooks of its own, or hooks of every module.

    >>> layer = nn.Linear(1, 1)
    >>> has_hooks(layer)
    False
    >>> _ = layer.register_forward_hook(lambda *_: None)
    >>> has_hooks(layer)
    True
    """
    return bool(module._forward_hooks or module._forward_pre_hooks) or any(
        HooksOfAll(name).now() for name in _GLOBAL_HOOKS
    )


def remove_global_pre_hooks(unwanted: Callable[[Any], bool]) -> None:
    """Remove hooks that `register_module_forward_pre_hook` was given, wherever an interrupt or a fork left their handles."""
    hooks = getattr(module_file, "_global_forward_pre_hooks", {})
    for key in [key for key, found in list(hooks.items()) if unwanted(found)]:
        hooks.pop(key, None)


def storage_key(tensor: Tensor) -> int:
    """A number for the memory of a tensor, which its views share; it is given again once nothing holds that memory."""
    return tensor.untyped_storage()._cdata


def base_of(tensor: Tensor) -> Tensor | None:
    """The tensor whose memory a view looks at; None for what is no view.

    >>> x = torch.zeros(4)
    >>> base_of(x[1:]) is x, base_of(x)
    (True, None)
    """
    return getattr(tensor, "_base", None)


def schema_of(operation: Any) -> Any:
    """The arguments of an operation of torch's dispatcher; None for an operation of higher order.

    >>> [argument.name for argument in schema_of(torch.ops.aten.relu.default).arguments]
    ['self']
    """
    return getattr(operation, "_schema", None)
