"""Copy a module tree: parameters as aliases, all other tensors by value, everything else as `copy.deepcopy` would.

`copy.deepcopy` alone does not do: it raises on tensors with a history, clones parameters, may compile PyG's message templates
again (which writes to the classes) and takes milliseconds for a small GCN. What it cannot copy is built anew from its class and
copies of its attributes; a lock gets a lock of its own; a function that knows a part of the model (a closure over `self`) is
made anew and knows the twin; what only C code can make (a file, a generator, a socket) is shared.
"""

import copy
import copyreg
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.inspector import Inspector
from torch_geometric.nn import Linear

from edgewise.errors import ModelError
from edgewise.model.contents import same_tensor
from edgewise.model.global_state import ThreadState, push_mode
from edgewise.model.module_tree import modules_of, switches_itself

_PLAIN_KINDS = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    slice,
    type(...),
    torch.Size,
    torch.dtype,
    torch.device,
)
_CODE_KINDS = (type, property, types.BuiltinFunctionType, types.ModuleType)
_SHARED_KINDS = frozenset((*_PLAIN_KINDS, *_CODE_KINDS, torch.layout, torch.memory_format))
_TRAINERS = ("_trainer", "trainer", "_fabric", "fabric")  # Lightning's belong to the training, not to the function
_STATE_HOOKS = frozenset(
    ("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")
)
"""Places for hooks that no forward pass runs: where they are empty, all modules of a twin share one."""
_LOCKS: dict[type, Callable[[], Any]] = {type(make()): make for make in (threading.Lock, threading.RLock)}
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
    """The twin of a module: in eval mode, no parameter requires a gradient, no cache of a graph is read or written.

    Raises:
        ModelError: If a part gives itself where a copy is asked for. What else copying raises comes from the user's objects.
    """
    twin = _plain_twin(model)
    copies = modules_of(twin)
    if any(map(switches_itself, copies)):
        _switch(twin, _plain_twin(model))
    else:
        for module in copies:
            module.__dict__["training"] = False
    return twin


def _switch(twin: nn.Module, other: nn.Module) -> None:
    """Give a twin what `eval()` sets, by its own code: called on another copy, whose parameters are no aliases.

    Raises:
        ModelError: If it changes parameters or buffers.
    """
    for tensor in (*other.parameters(), *other.buffers()):
        tensor.data = tensor.data.clone()
    other.eval()
    before, after = ([*one.parameters(), *one.buffers()] for one in (twin, other))
    if len(before) != len(after) or not all(map(same_tensor, before, after)):
        raise ModelError("eval() changes its parameters")
    for module, switched in zip(modules_of(twin), modules_of(other), strict=True):
        for key, value in switched.__dict__.items():
            if type(value) in _PLAIN_KINDS:
                module.__dict__[key] = value


def _plain_twin(model: nn.Module) -> nn.Module:
    """A copy in the mode that the original is in."""
    originals = modules_of(model)
    theirs = _parts(originals)
    twin: nn.Module = _Copier(originals).copy(model)
    copies = modules_of(twin)
    if not theirs.isdisjoint(_parts(copies)):  # a class of the user's gave itself
        twin = _Copier(originals, foreign=False).copy(model)
        copies = modules_of(twin)
        if not theirs.isdisjoint(_parts(copies)):
            raise ModelError(f"{_shared_names(model, twin)} gives itself where a copy is asked for")
    for module in copies:
        _drop_cache(module)
        for parameter in module._parameters.values():
            if parameter is not None and parameter.requires_grad:  # copied by a class of the user's
                parameter.requires_grad_(False)
    return twin


def _parts(modules: list[nn.Module]) -> set[int]:
    """The identities of modules, their parameters and their buffers."""
    parts = {id(module) for module in modules}
    for module in modules:
        parts.update(map(id, module._parameters.values()))
        parts.update(map(id, module._buffers.values()))
    return parts - {id(None)}


def _shared_names(model: nn.Module, twin: nn.Module) -> str:
    theirs = _parts(modules_of(twin))
    named = [*model.named_modules(), *model.named_parameters(), *model.named_buffers()]
    return ", ".join(name or "the model itself" for name, part in named if id(part) in theirs)


def _known_by(value: Any) -> list[Any]:
    """What a function knows by its closure and its defaults, and what a container holds."""
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
        return [*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    if isinstance(value, types.MethodType):
        return [value.__self__]
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, weakref.ref):
        return [value()]
    return list(value.values()) if type(value) is dict else list(value) if type(value) in (list, tuple) else []


def _drop_cache(module: nn.Module) -> None:
    state = module.__dict__
    if state.get("cached") is True:  # a cache belongs to the user's graph
        state["cached"] = False
        state.update({key: None for key in state if key.startswith("_cached")})


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

    def __init__(self, modules: list[nn.Module], *, foreign: bool = True) -> None:
        """`foreign=False` lets no class copy itself."""
        self.lets_foreign = foreign
        self.memo: dict[int, Any] = {}
        self.alive: list[Any] = []  # an identity is only good as long as its object lives
        self.no_hooks: OrderedDict[Any, Any] = OrderedDict()
        plain = [self._introduce(module) for module in modules]
        # Children first: a module that copies itself may look into them.
        for module, is_plain in zip(reversed(modules), reversed(plain), strict=True):
            self._fill(module) if is_plain else self.copy(module)

    def _introduce(self, module: nn.Module) -> bool:
        """Whatever foreign code may ask for by identity gets its twin before any attribute is copied; says if it is plain."""
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            self.copy(tensor)
        for key in _TRAINERS:
            if module.__dict__.get(key) is not None:
                self._remember(module.__dict__[key], module.__dict__[key])
        plain = self._is_plain(module)
        if plain:
            self._remember(module, object.__new__(type(module)))
        return plain

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
        if not self._is_plain(module):
            return self._foreign(module)
        twin: nn.Module = self._remember(module, object.__new__(type(module)))
        self._fill(module)
        _drop_cache(twin)  # nobody registered it, so nobody else will find it
        return twin

    def _fill(self, module: nn.Module) -> None:
        state = self.memo[id(module)].__dict__
        state.update(self._dict(module.__dict__))
        state.pop("_compiled_call_impl", None)
        if not self.lets_foreign:
            self._fill_slots(module, self.memo[id(module)])

    def _dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        twins, shared, make = {}, _SHARED_KINDS, self.copy
        for key, part in list(value.items()):  # at once: another thread may be using the model
            kind = type(part)
            if kind is OrderedDict and not part and id(part) not in self.memo:  # most attributes are places for hooks
                twin: Any = self.no_hooks if key in _STATE_HOOKS else self._remember(part, OrderedDict())
            else:
                twin = part if kind in shared else make(part)
            twins[key if type(key) in shared else make(key)] = twin
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

    def _function(self, value: types.FunctionType) -> types.FunctionType:
        """A function that knows parts of the model by its closure or its defaults knows their twins; any other is shared."""
        if not self._is_ours(value):
            return value
        cells = tuple(types.CellType() for _ in value.__closure__ or ())
        twin = types.FunctionType(value.__code__, value.__globals__, value.__name__, None, cells or None)
        self._remember(value, twin)  # before its cells: one may hold the function itself
        for cell, old in zip(cells, value.__closure__ or (), strict=True):
            with suppress(ValueError):  # a cell that was never filled
                cell.cell_contents = self._known(old.cell_contents)
        twin.__defaults__ = value.__defaults__ and tuple(map(self._known, value.__defaults__))
        twin.__kwdefaults__ = value.__kwdefaults__ and {k: self._known(v) for k, v in value.__kwdefaults__.items()}
        twin.__dict__.update(value.__dict__)
        twin.__qualname__, twin.__module__ = value.__qualname__, value.__module__
        return twin

    def _is_ours(self, part: Any, depth: int = 4) -> bool:
        """Whether this is a part of the model, or a function or container that knows one: what a hook collects is not."""
        if id(part) in self.memo or isinstance(part, nn.Module):
            return True
        return depth > 0 and any(self._is_ours(inner, depth - 1) for inner in _known_by(part))

    def _known(self, part: Any) -> Any:
        return self.copy(part) if self._is_ours(part) else part

    def _method(self, value: types.MethodType) -> types.MethodType:
        return types.MethodType(self.copy(value.__func__), self.copy(value.__self__))

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
        try:
            recipe = value.__reduce_ex__(4)
        except Exception:  # a lock, a file, whatever cannot be copied
            return self._built(value)
        if isinstance(recipe, str):
            return value
        make, arguments, state, *items = (*recipe, None, None, None)[:5]
        if make is not _NEW or arguments != (kind,) or type(state) is not dict or items != [None, None]:
            return self._foreign(value)
        twin = self._remember(value, object.__new__(kind))
        twin.__dict__.update(self._dict(state))
        return twin

    def _foreign(self, value: Any) -> Any:
        """Leave it to `copy.deepcopy`, which asks us for tensors and finds every module in the memo; or build it anew."""
        if not self.lets_foreign:
            return self._built(value)
        before, known = ThreadState(), set(self.memo)
        try:
            push_mode(_TensorCopies(self))
            return self._remember(value, copy.deepcopy(value, self.memo))
        except Exception:  # whatever objects of the user's raise: forget what was left half done
            for key in self.memo.keys() - known:
                del self.memo[key]
        finally:
            before.put_back()
        return self._built(value)

    def _built(self, value: Any) -> Any:
        """An object of the same class with copies of the attributes; the object itself where only C code can make one."""
        kind = type(value)
        if kind in _LOCKS:
            return self._remember(value, _LOCKS[kind]())
        try:
            twin = self._remember(value, object.__new__(kind))
        except TypeError:
            return self._remember(value, value)
        if isinstance(getattr(value, "__dict__", None), dict):
            object.__getattribute__(twin, "__dict__").update(self._dict(value.__dict__))
        self._fill_slots(value, twin)
        return twin

    def _fill_slots(self, value: Any, twin: Any) -> None:
        for place in [part for base in type(value).__mro__ for part in vars(base).values()]:
            if isinstance(place, types.MemberDescriptorType):
                with suppress(AttributeError):  # a slot that was never filled
                    place.__set__(twin, self.copy(place.__get__(value)))

    def _is_plain(self, module: nn.Module) -> bool:
        """Whether a module is its attributes and nothing else: no wrapper, no copying of its own, no slots."""
        if unwrapped(module) is not module:
            return False
        return not self.lets_foreign or all(_is_plain_class(kind) for kind in type(module).__mro__[:-1])


_NEW = copyreg.__newobj__  # type: ignore[attr-defined]  # how `object.__reduce_ex__` says: an empty object and its attributes
_BY_KIND: dict[type, Callable[[_Copier, Any], Any]] = {
    dict: _Copier._known_dict,
    OrderedDict: _Copier._known_dict,
    list: _Copier._list,
    tuple: _Copier._tuple,
    set: _Copier._set,
    frozenset: _Copier._set,
    types.FunctionType: _Copier._function,
    types.MethodType: _Copier._method,
    partial: _Copier._partial,
    weakref.ref: _Copier._reference,
    torch.Generator: _Copier._generator,
    Inspector: _Copier._inspector,
}


def _is_plain_class(kind: type) -> bool:
    known = kind.__module__.startswith(("torch.nn.", "torch_geometric."))  # theirs only repair old pickles
    own = vars(kind)
    copies_itself = (
        "__deepcopy__" in own and kind is not Linear
    )  # PyG 2.5's makes a new one, which draws its weights first
    return not copies_itself and not own.get("__slots__") and (known or not any(key in own for key in _OWN_STATE))
