"""A quick look at everything that a fingerprint remembers: object by object, as long as all of them are the very same ones."""

import operator
import types
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from torch import Tensor, nn

from edgewise.model.code_names import mentions
from edgewise.model.contents import Container, Photographer, is_same_leaf, same_parts
from edgewise.model.kept_tensors import KeptTensors
from edgewise.model.module_state import role

_CODE = operator.attrgetter("__code__", "__defaults__", "__kwdefaults__")
_CONTENT = operator.attrgetter("cell_contents")
_VALUES = operator.methodcaller("values")


class Glance:
    """True only if every value is the very object that it was, with its contents; False may mean that it takes a closer look.

    `tables` are dictionaries (attributes of modules and objects, and those that they hold), `classes` those of classes, `lists`
    the lists; `keys` and `objects` are what was in them, one after the other, so that all of them are looked through in one
    pass. `empty` are the dictionaries that had nothing in them (hooks, mostly), `modes` the places of `training` among the
    objects, which does not belong to the function. `names` are the globals that functions read. The rest by content.
    """

    def __init__(
        self, modules: dict[str, nn.Module], parts: dict[str, list[dict[str, Any]]], photographer: Photographer
    ) -> None:
        self.tables: list[dict[Any, Any]] = []
        self.empty: list[dict[Any, Any]] = []
        self.lists: list[list[Any]] = []
        self.classes: list[Any] = []
        self.functions: list[Any] = []
        self.cells: list[Any] = []
        self.typed: list[Any] = list(modules.values())
        self.contents: list[tuple[Container, Any]] = []
        self._reach = photographer.reach
        globals_read: dict[int, tuple[dict[str, Any], set[str]]] = {}
        for container in photographer.containers:
            self._watch(container, globals_read)
        self.tensors = self._of_modules(modules, parts)
        ours = {id(before) for before, _, _ in self._kept}
        self.leaves = [(before, live) for before, live in photographer.leaves if id(before) not in ours]
        self.names = [(table.get, sorted(names)) for table, names in globals_read.values()]
        self.sizes, self.types = self._sizes_now(), list(map(type, self.typed))
        self.keys, self.objects = list(chain.from_iterable(self.tables)), list(self._objects_now())
        self.codes = list(map(_CODE, self.functions))
        self.modes = [place for place, key in enumerate(self.keys) if key == "training"]

    def _of_modules(self, modules: dict[str, nn.Module], parts: dict[str, list[dict[str, Any]]]) -> KeptTensors:
        """The tables of the registered modules, and their parameters and buffers."""
        self._kept: list[tuple[Tensor, dict[str, Any], str]] = []
        front: list[dict[Any, Any]] = []  # their keys come first
        for name, module in modules.items():
            self._module(module, front)
            own: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
            for table, kept in zip(own, parts[name], strict=False):
                self._kept += [(value, table, key) for key, value in kept.items() if isinstance(value, Tensor)]
        self.tables = front + self.tables
        return KeptTensors(self._kept)

    def _module(self, module: nn.Module, tables: list[dict[Any, Any]]) -> None:
        own = vars(module)
        hooks = [value for key, value in own.items() if role(key) == "hooks"]
        for table in (own, module._parameters, module._buffers, module._modules, *hooks):
            (tables if table else self.empty).append(table)

    def _watch(self, container: Container, globals_read: dict[int, tuple[dict[str, Any], set[str]]]) -> None:
        """Note how to look at a container: most are dictionaries in the end."""
        live = container.live
        kind = type(live)
        if kind is dict or kind is OrderedDict:
            self.tables.append(live)
        elif kind is list:
            self.lists.append(live)
        elif kind is types.FunctionType:
            self._function(container, globals_read)
        elif kind is types.ModuleType:
            self._python_module(container, globals_read)
        elif isinstance(live, type):
            self.classes.append(vars(live))
        elif isinstance(live, nn.Module):
            self.typed.append(live)
            self._module(live, self.tables)
        elif kind is not tuple:
            self._object(container)

    def _function(self, container: Container, globals_read: dict[int, tuple[dict[str, Any], set[str]]]) -> None:
        live = container.live
        self.functions.append(live)
        self.cells += live.__closure__ or ()
        read = {key.removeprefix("global ") for key in container.parts if str(key).startswith("global ")}
        found = mentions(live.__code__)
        if found.evaluates:  # a global that is new counts, too
            self.contents.append((container, live))
        read |= found.globals - found.rebound  # builtins, too: a global of the same name would hide them
        globals_read.setdefault(id(live.__globals__), (live.__globals__, set()))[1].update(read)

    def _python_module(self, container: Container, globals_read: dict[int, tuple[dict[str, Any], set[str]]]) -> None:
        live, reach = container.live, self._reach
        if reach.has_all_names and reach.is_users(live.__name__):
            self.contents.append((container, live))
            return
        names = container.parts.keys() | (reach.names if reach.is_users(live.__name__) else set())
        globals_read.setdefault(id(live), (vars(live), set()))[1].update(names)

    def _object(self, container: Container) -> None:
        live = container.live
        own = getattr(live, "__dict__", None)
        is_plain = (
            own is not None
            and not isinstance(live, (Mapping, list, tuple))
            and container.parts.keys() - {"class"} == own.keys()
        )
        if is_plain and type(own) is dict:
            self.typed.append(live)
            (self.tables if own else self.empty).append(own)
        else:
            self.contents.append((container, live))

    def is_same(self) -> bool:
        """Whether nothing has changed."""
        if any(self.empty) or self._sizes_now() != self.sizes or list(map(type, self.typed)) != self.types:
            return False
        if not all(map(operator.is_, chain.from_iterable(self.tables), self.keys)):
            return False
        try:
            if not all(map(operator.is_, self._objects_now(), self.objects)) and not self._is_another_mode():
                return False
        except ValueError:  # a variable of a closure that has been deleted
            return False
        if list(map(_CODE, self.functions)) != self.codes or not self.tensors.are_same():
            return False
        if not all(is_same_leaf(before, live) for before, live in self.leaves):
            return False
        return all(same_parts(before, live, self._reach) for before, live in self.contents)

    def _sizes_now(self) -> list[int]:
        return list(map(len, chain(self.tables, self.lists, self.classes)))

    def _objects_now(self) -> Iterator[Any]:
        return chain(
            chain.from_iterable(map(dict.values, self.tables)),
            chain.from_iterable(self.lists),
            chain.from_iterable(map(_VALUES, self.classes)),
            map(_CONTENT, self.cells),
            chain.from_iterable(map(get, names) for get, names in self.names),
        )

    def _is_another_mode(self) -> bool:
        """Whether nothing but `training` is another object; the modes of now are taken over."""
        now = list(self._objects_now())
        for place in self.modes:
            self.objects[place] = now[place]
        return all(map(operator.is_, now, self.objects))
