"""Hooks that see the messages and the operations of a running model, and are gone afterwards."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from torch import nn
from torch.overrides import TorchFunctionMode
from torch_geometric.nn import MessagePassing

from edgewise.model.borrow import ours
from edgewise.model.global_state import ThreadState, pop_mode, push_mode

Layers: TypeAlias = list[tuple[str, MessagePassing]]


@contextmanager
def message_hooks(layers: Layers, on_propagate: Callable[..., Any], on_message: Callable[..., Any]) -> Iterator[None]:
    """PyG's message hooks on every layer."""
    handles = [m.register_propagate_forward_pre_hook(ours(on_propagate)) for _, m in layers]
    handles += [m.register_message_forward_hook(ours(on_message)) for _, m in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def edge_update_hooks(layers: Layers, on_edge_update: Callable[..., Any]) -> Iterator[None]:
    """PyG's hooks before attention is computed."""
    handles = [m.register_edge_update_forward_pre_hook(ours(on_edge_update)) for _, m in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class OperationMode(TorchFunctionMode):
    """Sees every torch operation outside message-passing layers, numbered in order: the same model gives the same numbers.

    Inside a layer it is off the stack of modes: most operations happen there, and each would cost a call. A mode that looks
    inside, too, sets `is_blind_inside` to False.
    """

    is_blind_inside = True

    def __init__(self) -> None:
        super().__init__()
        self.depth = 0
        self.position = 0
        self._is_off = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        position, self.position = self.position, self.position + 1
        return self.operate(position, func, args, kwargs or {})

    def operate(self, position: int, func: Any, args: Any, kwargs: Any) -> Any:
        """What to do with one operation."""
        raise NotImplementedError

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A layer begins: its operations are not counted."""
        if self.depth == 0 and self.is_blind_inside:
            self._is_off = pop_mode(self)
        self.depth += 1

    def leave(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        """A layer ends."""
        self.depth -= 1
        if self.depth == 0 and self._is_off:
            push_mode(self)

    @contextmanager
    def watching(self, layers: Layers) -> Iterator[None]:
        """Active, and blind inside the layers."""
        before = ThreadState()
        handles = [m.register_forward_pre_hook(ours(self.enter), prepend=True, with_kwargs=True) for _, m in layers]
        handles += [m.register_forward_hook(ours(self.leave), with_kwargs=True) for _, m in layers]
        try:
            push_mode(self)
            yield
        finally:
            try:
                for handle in handles:
                    handle.remove()
            finally:
                before.put_back()
