"""What torch keeps for a thread, put back exactly: its modes and whether it takes gradients.

Python delivers an interrupt between two steps of any function, the first steps of `__enter__`, `__exit__` and of a cleanup
included; a context manager written in Python is then left open. So the state of a thread is put back twice (`thread_kept`): the
second time runs if an interrupt came in the first. What belongs to the whole process, random generators above all, is never put
back: other threads use it meanwhile.
"""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from edgewise.errors import SettingError
from edgewise.torch_internals import (
    dispatch_depth,
    function_modes,
    pop_dispatch_mode,
    pop_function_mode,
    push_function_mode,
    set_gradients,
)


def push_mode(mode: TorchFunctionMode) -> None:
    """Let a mode see every torch function of this thread, until the state of the thread is put back."""
    push_function_mode(mode)


def pop_mode(mode: TorchFunctionMode) -> bool:
    """Take a mode off, wherever it is on the stack; False if it is not there (torch takes it off while it works)."""
    modes = function_modes()
    if mode not in modes:
        return False
    for _ in modes:
        pop_function_mode()
    for other in modes:
        if other is not mode:
            push_function_mode(other)
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
        self._modes: list[Any] = function_modes()
        self._depth = dispatch_depth()
        self._gradients = torch.is_grad_enabled()

    def put_back(self) -> None:
        """Make it so again; may be repeated.

        Torch takes a mode off the stack while it works, and an interrupt in the wrong place makes it forget to push it back: so
        modes that are missing are restored too.
        """
        if function_modes() != self._modes:
            while function_modes():
                pop_function_mode()
            for mode in self._modes:
                push_function_mode(mode)
        while dispatch_depth() > self._depth:
            pop_dispatch_mode()
        set_gradients(self._gradients)


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
