"""Leave the global random generators where they were, without disturbing threads that draw from them.

Torch's generator is put back only if this thread drew from it: every operation that draws carries a tag, so a pass that draws
nothing costs no copy and rewinds nobody. Nothing tells who moved Python's and numpy's generators; they are put back if they moved.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode


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

    def __init__(self, draws: Draws) -> None:
        super().__init__()
        self.draws, self.before = draws, None
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
    depth = torch._C._len_torch_dispatch_stack()
    mode = _DrawMode(draws)
    try:
        with mode:
            yield
    finally:
        while torch._C._len_torch_dispatch_stack() > depth:  # an interrupt on the way in or out leaves the mode behind
            _pop_mode()
        if mode.before is not None:
            cpu, cuda = mode.before
            torch.set_rng_state(cpu)
            if cuda:
                torch.cuda.set_rng_state_all(cuda)


@contextmanager
def python_random_kept(draws: Draws) -> Iterator[None]:
    """Python's and numpy's generators are given back as they were, if they moved; says so in `draws`."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        if random.getstate() != python:
            draws.note("random")
            random.setstate(python)
        now = np.random.get_state()
        if now[2:] != numpy[2:] or not np.array_equal(now[1], numpy[1]):
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
