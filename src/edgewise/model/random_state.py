"""Leave the global random generators where they were, without disturbing threads that draw from them.

Torch's generator is put back only if this thread drew from it: every operation that draws carries a tag, so a pass that draws
nothing costs no copy and rewinds nobody. Nothing tells who moved Python's and numpy's generators: they are put back if they
moved.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from edgewise.model.thread_state import ThreadState

Result = TypeVar("Result")


@dataclass
class Draws:
    """What a pass drew from the global generators."""

    operations: list[str] = field(default_factory=list)
    """Names of torch operations, each once, in order; `"random"` and `"numpy.random"` for those generators."""

    def __bool__(self) -> bool:
        return bool(self.operations)

    def note(self, name: str) -> None:
        """One more operation."""
        if name not in self.operations:
            self.operations.append(name)


class _DrawMode(TorchDispatchMode):
    """Notices operations that draw random numbers, in this thread, and keeps the state from before the first."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would wrap the method below so that it costs ten times as much

    def __init__(self, draws: Draws) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.draws = draws
        self.before: tuple[Tensor, list[Tensor]] | None = None
        self.known: dict[Any, bool] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        random_operation = self.known.get(func)
        if random_operation is None:
            random_operation = torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())
            self.known[func] = random_operation
        if random_operation and kwargs.get("generator") is None:
            self.draws.note(str(func))
            self.before = self.before or _torch_states()
        return func(*args, **kwargs)


def _torch_states() -> tuple[Tensor, list[Tensor]]:
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if cuda else []


@contextmanager
def torch_random_kept(draws: Draws) -> Iterator[None]:
    """Torch's generators are given back as they were, if this thread drew from them; says so in `draws`."""
    mode, before = _DrawMode(draws), ThreadState()
    try:
        with mode:
            yield
    finally:
        before.put_back()
        if mode.before is not None:
            _set_torch_states(mode.before)


def _set_torch_states(states: tuple[Tensor, list[Tensor]]) -> None:
    cpu, cuda = states
    torch.set_rng_state(cpu)
    if cuda:
        torch.cuda.set_rng_state_all(cuda)


def _same_state(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two states of numpy's generator are the same; what is inside depends on its kind."""
    for key, value in a.items():
        same = _same_state(value, b[key]) if isinstance(value, dict) else np.array_equal(value, b[key])
        if not same:
            return False
    return True


@contextmanager
def python_random_kept(draws: Draws) -> Iterator[None]:
    """Python's and numpy's generators are given back as they were, if they moved; says so in `draws`."""
    python, numpy = random.getstate(), np.random.get_state(legacy=False)
    try:
        yield
    finally:
        if random.getstate() != python:
            draws.note("random")
            random.setstate(python)
        if not _same_state(np.random.get_state(legacy=False), numpy):
            draws.note("numpy.random")
            np.random.set_state(numpy)


@contextmanager
def random_draws_undone() -> Iterator[Draws]:
    """All global generators are given back as they were; what was drawn is listed.

    >>> import torch
    >>> before = torch.get_rng_state()
    >>> with random_draws_undone() as draws:
    ...     _ = torch.rand(3)
    >>> bool(draws), torch.equal(torch.get_rng_state(), before)
    (True, True)
    """
    draws = Draws()
    with python_random_kept(draws), torch_random_kept(draws):
        yield draws


def quiet_run(run: Callable[[], Result]) -> tuple[Result, Draws]:
    """What `run` gives and what it drew, with the global generators as before; almost free if nobody draws.

    Only if torch's generator has moved meanwhile is `run` called a second time, to see whether this thread or another one drew.

    >>> import torch
    >>> before = torch.get_rng_state()
    >>> _, draws = quiet_run(lambda: torch.rand(3))
    >>> draws.operations, torch.equal(torch.get_rng_state(), before)
    (['aten.rand.default'], True)
    """
    draws, before = Draws(), _torch_states()
    with python_random_kept(draws):
        try:
            result = run()
        except BaseException:
            if _moved(before):
                _set_torch_states(before)
            raise
        if _moved(before):
            with torch_random_kept(draws):
                run()
            if draws:
                _set_torch_states(before)
    return result, draws


def _moved(before: tuple[Tensor, list[Tensor]]) -> bool:
    cpu, cuda = _torch_states()
    return not all(torch.equal(a, b) for a, b in zip([cpu, *cuda], [before[0], *before[1]], strict=False))
