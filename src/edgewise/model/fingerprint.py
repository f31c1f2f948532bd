"""The content of a model at one moment, to say later whether and where it has changed.

Versions of tensors do not see an edit through `.data`, and identities do not see one in place, so contents are compared: of the
modules, and of all that `forward` can reach from there (`reach.py`): classes, functions, globals, closures, plain objects.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import Any

from torch import Tensor, nn

from edgewise.model.code_names import mentions
from edgewise.model.contents import (
    ANYTHING,
    Container,
    Difference,
    Photographer,
    differences,
    forgive,
    is_same_leaf,
    objects_in,
    other_numbers,
    same,
)
from edgewise.model.glance import Glance
from edgewise.model.kept_tensors import KeptTensors
from edgewise.model.module_state import role, state_of
from edgewise.model.module_tree import named_modules
from edgewise.model.reach import CodeReach
from edgewise.model.twin import model_lock, unwrapped
from edgewise.torch_internals import HooksOfAll


@dataclass(frozen=True)
class _Place:
    """A buffer (part 1) or an attribute (2) of a module, by its name, in a twin."""

    name: str
    part: int
    key: str
    twin: nn.Module

    @property
    def table(self) -> dict[str, Any]:
        """Where it stands."""
        return self.twin._buffers if self.part == 1 else vars(self.twin)

    def is_written(self, before: list[tuple[Any, int]]) -> bool:
        """Whether other objects are in there, or other numbers in its tensors."""
        now = list(objects_in(self.table.get(self.key)))
        pairs = zip(now, before, strict=False)
        return len(now) != len(before) or any(a is not b or count != then for (a, count), (b, then) in pairs)


class Fingerprint:
    """Parameters, buffers and attributes of a model as they were, and the code that `forward` reaches with what it reads.

    Everything is compared by value: tensors, arrays and plain values, containers and objects by what they hold, functions and
    classes by their code. Objects of installed packages are compared by identity, tensors in them and attributes that the code
    mentions by value. `training` and cached graphs do not count: they do not belong to the function in eval mode. Nor do
    attributes that `forward` itself assigns (an attention kept for later), which another thread that predicts changes.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Dropout(0.5))
    >>> before = Fingerprint(model)
    >>> before.changed(model)
    ''
    >>> model[0].bias.data += 1
    >>> before.changed(model)
    'parameter 0.bias'
    """

    def __init__(self, model: nn.Module, forward: Any = None, *, whole: bool = True) -> None:
        """`forward` is how the user calls the model. `whole=False` keeps parameters alone: all that a single call asks for."""
        self._is_whole = whole
        with model_lock(model):
            self._modules = named_modules(unwrapped(model))
            self._numbers = {
                name: {key: _detached(value) for key, value in list(module._parameters.items())}
                for name, module in self._modules.items()
            }
            if whole:
                self._photograph(own_function(forward))
        self._parameters = KeptTensors(
            [
                (before, module._parameters, key)
                for name, module in self._modules.items()
                for key, before in self._numbers[name].items()
                if before is not None
            ]
        )
        self._glance: Glance | None = None

    def _photograph(self, forward: Any) -> None:
        """All that is compared by `changed`."""
        modules = self._modules.values()
        self._reach = CodeReach(modules, forward, *_HOOKS_OF_ALL.values())
        self._photographer = Photographer(self._reach)
        self._parts = {name: [self._numbers[name], *self._rest(module)] for name, module in self._modules.items()}
        self._kinds = {name: type(module) for name, module in self._modules.items()}
        self._roots: dict[Any, Any] = {kind: kind for kind in self._kinds.values()}
        self._roots |= {} if forward is None else {"forward=": forward}
        self._roots |= _HOOKS_OF_ALL
        self._code = [self._photographer.frozen(root) for root in self._roots.values()]

    def _rest(self, module: nn.Module) -> Iterator[dict[str, Any]]:
        """Buffers and attributes as they are."""
        for part in state_of(module)[1:]:
            yield {key: self._photographer.frozen(value) for key, value in list(part.items())}

    def changed(self, model: nn.Module) -> str:
        """What has changed first, in words such as `parameter convs.0.bias`; empty if nothing has."""
        assert self._is_whole  # attributes would be missing
        with model_lock(model):
            inner = unwrapped(model)
            if inner is self._modules[""] and self._glance is not None and self._glance.is_same():
                return ""
            found = next(self._differences(inner), "")
            if not found:  # nothing has changed, so what is there now can stand for what was
                self._glance = Glance(self._modules, self._parts, self._photographer)
            return found

    def moved(self) -> str:
        """The first parameter that has other numbers now, in words; empty if none has. Cheaper than `changed`.

        A twin shares the memory of the parameters and nothing else, so this is what may go wrong while it runs.
        """
        if self._parameters.are_same():
            return ""
        for name, module in self._modules.items():
            before, now = self._numbers[name], module._parameters
            for key, then in before.items():
                if then is not None and not is_same_leaf(then, now.get(key)):
                    return f"parameter {name}.{key}" if name else f"parameter {key}"
        return ""

    def forgive_own_changes(self) -> None:
        """What changed outside the model while our own twin ran, `forward` itself has changed: a counter, a log, a cache."""
        if not self._is_whole:
            return
        pairs: list[tuple[Any, Any]] = list(zip(self._code, self._roots.values(), strict=True))
        for name, module in self._modules.items():
            attributes = state_of(module)[2]
            pairs += [(before, attributes.get(key)) for key, before in self._parts[name][2].items()]
        for then, now in pairs:
            while found := [one for one in differences(then, now, self._reach) if one.container is not None]:
                for one in found:  # other keys of a container hide what else differs in it
                    forgive(one)

    def watch_writes(self, twin: nn.Module) -> None:
        """Before the first pass of a twin: what its buffers and containers hold."""
        self._held: list[tuple[_Place, list[tuple[Any, int]]]] = []
        for name, module in named_modules(twin).items() if self._is_whole else ():
            places = [_Place(name, part, key, module) for part in (1, 2) for key in self._parts[name][part]]
            for one in places:
                value = one.table.get(one.key)
                if isinstance(value, (Tensor, Mapping, list, deque)) and role(one.key) == "value":
                    self._held.append((one, list(objects_in(value))))

    def forgive_writes(self, repeats: Callable[[], bool]) -> None:
        """What the pass of the twin has written into buffers and containers (a log, the last activation) may change.

        Unless `forward` reads it again (a cache): `repeats` says whether another pass gives the same, which is asked while
        other numbers stand there.
        """
        written = [one for one, before in self._held if one.is_written(before)]
        self._held = []
        if not written or self._is_unread(written, repeats):
            self._forgive(written)
            return
        for one in written:
            if self._is_unread([one], repeats):
                self._forgive([one])

    def _forgive(self, written: list["_Place"]) -> None:
        for one in written:
            self._parts[one.name][one.part][one.key] = ANYTHING

    def _is_unread(self, written: list["_Place"], repeats: Callable[[], bool]) -> bool:
        """Whether a pass gives the same whatever numbers stand in some places of the twin."""
        before = [one.table[one.key] for one in written]
        try:
            for one, value in zip(written, before, strict=True):
                one.table[one.key] = other_numbers(value)
            return repeats()
        except Exception:  # whatever their objects, or a pass that finds such numbers, may raise
            return False
        finally:
            for one, value in zip(written, before, strict=True):
                one.table[one.key] = value

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
        for (word, root), before in zip(self._roots.items(), self._code, strict=True):
            yield from (_in_words(word, found, before) for found in differences(before, root, self._reach))

    def _replaced(self, modules: dict[str, nn.Module]) -> Iterator[str]:
        for name, module in self._modules.items():
            if name not in modules:
                yield f"module {name} was removed"
            elif modules[name] is not module:
                yield f"module {name or 'model'} was replaced"
            elif type(module) is not self._kinds[name]:
                yield f"the class of module {name or 'model'}"
        yield from (f"module {name} was added" for name in modules if name not in self._modules)
        if modules.keys() == self._modules.keys() and list(modules) != list(self._modules):
            yield "the order of modules"

    def _differences_of(self, name: str, module: nn.Module) -> Iterator[str]:
        place = f"{name}." if name else ""
        for word, before, now in zip(_WORDS, self._parts[name], state_of(module), strict=True):
            for key in before if before.keys() == now.keys() else dict.fromkeys([*before, *now]):
                then, value = before.get(key, _ABSENT), now.get(key, _ABSENT)
                if then is _ABSENT and isinstance(getattr(type(module), key, None), cached_property):
                    continue  # it was looked up meanwhile, and follows from the rest
                if not same(then, value, self._reach):
                    found = next(differences(then, value, self._reach), Difference(()))
                    yield _explained(f"{word} {place}{key}", found, then)


_WORDS = ("parameter", "buffer", "attribute")
_ABSENT = object()
_EVERY_GLOBAL = "code of the model names globals(), eval, exec or an import by name, so that every global counts"
_HOOKS_OF_ALL = {
    "hooks of all modules": HooksOfAll("_global_forward_hooks"),
    "hooks in front of all modules": HooksOfAll("_global_forward_pre_hooks"),
}


def _detached(value: Any) -> Any:
    return None if value is None else value.detach().clone()


def _in_words(root: Any, found: Difference, before: Any) -> str:
    word = root if isinstance(root, str) else f"class {root.__name__}"
    text = ": ".join([word, *(" ".join(map(str, key)) if isinstance(key, tuple) else str(key) for key in found.way)])
    return _explained(text, found, before)


def _explained(text: str, found: Difference, before: Any) -> str:
    """With why a global counts that the code does not name."""
    return f"{text} ({_EVERY_GLOBAL})" if _is_any_global(before, found.way) else text


def _is_any_global(before: Any, way: tuple[Any, ...]) -> bool:
    """Whether a way leads through a function that may read any global."""
    for key in way:
        if not isinstance(before, Container):
            return False
        is_global = isinstance(before.live, FunctionType) and str(key).startswith("global ")
        if is_global and mentions(before.live.__code__).evaluates:
            return True
        before = before.parts.get(key)
    return False


def own_function(forward: Any) -> Any:
    """The user's own function inside ours."""
    while type(forward).__module__.startswith("edgewise."):
        forward = getattr(forward, "forward", None) or getattr(forward, "own", None)
    return forward
