"""The random generators that a pass may draw from: torch's, and those that the code of a model names or its modules hold."""

import os
import random
import sys
import types
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch

_KINDS = (random.Random, np.random.RandomState, np.random.Generator, torch.Generator)
_STATES = frozenset(map(id, (torch.get_rng_state, torch.random.get_rng_state, torch.random.fork_rng)))
"""Identities of the functions with which a pass can put torch's generator back, so that it repeats what it draws."""
_SYSTEM = random.SystemRandom()
"""Stands for the random bytes of the operating system, which also start a generator that is made without a seed."""
_FRESH = ("secrets", "uuid")
_CONTAINERS = frozenset((dict, OrderedDict, list, tuple, set, frozenset))
_STARTS = (random.Random.__init__.__code__, random.Random.seed.__code__)
_SHARED = {"random": random.seed.__self__, "numpy.random": np.random.rand.__self__}  # type: ignore[attr-defined]


def generators_among(reached: list[Any]) -> list[Any]:
    """Generators that a pass may draw from, besides torch's own, among what a model reaches; empty for almost every model.

    >>> generators_among([len, 1]), len(generators_among([random.Random(0)]))
    ([], 1)
    """
    return list({id(one): one for one in _among(reached)}.values())


def _among(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        kind = type(value)
        if kind is types.FunctionType:  # most of them; those of C have the generator that they draw from
            if id(value) in _STATES:
                yield torch.default_generator
            elif value.__module__ in _FRESH:
                yield _SYSTEM
        elif kind not in _CONTAINERS:
            yield from _of_object(value, kind)


def _of_object(value: Any, kind: type) -> Iterator[Any]:
    if value is os.urandom or value is random.Random or _asked(value, "__module__") in _FRESH:
        yield _SYSTEM
    if issubclass(kind, types.ModuleType):
        if value.__name__ in (*_FRESH, "numpy.random"):
            yield _SYSTEM
        value = _SHARED.get(value.__name__)
    owner = value if isinstance(value, _KINDS) else _asked(value, "__self__")
    if isinstance(owner, _KINDS):
        yield owner


def _asked(value: Any, name: str) -> Any:
    """An attribute of anybody's object, whose code may raise what it likes."""
    try:
        found = getattr(value, name, None)
    except Exception:
        return None
    return found if isinstance(found, (str, *_KINDS)) else None


def torch_states() -> list[bytes]:
    """Where torch's generators are, to be compared and never to be set back."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    return [state.numpy().tobytes() for state in (torch.get_rng_state(), *cuda)]


def states_of(generators: list[Any]) -> list[str]:
    """Where generators are, to be compared and never to be set back.

    >>> draw = random.Random(0)
    >>> before = states_of([draw])
    >>> _ = draw.random()
    >>> states_of([draw]) == before
    False
    """
    return [repr(_state(one)) if has_state(one) else "" for one in generators]


def has_state(generator: Any) -> bool:
    """Whether a generator has a state; numbers from the operating system (`random.SystemRandom`, `secrets`) have none.

    >>> has_state(random.Random(0)), has_state(random.SystemRandom())
    (True, False)
    """
    with suppress(NotImplementedError):
        return _state(generator) is not None
    return False


class SystemDraws:
    """Notices in this thread that a generator without a state is called, or bytes of the operating system are read.

    >>> with SystemDraws([_SYSTEM]) as quiet:
    ...     _ = sum([1, 2])
    >>> with SystemDraws([_SYSTEM]) as draws:
    ...     _ = _SYSTEM.random()
    >>> quiet.seen, draws.seen
    (False, True)
    """

    def __init__(self, generators: list[Any]) -> None:
        self.seen = False
        self._known = {id(one) for one in generators if not has_state(one)}
        self._before: Any = None

    def __enter__(self) -> "SystemDraws":
        self._before = sys.getprofile()
        sys.setprofile(self._look)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(self._before)

    def _look(self, frame: types.FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            self.seen = self.seen or called is os.urandom or id(getattr(called, "__self__", None)) in self._known
        elif event == "call" and frame.f_code.co_argcount:
            given = [frame.f_locals.get(name) for name in frame.f_code.co_varnames[:2]]
            is_start = frame.f_code in _STARTS and given[1] is None
            self.seen = self.seen or is_start or id(given[0]) in self._known


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, torch.Generator):
        return generator.get_state().tolist()
    if isinstance(generator, np.random.Generator):
        return _plain(generator.bit_generator.state)
    return _plain(generator.get_state(legacy=False))


def _plain(state: Any) -> Any:
    """A state of numpy without arrays, whose `repr` would leave numbers out."""
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray) else state
