"""What torch, numpy and Python keep outside the model, put back exactly: modes and gradients of a thread, random generators.

Python delivers an interrupt between two steps of any function, the first steps of `__enter__`, `__exit__` and of a cleanup
included; a context manager written in Python is then left open. So the state of a thread is put back twice (`thread_kept`): the
second time runs if an interrupt came in the first. Random generators are put back where a model drew from them (`quiet_run`).
"""

import random
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from edgewise.errors import SettingError


def push_mode(mode: TorchFunctionMode) -> None:
    """Let a mode see every torch function of this thread, until the state of the thread is put back."""
    _push_mode(mode)


def pop_mode(mode: TorchFunctionMode) -> bool:
    """Take a mode off, wherever it is on the stack; False if it is not there (torch takes it off while it works)."""
    modes = _get_current_function_mode_stack()
    if mode not in modes:
        return False
    for _ in modes:
        _pop_mode()
    for other in modes:
        if other is not mode:
            _push_mode(other)
    return True


def close_frames(error: BaseException) -> None:
    """After an interrupt, finish now what hangs in the frames that it has left, such as an open context manager of torch.

    It would otherwise be finished when the traceback is dropped, and change the state of the thread long after we put it back.
    Ordinary errors keep their frames: people look into them.
    """
    if not isinstance(error, Exception):
        traceback.clear_frames(error.__traceback__)


class ThreadState:
    """Modes and gradients of this thread at one moment.

    >>> import torch
    >>> before = ThreadState()
    >>> _ = torch.set_grad_enabled(False)
    >>> before.put_back()
    >>> torch.is_grad_enabled()
    True
    """

    def __init__(self) -> None:
        self._modes: list[Any] = _get_current_function_mode_stack()
        self._depth = torch._C._len_torch_dispatch_stack()
        self._gradients = torch.is_grad_enabled()

    def put_back(self) -> None:
        """Make it so again; may be repeated.

        Torch takes a mode off the stack while it works, and an interrupt in the wrong place makes it forget to push it back: so
        modes that are missing are restored too.
        """
        if _get_current_function_mode_stack() != self._modes:
            while torch._C._len_torch_function_stack():
                _pop_mode()
            for mode in self._modes:
                _push_mode(mode)
        while torch._C._len_torch_dispatch_stack() > self._depth:
            _python_dispatch._pop_mode()
        torch._C._set_grad_enabled(self._gradients)


def refuse_autocast() -> None:
    """Refuse to compute where torch would round our numbers to a few digits behind our back.

    Raises:
        SettingError: Inside `torch.autocast`. One in the model's own `forward` belongs to the model, and stays.
    """
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            raise SettingError(
                f"Explanations must be computed in the model's own precision, got a call inside torch.autocast({device!r}). "
                f"Use with torch.autocast({device!r}, enabled=False): around it."
            )


@contextmanager
def thread_kept() -> Iterator[None]:
    """The state of this thread is put back, whatever happens inside.

    An interrupt is handed on as such, also where it has made torch stumble over an error of its own meanwhile.

    >>> import torch
    >>> with thread_kept():
    ...     _ = torch.set_grad_enabled(False)
    >>> torch.is_grad_enabled()
    True
    """
    before = ThreadState()
    try:
        yield
    except BaseException as error:
        interrupt = _interrupt_behind(error)
        close_frames(interrupt or error)
        if interrupt is not None:
            raise interrupt from error
        raise
    finally:
        try:
            before.put_back()
        finally:
            before.put_back()


def _interrupt_behind(error: BaseException) -> BaseException | None:
    """The interrupt during whose handling an ordinary error was raised, if there is one."""
    cause: BaseException | None = error
    while isinstance(cause, Exception):
        cause = cause.__cause__ or cause.__context__
    return None if cause is error or isinstance(cause, GeneratorExit) else cause


# --- Random generators --------------------------------------------------------------------------------------------------

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
