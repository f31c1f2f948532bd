"""The steps of a pass as the model's own code takes them: operations outside `propagate`, and what the layers are given."""

import linecache
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

import torch
import torch_geometric
from torch.overrides import TorchFunctionMode
from torch_geometric.nn import MessagePassing

from edgewise.model.column_reads import OF_EDGES, PassStep, is_foreign, states_by_column, tensors
from edgewise.model.global_state import ThreadState, pop_mode, push_mode
from edgewise.model.hooks import Layers

_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep
_MESSAGES = ("message", "message_and_aggregate")
_GENERATED = ("_propagate", "_edge_updater")
"""How PyG ends the names of modules that it writes for the class of a layer."""
_HIDDEN = ", in a layer that is no part of the model (make it in `__init__`)"
_LIBRARIES = tuple(os.path.dirname(str(module.__file__)) + os.sep for module in (torch, torch_geometric))


class LayerSteps(TorchFunctionMode):
    """Notes operations around `propagate`, and calls of layers: of PyG's whole, of any other `propagate` and `edge_updater`.

    `everywhere=False` sees only what happens inside layers that are not PyG's.
    """

    def __init__(self, layers: Layers, steps: list[PassStep], *, everywhere: bool = False, lines: bool = False) -> None:
        super().__init__()
        self._layers, self.steps, self._everywhere, self._lines = layers, steps, everywhere, lines
        self._foreign, self._blind, self._is_on = 0, 0, False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.steps.append(PassStep(func, args, kwargs or {}, result, own_line() if self._lines else ""))
        return result

    def begin(self, module: MessagePassing, args: Any, kwargs: dict[str, Any]) -> None:
        """A layer of PyG's, or a `propagate` of any other, begins."""

    def end(self, module: MessagePassing, args: Any, kwargs: dict[str, Any], result: Any) -> Any:
        """It ends; what is returned, if not None, takes the place of its result."""
        self.steps.append(PassStep(module, args, kwargs, result))

    def attend(self, module: MessagePassing, tables: tuple[Any, ...], result: Any) -> None:
        """`edge_updater` of a layer that is not PyG's has made attention of tables of nodes."""
        self.steps.append(PassStep(module, tables, {}, result, of_edges=True))

    def _switch(self) -> None:
        wanted = not self._blind and (self._everywhere or self._foreign > 0)
        if wanted != self._is_on:
            if wanted:
                push_mode(self)
            else:
                pop_mode(self)
            self._is_on = wanted

    @property
    def _counts(self) -> bool:
        """Whether a layer that begins now is seen from the model's own code."""
        return not self._blind and (self._everywhere or self._foreign > 0)

    def _enter(self, module: MessagePassing, args: Any, kwargs: Any) -> None:
        if is_foreign(module):
            self._foreign += 1
        else:
            self._start(module, args, kwargs)
        self._switch()

    def _leave(self, module: MessagePassing, args: Any, kwargs: Any, output: Any) -> Any:
        changed = None
        if is_foreign(module):
            self._foreign -= 1
        else:
            changed = self._finish(module, args, kwargs, output)
        self._switch()
        return changed

    def _before(self, module: MessagePassing, inputs: Any) -> None:
        self._start(module, *_given(module, inputs))
        self._switch()

    def _after(self, module: MessagePassing, inputs: Any, output: Any) -> Any:
        changed = self._finish(module, *_given(module, inputs), output)
        self._switch()
        return changed

    def _start(self, module: MessagePassing, args: Any, kwargs: Any) -> None:
        if self._counts:
            if self._is_on:
                pop_mode(self)
                self._is_on = False
            self.begin(module, args, kwargs)
        self._blind += 1

    def _finish(self, module: MessagePassing, args: Any, kwargs: Any, output: Any) -> Any:
        self._blind -= 1
        return self.end(module, args, kwargs, output) if self._counts else None

    def _attending(self, module: MessagePassing) -> Any:
        """`edge_updater`, seen as a whole: the softmax in it sums up over columns, and sends nothing."""
        original = module.edge_updater

        def edge_updater(*args: Any, **given: Any) -> Any:
            self._blind += 1
            self._switch()
            try:
                result = original(*args, **given)
            finally:
                self._blind -= 1
            if self._counts:
                self.attend(module, _tables(module, given, ("edge_update",)), result)
            self._switch()
            return result

        return edge_updater

    @contextmanager
    def watching(self) -> Iterator["LayerSteps"]:
        """Active while the model runs."""
        before = ThreadState()
        with ExitStack() as stack:
            for handle in self._hooks():
                stack.callback(handle.remove)
            for module in {module: None for _, module in self._layers if _attends(module)}:
                module.__dict__["edge_updater"] = self._attending(module)
                stack.callback(module.__dict__.pop, "edge_updater")
            try:
                self._switch()
                yield self
            finally:
                before.put_back()

    def _hooks(self) -> Iterator[Any]:
        for module in {module: None for _, module in self._layers}:
            yield module.register_forward_pre_hook(self._enter, prepend=True, with_kwargs=True)
            yield module.register_forward_hook(self._leave, with_kwargs=True)
            if is_foreign(module):
                yield module.register_propagate_forward_pre_hook(self._before)
                yield module.register_propagate_forward_hook(self._after)


def _attends(module: MessagePassing) -> bool:
    """Whether attention of a layer is made by code of its own around PyG's `edge_updater`."""
    return is_foreign(module) and "edge_updater" not in module.__dict__


def _given(module: MessagePassing, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What `propagate` was given: the tables of nodes, and what is of edges."""
    tables = _tables(module, inputs[2], _MESSAGES)
    of_nodes = {id(tensor) for tensor in tensors(tables)}
    return tables, {OF_EDGES: states_by_column([one for one in tensors(inputs) if id(one) not in of_nodes])}


def _tables(module: MessagePassing, given: dict[str, Any], readers: tuple[str, ...]) -> tuple[Any, ...]:
    """What `propagate` or `edge_updater` was given of nodes: what is read at an end of a column, and what `update` reads."""
    read = module.inspector.get_flat_param_names(list(readers))
    of_nodes = {name[:-2] for name in read if name.endswith(("_i", "_j"))}
    if readers == _MESSAGES:
        of_nodes.update(set(module.inspector.get_flat_param_names(["update"])) - set(read))
    return tuple(value for name, value in given.items() if name in of_nodes)


def own_line(*, inside: bool = False) -> str:
    """Where the code that is neither torch's nor PyG's nor ours stands now: `model.py, line 12: out = …`; ours has no line.

    `inside`: nor has what `propagate` itself does, which stands in no method of the layer's own, or PyG's softmax.
    """
    frame: FrameType | None = sys._getframe(2)
    if frame is not None and frame.f_code.co_filename.startswith(_OURS):
        return ""
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    first, is_hidden = frame, False
    while frame is not None and (frame.f_code.co_filename.startswith(_LIBRARIES) or _is_generated(frame)):
        if inside and frame.f_code.co_name in ("propagate", "softmax"):
            return ""
        is_hidden |= frame.f_code.co_name == "propagate"
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith(_OURS):
        frame = first
    return "" if frame is None else _described(frame) + (_HIDDEN if is_hidden else "")


def _is_generated(frame: FrameType) -> bool:
    """Whether PyG wrote the code for a layer's class: `propagate` and `edge_updater`."""
    return str(frame.f_globals.get("__name__")).endswith(_GENERATED)


def _described(frame: FrameType) -> str:
    name, number = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(name, number, frame.f_globals).strip()
    return f"{os.path.basename(name)}, line {number}" + (f": {text}" if text else "")
