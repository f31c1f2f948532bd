"""The content of a model at one moment, to say later whether and where it has changed.

Versions of tensors do not see an edit through `.data`, and identities do not see one in place, so contents are compared.
"""

import dis
import operator
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from types import CodeType
from typing import Any

from torch import Tensor, nn

from edgewise.model.contents import DEPTH, Container, KeptTensors, frozen, parts_of, same
from edgewise.model.module_tree import named_modules
from edgewise.model.twin import model_lock, unwrapped

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

    def __init__(self, model: nn.Module, *, whole: bool = True) -> None:
        """`whole=False` keeps parameters alone: enough for `moved`, which is all that a single call asks for."""
        self._is_whole = whole
        with model_lock(model):
            self._modules = named_modules(unwrapped(model))
            self._parts = {name: _photograph(module, whole=whole) for name, module in self._modules.items()}
        self._parameters = KeptTensors(
            [
                (before, module._parameters, key)
                for name, module in self._modules.items()
                for key, before in self._parts[name][0].items()
                if before is not None
            ]
        )
        self._glance: _Glance | None = None

    def changed(self, model: nn.Module) -> str:
        """What has changed first, in words such as `parameter convs.0.bias`; empty if nothing has."""
        assert self._is_whole  # attributes would be missing
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
        if self._parameters.are_same():
            return ""
        for name, module in self._modules.items():
            before, now = self._parts[name][0], module._parameters
            for key, then in before.items():
                if then is not None and not same(then, now.get(key)):
                    return f"parameter {name}.{key}" if name else f"parameter {key}"
        return ""

    def differences(self, model: nn.Module) -> list[str]:
        """Everything that has changed."""
        assert self._is_whole
        with model_lock(model):
            return list(self._differences(unwrapped(model)))

    def _differences(self, model: nn.Module) -> Iterator[str]:
        modules = named_modules(model)
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
                if then is not value and not same(then, value):
                    yield f"{word} {place}{key}"


_WORDS = ("parameter", "buffer", "attribute")
_ABSENT = object()


class _Glance:
    """A quick look at all modules: True only if every attribute is the very object that it was, with its contents.

    `tables` are the dictionaries of the modules, `lists` their flat lists; `keys` and `objects` are what was in them, one after
    the other, so that all of them are looked through in one pass. `empty` are the dictionaries that had nothing in them (hooks,
    mostly), `modes` the places of `training` among the objects, which does not belong to the function.
    """

    def __init__(self, modules: Iterable[nn.Module], parts: Iterable[list[dict[str, Any]]]) -> None:
        self.tables: list[dict[str, Any]] = []
        self.lists: list[list[Any]] = []
        self.empty: list[dict[Any, Any]] = []
        tensors: list[tuple[Tensor, dict[str, Any], str]] = []
        self.contents: list[tuple[Any, dict[str, Any], str]] = []
        for module, (parameters, buffers, attributes) in zip(modules, parts, strict=True):
            own = vars(module)
            self.tables.append(own)
            for table, kept in ((module._parameters, parameters), (module._buffers, buffers), (module._modules, {})):
                (self.tables if table else self.empty).append(table)
                tensors += [(value, table, key) for key, value in kept.items() if value is not None]
            self.empty += [value for key, value in own.items() if _role(key) == "hooks" and not value]
            for key, kept in attributes.items():
                self._watch(own, key, kept)
        self.tensors, self.sizes = KeptTensors(tensors), self._sizes_now()
        self.keys, self.objects = list(chain.from_iterable(self.tables)), list(self._objects_now())
        self.modes = [place for place, key in enumerate(self.keys) if key == "training"]

    def _watch(self, own: dict[str, Any], key: str, kept: Any) -> None:
        """Note how to look at an attribute whose contents may change: flat lists and dictionaries object by object."""
        value = own.get(key)
        if kept is value:
            return
        if isinstance(kept, Container) and all(
            map(operator.is_, kept.parts.values(), (parts_of(value) or {}).values())
        ):
            if type(value) is dict:
                self.tables.append(value)
                return
            if type(value) is list:
                self.lists.append(value)
                return
        self.contents.append((kept, own, key))

    def is_same(self) -> bool:
        """Whether nothing has changed; False may also mean that it takes a closer look."""
        if any(self.empty) or self._sizes_now() != self.sizes:
            return False
        if not all(map(operator.is_, chain.from_iterable(self.tables), self.keys)):
            return False
        if not all(map(operator.is_, self._objects_now(), self.objects)) and not self._is_another_mode():
            return False
        return self.tensors.are_same() and all(
            key in table and same(before, table[key]) for before, table, key in self.contents
        )

    def _sizes_now(self) -> list[int]:
        return list(map(len, chain(self.tables, self.lists)))

    def _objects_now(self) -> Iterator[Any]:
        return chain(chain.from_iterable(map(dict.values, self.tables)), chain.from_iterable(self.lists))

    def _is_another_mode(self) -> bool:
        """Whether nothing but `training` is another object; the modes of now are taken over."""
        now = list(self._objects_now())
        for place in self.modes:
            self.objects[place] = now[place]
        return all(map(operator.is_, now, self.objects))


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


def _photograph(module: nn.Module, *, whole: bool) -> list[dict[str, Any]]:
    parts = _contents(module) if whole else (module._parameters,)
    return [{key: frozen(value, DEPTH) for key, value in list(part.items())} for part in parts]


# --- what forward itself leaves behind ----------------------------------------------------------------------------------

_STORE = dis.opmap["STORE_ATTR"]


@lru_cache(maxsize=4096)
def assigned_by_forward(kind: type) -> frozenset[str]:
    """Names of attributes that `forward` assigns, itself or in methods of the class whose names it mentions.

    >>> from torch_geometric.nn import TransformerConv
    >>> "_alpha" in assigned_by_forward(TransformerConv), "heads" in assigned_by_forward(TransformerConv)
    (True, False)
    """
    own = [vars(part) for part in kind.__mro__ if part not in nn.Module.__mro__]
    waiting, seen = ["forward"], {"forward"}
    assigned: set[str] = set()
    while waiting:
        name = waiting.pop()
        for methods in own:  # every version: one may call that of its parent
            for code in _codes(getattr(methods.get(name), "__code__", None)):
                if _STORE in code.co_code[::2]:  # else there is nothing to find, and reading it takes a while
                    assigned.update(step.argval for step in dis.get_instructions(code) if step.opcode == _STORE)
                waiting.extend(set(code.co_names) - seen)
                seen.update(code.co_names)
    return frozenset(assigned)


def _codes(code: CodeType | None) -> Iterator[CodeType]:
    """The code of a function and of the functions inside it."""
    if code is not None:
        yield code
        for part in code.co_consts:
            yield from _codes(part if isinstance(part, CodeType) else None)
