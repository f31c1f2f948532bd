"""The random generators that a pass may draw from: torch's, and those that the code of a model names or its modules hold."""

import random
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

_KINDS = (random.Random, np.random.RandomState, np.random.Generator, torch.Generator)
_STATES = frozenset(map(id, (torch.get_rng_state, torch.random.get_rng_state, torch.random.fork_rng)))
"""Identities of the functions with which a pass can put torch's generator back, so that it repeats what it draws."""
_SHARED = {"random": random.seed.__self__, "numpy.random": np.random.rand.__self__}  # type: ignore[attr-defined]


def generators_among(reached: list[Any]) -> list[Any]:
    """Generators that a pass may draw from, besides torch's own, among what a model reaches; empty for almost every model.

    >>> generators_among([random.Random, 1]), len(generators_among([random.Random(0)]))
    ([], 1)
    """
    return list({id(one): one for one in _among(reached)}.values())


def _among(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        kind = type(value)
        if kind is types.FunctionType:  # most of them; those of C have the generator that they draw from
            if id(value) in _STATES:
                yield torch.default_generator
            continue
        if issubclass(kind, types.ModuleType):
            value = _SHARED.get(value.__name__)
        owner = value if isinstance(value, _KINDS) else getattr(value, "__self__", None)
        if isinstance(owner, _KINDS):
            yield owner


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
    return [repr(_state(one)) for one in generators]


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
