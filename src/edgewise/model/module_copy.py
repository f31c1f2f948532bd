"""Copy a module tree: parameters as aliases, all other tensors by value, everything else as `copy.deepcopy` would.

`copy.deepcopy` alone does not do: it raises on tensors with a history, clones parameters, compiles PyG's message templates again
(which writes to the classes) and takes milliseconds for a small GCN.
"""

import copy
import copyreg
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch.overrides import TorchFunctionMode, _len_torch_function_stack, _pop_mode
from torch_geometric.inspector import Inspector

_SHARED_KINDS = frozenset(
    [
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        range,
        slice,
        type,
        type(...),
        property,
        torch.dtype,
        torch.device,
    ]
    + [torch.Size, torch.layout, torch.memory_format, types.FunctionType, types.BuiltinFunctionType, types.ModuleType]
)
_TRAINERS = (
    "_trainer",
    "trainer",
    "_fabric",
    "fabric",
)  # Lightning's: they belong to the training, not to the function
_OWN_STATE = ("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__")


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside wrappers that leave its function as it is: data parallelism, `torch.compile`, Lightning Fabric.

    >>> import torch
    >>> inner = torch.nn.Linear(2, 1)
    >>> unwrapped(torch.nn.DataParallel(inner)) is inner
    True
    """
    while True:
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inner = model.module
        else:
            parts = getattr(model, "_modules", {})
            inner = parts.get("_orig_mod") or parts.get("_original_module")
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def copied_module(model: nn.Module) -> nn.Module:
    """The twin of a module: in eval mode, no parameter requires a gradient, no cache of a graph is read or written."""
    twin: nn.Module = _Copier(model).copy(model)
    for module in twin.modules():
        module.__dict__["training"] = False
    return twin


class _TensorCopies(TorchFunctionMode):
    """`copy.deepcopy` inside foreign objects asks us for tensors."""

    def __init__(self, copier: "_Copier") -> None:
        super().__init__()
        self.copier = copier

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__deepcopy__:
            return self.copier.copy(args[0])
        return func(*args, **(kwargs or {}))


class _Copier:
    """One copy of one model; `memo` maps the identity of each object to its twin, as in `copy.deepcopy`."""

    def __init__(self, model: nn.Module) -> None:
        self.memo: dict[int, Any] = {}
        self.alive: list[Any] = []  # an identity is only good as long as its object lives
        modules = list(model.modules())
        for module in modules:
            self._introduce(module)
        for module in reversed(modules):  # children first: a module that copies itself may look into them
            self._fill(module) if _is_plain(module) else self.copy(module)

    def _introduce(self, module: nn.Module) -> None:
        """Everything that foreign code may ask for by identity gets its twin before any attribute is copied."""
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            self.copy(tensor)
        for key in _TRAINERS:
            if module.__dict__.get(key) is not None:
                self._remember(module.__dict__[key], module.__dict__[key])
        if _is_plain(module):
            self._remember(module, object.__new__(type(module)))

    def _remember(self, value: Any, twin: Any) -> Any:
        self.alive.append(value)
        self.memo[id(value)] = twin
        return twin

    def copy(self, value: Any) -> Any:
        """The twin of anything."""
        kind = type(value)
        if kind in _SHARED_KINDS:
            return value
        known = self.memo.get(id(value))
        if known is not None:
            return known
        if kind in _BY_KIND:
            return _BY_KIND[kind](self, value)
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, nn.Module):
            return self._module(value)
        return value if isinstance(value, type) else self._object(value)

    def _tensor(self, value: Tensor) -> Tensor:
        twin = value.detach()
        if not isinstance(value, nn.Parameter) or value.is_inference():
            twin = twin.clone()
        if isinstance(value, nn.Parameter):
            twin = nn.Parameter(twin, requires_grad=False)
        self._remember(value, twin)
        if type(value) in (Tensor, nn.Parameter) and value.__dict__:
            twin.__dict__.update(self._dict(value.__dict__))  # what the user has pinned to the tensor
        return twin

    def _module(self, module: nn.Module) -> nn.Module:
        inner = unwrapped(module)
        if inner is not module:
            return self._remember(module, self.copy(inner))
        if not _is_plain(module):
            return self._foreign(module)
        twin: nn.Module = self._remember(module, object.__new__(type(module)))
        self._fill(module)
        return twin

    def _fill(self, module: nn.Module) -> None:
        state = self.memo[id(module)].__dict__
        state.update(self._dict(module.__dict__))
        state.pop("_compiled_call_impl", None)
        if state.get("cached") is True:  # a cache belongs to the user's graph
            state["cached"] = False
            state.update({key: None for key in state if key.startswith("_cached")})

    def _dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        twins, shared, make = {}, _SHARED_KINDS, self.copy
        for key, part in list(value.items()):  # at once: another thread may be using the model
            twins[key if type(key) in shared else make(key)] = part if type(part) in shared else make(part)
        return twins

    def _known_dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        twin = self._remember(value, type(value)())
        if value:  # most are empty: the places for hooks
            twin.update(self._dict(value))
        return twin

    def _list(self, value: list[Any]) -> list[Any]:
        twin: list[Any] = self._remember(value, [])
        twin.extend(self.copy(part) for part in list(value))
        return twin

    def _tuple(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        twin = tuple(self.copy(part) for part in value)
        return value if all(a is b for a, b in zip(value, twin, strict=True)) else self._remember(value, twin)

    def _set(self, value: set[Any]) -> Any:
        return self._remember(value, type(value)(self.copy(part) for part in list(value)))

    def _method(self, value: types.MethodType) -> types.MethodType:
        return types.MethodType(value.__func__, self.copy(value.__self__))

    def _partial(self, value: Any) -> Any:
        return partial(self.copy(value.func), *self._tuple(value.args), **self._dict(value.keywords))

    def _reference(self, value: Any) -> Any:
        twin = self.memo.get(id(value()))
        return value if twin is None else weakref.ref(twin)

    def _generator(self, value: torch.Generator) -> torch.Generator:
        twin = torch.Generator(value.device)
        twin.set_state(value.get_state())
        return self._remember(value, twin)

    def _inspector(self, value: Inspector) -> Inspector:
        """PyG's record of a class: its entries are never changed, its dictionaries may be."""
        twin = copy.copy(value)
        twin.__dict__.update({key: dict(part) for key, part in vars(value).items() if isinstance(part, dict)})
        return self._remember(value, twin)

    def _object(self, value: Any) -> Any:
        """An object of a class that we do not know: attribute by attribute if that is all there is to it."""
        kind = type(value)
        if hasattr(value, "__deepcopy__") or hasattr(value, "__setstate__") or kind in copyreg.dispatch_table:
            return self._foreign(value)
        recipe = value.__reduce_ex__(4)
        if isinstance(recipe, str):
            return value
        make, arguments, state, *items = (*recipe, None, None, None)[:5]
        if make is not _NEW or arguments != (kind,) or type(state) is not dict or items != [None, None]:
            return self._foreign(value)
        twin = self._remember(value, kind.__new__(kind))
        twin.__dict__.update(self._dict(state))
        return twin

    def _foreign(self, value: Any) -> Any:
        """Leave it to `copy.deepcopy`, which asks us for tensors and finds every module in the memo."""
        depth = _len_torch_function_stack()
        try:
            with _TensorCopies(self):
                return self._remember(value, copy.deepcopy(value, self.memo))
        finally:
            while _len_torch_function_stack() > depth:  # an interrupt on the way in or out leaves the mode on the stack
                _pop_mode()


_NEW = copyreg.__newobj__  # type: ignore[attr-defined]  # how `object.__reduce_ex__` says: an empty object and its attributes
_BY_KIND: dict[type, Callable[[_Copier, Any], Any]] = {
    dict: _Copier._known_dict,
    OrderedDict: _Copier._known_dict,
    list: _Copier._list,
    tuple: _Copier._tuple,
    set: _Copier._set,
    frozenset: _Copier._set,
    types.MethodType: _Copier._method,
    partial: _Copier._partial,
    weakref.ref: _Copier._reference,
    torch.Generator: _Copier._generator,
    Inspector: _Copier._inspector,
}


def _is_plain(module: nn.Module) -> bool:
    """Whether a module is its attributes and nothing else: no wrapper, no copying of its own, no slots."""
    if unwrapped(module) is not module:
        return False
    return all(_is_plain_class(kind) for kind in type(module).__mro__[:-1]) or is_parametrized(module)


def _is_plain_class(kind: type) -> bool:
    known = kind.__module__.startswith(("torch.nn.", "torch_geometric."))  # theirs only repair old pickles
    own = vars(kind)
    return (
        "__deepcopy__" not in own and not own.get("__slots__") and (known or not any(key in own for key in _OWN_STATE))
    )
