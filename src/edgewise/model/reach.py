"""What a model can reach from `forward`: the parts of any object that the function may depend on, by name."""

import argparse
import contextvars
import operator
import sys
import sysconfig
import threading
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cached_property, partial, partialmethod
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from edgewise.model.code_names import imported, mentions
from edgewise.model.module_state import state_of
from edgewise.torch_internals import HooksOfAll

_INSTALLED = frozenset(("torch", "torch_geometric", "numpy", "edgewise"))
_STDLIB = sysconfig.get_paths()["stdlib"]
_NAMESPACES = (types.SimpleNamespace, argparse.Namespace)
_DATA_PACKAGES = frozenset(("torch_sparse", "functools"))
_CALLED_BY_OTHERS = frozenset(("forward", "encode", "decode"))
_NOT_CALLED = frozenset(
    (
        *("__new__", "__repr__", "__str__", "__format__", "__doc__", "__del__", "__sizeof__", "__dir__", "__hash__"),
        *("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__copy__", "__deepcopy__", "__getnewargs__"),
        *("__init_subclass__", "__subclasshook__", "__class_getitem__"),
    )
)
_ABOUT_CLASSES = frozenset(
    (
        *(
            "__dict__",
            "__weakref__",
            "__doc__",
            "__module__",
            "__qualname__",
            "__annotations__",
            "__slots__",
            "__hash__",
        ),
        *("__static_attributes__", "__firstlineno__", "_abc_impl", "__abstractmethods__", "__parameters__"),
        *(
            "__orig_bases__",
            "__match_args__",
            "__slotnames__",
            "__dataclass_fields__",
            "__dataclass_params__",
            "__annotate_func__",
        ),
    )
)
_LEAVES = frozenset(
    (
        *(type(None), bool, int, float, complex, str, bytes, range, slice, type(...), types.CodeType),
        *(torch.Size, torch.dtype, torch.device, Tensor, nn.Parameter),
        *(types.BuiltinFunctionType, types.MemberDescriptorType, types.GetSetDescriptorType),
    )
)
_OF_INSTALLED = (
    *(types.ModuleType, types.FunctionType, types.BuiltinFunctionType, np.ufunc, type),
    *(bool, int, float, complex, str),
)
_DEAD_ENDS = _LEAVES - {types.BuiltinFunctionType}
_SAME_PARTS = frozenset((dict, OrderedDict, list, tuple, set, frozenset, partial, types.FunctionType, types.MethodType))
"""Kinds whose parts do not depend on the names that code mentions."""
_FUNCTIONS = (types.FunctionType, property, staticmethod, classmethod, partialmethod, cached_property)
Parts = dict[Any, Any]


class CodeReach:
    """Whose code is read, and which names it mentions.

    Code of Python itself and of installed packages is known by its name alone; what users write is looked into. An installed
    package that some module of the model comes from is theirs, too.
    """

    def __init__(self, modules: Iterable[nn.Module], *roots: Any) -> None:
        self._modules = {id(module): module for module in modules}
        kinds = {kind for module in self._modules.values() for kind in type(module).__mro__}
        self._frames = frozenset(kinds - {*nn.Module.__mro__})
        self._own = {kind.__module__.partition(".")[0] for kind in kinds} - sys.stdlib_module_names
        self._users: dict[str, bool] = {}
        self.reached: list[Any] = []
        """Everything that was found on the way, plain values and tensors left out."""
        self.names: set[str] = set()
        self.has_all_names = False
        self.named_modules: set[str] = set()
        """Users' modules whose whole name is a string that can be reached: what `import_module(name)` may mean."""
        parts = (part for module in self._modules.values() for part in state_of(module) if part)
        self._find_names([*kinds, *parts, *roots])

    def _find_names(self, roots: list[Any]) -> None:
        """Look through all that can be reached until no name is new."""
        seen: dict[int, Any] = {}
        waiting, by_name, size = list(roots), list[Any](), -1
        while size != (size := len(self.names) + self.has_all_names + len(self.named_modules)):
            waiting.extend(chain.from_iterable(map(self._onward, by_name)))  # a new name may have made more reachable
            while waiting:
                value = waiting.pop()
                kind = type(value)
                if kind in _DEAD_ENDS:
                    if kind is str and value in sys.modules:
                        self._find_modules([value])
                    continue
                if id(value) in seen:
                    continue
                seen[id(value)] = value
                if kind is types.FunctionType and self.is_users(value.__globals__.get("__name__")):
                    self._read(value)
                if kind not in _SAME_PARTS or value is sys.modules:
                    by_name.append(value)
                waiting.extend(self._onward(value))
        self.reached = list(seen.values())

    def _read(self, function: types.FunctionType) -> None:
        """Note what a user's function mentions."""
        found = mentions(function.__code__)
        self.names |= found.names
        self.has_all_names |= found.looks_up
        self._find_modules(found.texts)

    def _onward(self, value: Any) -> Iterable[Any]:
        """The parts of a value that may lead to another name."""
        if isinstance(value, type) and value in self._frames and not self.is_users(value.__module__):
            return _of_library(value)
        return (self.parts_of(value) or {}).values()

    def _find_modules(self, texts: Iterable[str]) -> None:
        self.named_modules.update(text for text in texts if text in sys.modules and self.is_users(text))

    def is_users(self, module: Any) -> bool:
        """Whether code of a module of this name is a user's."""
        name = module if isinstance(module, str) else ""
        if name not in self._users:
            self._users[name] = self._is_users(name.partition(".")[0], name)
        return self._users[name]

    def _is_users(self, top: str, name: str) -> bool:
        if top in sys.builtin_module_names or top in _INSTALLED:
            return False
        if top in self._own or top == "__main__":
            return True
        file = _file_of(name) or _file_of(top)
        if file is None:
            return top not in sys.stdlib_module_names
        return not (file.startswith(_STDLIB) or "site-packages" in file or "dist-packages" in file)

    def is_mentioned(self, name: str) -> bool:
        """Whether code that can be reached may look up an attribute of this name."""
        return self.has_all_names or name in self.names

    # --- parts --------------------------------------------------------------------------------------------------------

    def parts_of(self, value: Any) -> Parts | None:
        """What a value consists of, by key, position or name; None for what has no parts, or none that matter.

        >>> CodeReach([]).parts_of({"a": 1}), CodeReach([]).parts_of([4]), CodeReach([]).parts_of(3)
        ({'a': 1}, {0: 4}, None)
        """
        kind = type(value)
        if kind in _LEAVES or id(value) in self._modules:
            return None
        if kind in _BY_KIND:
            return _BY_KIND[kind](self, value)
        for kinds, parts in _BY_CLASS:
            if isinstance(value, kinds):
                return parts(self, value)
        return self._object(value)

    def _dict(self, value: Any) -> Parts:
        if value is sys.modules:
            return {name: value[name] for name in sorted(self.named_modules) if name in value}
        found = dict(value)
        if set(map(type, found)) <= _LEAVES:  # names, nearly always
            return found
        return found | {("key", key): key for key in found if type(key) not in _LEAVES}

    def _set(self, value: Any) -> Parts | None:
        """Of plain values: none, it is compared as it is."""
        return None if all(type(part) in _LEAVES for part in value) else {part: part for part in value}

    def _sequence(self, value: Any) -> Parts:
        return dict(enumerate(value))

    def _container(self, value: Any) -> Parts:
        """Of a class that is made of a dictionary or a sequence: also its attributes."""
        found = dict(value.items()) if isinstance(value, Mapping) else dict(enumerate(value))
        if hasattr(value, "default_factory"):
            found["default_factory", ""] = value.default_factory
        return found | {(key, "attribute"): part for key, part in (self._object(value) or {}).items()}

    def _graph(self, value: Any) -> Parts:
        found: Parts = value.to_dict()
        return found

    def _enum(self, value: Enum) -> Parts:
        return {"class": type(value), **_attributes(value)}

    def _reference(self, value: Any) -> Parts:
        return {"referent": value()}

    def _proxy(self, value: Any) -> Parts | None:
        try:
            return {"referent": value.__sizeof__.__self__}
        except ReferenceError:  # it is no longer there
            return None

    def _of_thread(self, value: threading.local) -> Parts:
        return dict(vars(value))

    def _context_variable(self, value: contextvars.ContextVar[Any]) -> Parts:
        return {"value": value.get(None)}

    def _array(self, value: np.ndarray) -> Parts | None:
        return dict(enumerate(value.reshape(-1).tolist())) if value.dtype == object else None

    def _partial(self, value: Any) -> Parts:
        return {"func": value.func, "args": value.args, "keywords": value.keywords}

    def _hooks(self, value: HooksOfAll) -> Parts:
        return dict(value.now())

    def _method(self, value: types.MethodType) -> Parts:
        return {"function": value.__func__, "self": value.__self__}

    def _wrapper(self, value: Any) -> Parts:
        keys = ("fget", "__func__", "func", "args", "keywords")
        return {key: getattr(value, key) for key in keys if getattr(value, key, None) is not None}

    def _function(self, value: types.FunctionType) -> Parts | None:
        ours = self.is_users(value.__globals__.get("__name__"))
        if not ours and not value.__closure__ and not vars(value):
            return None
        code, found = value.__code__, {}
        skipped = mentions(code).rebound if ours else frozenset()
        for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
            if name not in skipped and cell != _EMPTY:
                found[f"closure {name}"] = cell.cell_contents
        if vars(value):
            found["attributes"] = vars(value)
        if not ours:
            return found
        found |= {"code": code, "defaults": value.__defaults__, "keyword defaults": value.__kwdefaults__}
        for name in self._globals_of(value):
            found[f"global {name}"] = value.__globals__[name]
        return found | _imported_by(value)

    def _globals_of(self, function: types.FunctionType) -> list[str]:
        """The globals that a function reads and does not set; one that evaluates names may read any but our own objects."""
        found, table = mentions(function.__code__), function.__globals__
        read = set(found.globals)
        if found.evaluates:
            read |= {key for key, value in list(table.items()) if not key.startswith("__") and not _is_ours(value)}
        return sorted(name for name in read - found.rebound if name in table)

    def _python_module(self, value: types.ModuleType) -> Parts:
        """What code mentions of a module of Python; of an installed one only functions and numbers, by identity."""
        ours, table = self.is_users(value.__name__), vars(value)
        names = table.keys() if ours and self.has_all_names else {*self.names, "__getattr__"} & table.keys()
        found = {key: table[key] for key in sorted(names) if ours or isinstance(table[key], _OF_INSTALLED)}
        return found | ({"modules": sys.modules} if value is sys and "modules" in names else {})

    def _class(self, value: type) -> Parts | None:
        if self.is_users(value.__module__):
            own = {key: part for key, part in vars(value).items() if self._matters(value, key, part)}
            own |= {} if type(value) is type else {"class of the class": type(value)}
            return own | {("base", number): base for number, base in enumerate(value.__bases__)}
        if value not in self._frames:
            return None
        return {
            key: part for key, part in list(vars(value).items()) if key not in _ABOUT_CLASSES and key not in _NOT_CALLED
        }

    def _matters(self, kind: type, key: str, value: Any) -> bool:
        """Whether an entry of a user's class may be read: all values, and functions that are mentioned or called by others."""
        if key in _ABOUT_CLASSES or key in _NOT_CALLED:
            return False
        if not isinstance(value, _FUNCTIONS) or self.is_mentioned(key) or key in _CALLED_BY_OTHERS:
            return True
        if key == "__init__":
            return not issubclass(kind, nn.Module)
        bases = (base for base in kind.__mro__ if base in self._frames and not self.is_users(base.__module__))
        return (key.startswith("__") and key.endswith("__")) or any(key in vars(base) for base in bases)

    def _module(self, value: nn.Module) -> Parts:
        """Of a module that is not registered in the model."""
        parameters, buffers, attributes = state_of(value)
        return {"class": type(value), **parameters, **buffers, **attributes, **value._modules}

    def _object(self, value: Any) -> Parts | None:
        """The attributes of an object, or its bytes.

        Of one whose class is not the user's, tensors and what is mentioned by name; of a container, everything.
        """
        kind, own = type(value), _attributes(value)
        if self.is_users(kind.__module__) or kind in self._frames:
            return {"class": kind, **own, **_slots(value)}
        if wrapped := own.get("__wrapped__"):
            return {"__wrapped__": wrapped}
        if not own:
            return _buffer(value)
        if kind in _NAMESPACES or kind.__module__.partition(".")[0] in _DATA_PACKAGES or hasattr(kind, "__getitem__"):
            return own
        kinds = (Tensor, np.ndarray)
        return {key: part for key, part in own.items() if isinstance(part, kinds) or self.is_mentioned(key)} or None


def _is_ours(value: Any) -> bool:
    """Whether a value is a question or a result."""
    return type(value).__module__.partition(".")[0] == "edgewise"


def _file_of(module: str) -> str | None:
    """Where a module comes from, without asking code of its own for attributes."""
    found: str | None = getattr(sys.modules.get(module), "__dict__", {}).get("__file__")
    return found


_EMPTY = types.CellType()


def _imported_by(function: types.FunctionType) -> Parts:
    """The modules that a function imports as it runs; those that some string names, if it imports by a name."""
    found: Parts = {"named modules": sys.modules} if mentions(function.__code__).imports_by_name else {}
    for name in mentions(function.__code__).imports:
        package = function.__globals__.get("__package__")
        found |= {f"module {full}": module for full, module in imported(name, package)}
    return found


def _attributes(value: Any) -> Parts:
    """The attributes of an object, looked up past any code of its class."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return dict(own) if isinstance(own, dict) else {}


def _buffer(value: Any) -> Parts | None:
    """Of an object that consists of bytes (`array.array`, `bytearray`, `memoryview`): those."""
    try:
        view = memoryview(value)
    except TypeError:
        return None
    return {"bytes": view.tobytes(), "format": view.format, "shape": view.shape}


def _slots(value: Any) -> Parts:
    found = {}
    for kind in type(value).__mro__:
        for key, place in vars(kind).items():
            if isinstance(place, types.MemberDescriptorType):
                try:
                    found[key] = place.__get__(value)
                except AttributeError:  # never set
                    continue
    return found


_KNOWN_CLASSES: weakref.WeakKeyDictionary[type, tuple[list[Any], list[Any]]] = weakref.WeakKeyDictionary()


def _of_library(kind: type) -> list[Any]:
    """What of a package's class may lead to names: all but plain values, and functions of packages that reach nothing else.

    Nearly all of a class of torch's is the latter, so that is looked for once, and again when somebody has replaced an entry.
    """
    entries = list(vars(kind).items())
    now = [part for _, part in entries]
    before, found = _KNOWN_CLASSES.get(kind, ([], []))
    if len(before) != len(now) or not all(map(operator.is_, before, now)):
        skipped = _ABOUT_CLASSES | _NOT_CALLED
        found = [part for key, part in entries if key not in skipped and not _reaches_nothing(part)]
        _KNOWN_CLASSES[kind] = now, found
    return found


def _reaches_nothing(part: Any) -> bool:
    if type(part) is not types.FunctionType:
        return type(part) in _LEAVES
    top = str(part.__globals__.get("__name__")).partition(".")[0]
    return top in ("torch", "torch_geometric") and not part.__closure__ and not vars(part)


_BY_KIND: dict[Any, Callable[[CodeReach, Any], Parts | None]] = {
    dict: CodeReach._dict,
    OrderedDict: CodeReach._dict,
    list: CodeReach._sequence,
    tuple: CodeReach._sequence,
    set: CodeReach._set,
    frozenset: CodeReach._set,
    weakref.ProxyType: CodeReach._proxy,
    weakref.CallableProxyType: CodeReach._proxy,
    threading.local: CodeReach._of_thread,
    contextvars.ContextVar: CodeReach._context_variable,
    types.FunctionType: CodeReach._function,
    types.ModuleType: CodeReach._python_module,
    types.MethodType: CodeReach._method,
    partial: CodeReach._partial,
    HooksOfAll: CodeReach._hooks,
    property: CodeReach._wrapper,
    staticmethod: CodeReach._wrapper,
    classmethod: CodeReach._wrapper,
    partialmethod: CodeReach._wrapper,
    cached_property: CodeReach._wrapper,
}
_BY_CLASS: tuple[tuple[Any, Callable[[CodeReach, Any], Parts | None]], ...] = (
    (type, CodeReach._class),
    (nn.Module, CodeReach._module),
    ((Data, HeteroData), CodeReach._graph),
    (Enum, CodeReach._enum),
    (weakref.ref, CodeReach._reference),
    (np.ndarray, CodeReach._array),
    ((Mapping, list, tuple, deque), CodeReach._container),
)
