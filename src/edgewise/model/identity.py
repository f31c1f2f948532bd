"""Edges and nodes keep their identities through a forward pass: followed operation by operation, never matched by number.

A model is run once while every tensor carries labels: which axis runs over columns of the given `edge_index`, which over
nodes, and who owns each entry. Masks, relations, flips, sorts, poolings and added loops move the labels as they move the
data (`label_rules`). When a layer begins to propagate, the labels say which column owns each message (`ownership`).

The operations are seen by a `TorchDispatchMode`, below `torch.jit.script` and autograd, and only in this thread. An operation
that nobody knows loses the labels of its result. What is lost is refused once a layer sends messages on it.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from edgewise.arrays import Slots
from edgewise.model.axis_labels import AtenCall, OperationKind, operation_kind
from edgewise.model.column_selection import GivenColumns
from edgewise.model.dependence import common_mark
from edgewise.model.hooks import Layers
from edgewise.model.label_rules import RULES, is_integer, makes_constants, rule_of
from edgewise.model.ownership import HandedColumns, Propagation
from edgewise.model.shadow import (
    CONSTANT,
    CROSSED,
    EDGE,
    NODE,
    NOTHING,
    Labels,
    Mark,
    ShadowMemory,
    origins,
)
from edgewise.pyg_internals import plain
from edgewise.torch_internals import TorchDispatchMode, no_dispatch, no_functions

_ESCAPES = frozenset(("tolist", "numpy", "__array__", "__dlpack__", "data_ptr"))


@dataclass(frozen=True)
class FollowedCall:
    """One `propagate` call. Layers count calls on a path: calls side by side are one layer."""

    name: str
    module: MessagePassing
    layer: int
    """The most `propagate` calls on any path from the features up to this one."""
    slots: Slots
    """[messages]: the column of `data.edge_index` that owns each message, or edges + node for an added self-loop."""
    sender_rows: Tensor
    """[rows]: the node of each row of the table of senders; negative where a row is no node and sends nothing."""
    receiver_rows: Tensor
    """[rows]: the same for receivers."""
    backward: Tensor
    """[messages]: whether a message runs against its column, from `edge_index[1]` to `edge_index[0]`."""


def follow(
    model: nn.Module, layers: Layers, run: Callable[[], Any], data: Data, marks: Iterable[tuple[Tensor, Mark]] = ()
) -> tuple[Any, list[FollowedCall]]:
    """Run a model on `data` and say who owns each message: what `run()` returned, and the calls in order.

    `marks` are further tensors that the model gets, with what is known of them.

    >>> import torch
    >>> from torch_geometric.nn import GCNConv
    >>> data = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1, 1], [1, 2, 1]]))       # 0→1, 1→2, a loop on 1
    >>> conv = GCNConv(3, 2)
    >>> _, [call] = follow(conv, [("conv", conv)], lambda: conv(data.x, data.edge_index), data)
    >>> call.slots                                        # the loops of nodes 0 and 2 were added
    tensor([0, 1, 3, 2, 5])

    Raises:
        ModelError: A message whose owner is not certain; the text names the layer.
    """
    follower = Follower(model, data, marks)
    with follower.watching(layers):
        output = run()
    return output, follower.calls


class Follower(TorchDispatchMode):
    """The memory of labels, kept up to date with every operation."""

    supports_higher_order_operators = True  # they lose the labels, as unknown operations do

    def __init__(self, model: nn.Module, data: Data, marks: Iterable[tuple[Tensor, Mark]] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[FollowedCall] = []
        self.escaped = False
        self._memory = ShadowMemory()
        self._columns = GivenColumns(plain(data.edge_index).detach().clone(), int(data.num_nodes))
        self._handed: dict[nn.Module, list[HandedColumns]] = {}
        self._inside: Mark | None = None
        """While a layer propagates: what holds for everything that it makes. Labels begin again with its result."""
        self._thread = threading.get_ident()
        for parameter in model.parameters():
            self._memory.note(parameter, NOTHING)
        for tensor, mark in (*origins(data), *marks):
            self._memory.note(plain(tensor), mark)

    def nodes_of(self, tensor: Tensor) -> Tensor | None:
        """`[rows]`: the node of each row of a tensor; None if that is not known of every row."""
        nodes = self._memory.read(plain(tensor)).labels.get((0, NODE))
        return None if nodes is None or bool((nodes < 0).any()) else nodes

    # --- one operation ---

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        kind = operation_kind(func)
        if self._inside is not None and not kind.writes:
            result = func(*args, **kwargs)
            for tensor in _tensors((result,)):
                self._memory.note_new(tensor, self._inside)
            return result
        call = self._begun(kind, args, kwargs)
        result = func(*args, **kwargs)
        call.outputs = list(_tensors((result,)))
        self._note(call)
        return result

    def _begun(self, kind: OperationKind, args: Any, kwargs: Any) -> AtenCall:
        inputs: list[Tensor] = []
        plain_args = [_stripped(value, inputs) for value in args]
        plain_kwargs = {name: _stripped(v, inputs) for name, v in kwargs.items() if name not in kind.writes}
        marks = [self._memory.read(tensor) for tensor in inputs]
        return AtenCall(kind, plain_args, plain_kwargs, inputs, marks, self._columns.pick, self.escaped)

    def _note(self, call: AtenCall) -> None:
        name = call.kind.name
        if name == "_local_scalar_dense":
            self.escaped |= bool(call.marks[0].reach and call.marks[0].labels)
        if not call.inputs or makes_constants(call.kind):
            fresh = Mark({}, CROSSED if self.escaped else CONSTANT)
            for tensor in call.outputs:
                self._memory.note(tensor, fresh)
            return
        found = self._labels(call)
        each = found if isinstance(found, list) else [found] * len(call.outputs)
        mark = common_mark(call, each, escaped=self.escaped)
        for tensor, labels in zip(call.outputs, each, strict=True):
            self._write(call, tensor, mark._replace(labels=labels))
        for position in call.kind.writes:
            self._spoil(call, position, mark)

    def _labels(self, call: AtenCall) -> Labels | list[Labels]:
        kind = call.kind
        if not call.outputs or kind.reshapes_in_place or not any(mark.labels for mark in call.marks):
            return _element_of_lost(call)
        rule = rule_of(kind)
        return {} if rule is None else rule(call)

    def _write(self, call: AtenCall, tensor: Tensor, mark: Mark) -> None:
        if not tensor.is_floating_point():
            mark = mark._replace(depth=0, contracted=mark.contracted and is_integer(tensor))
        if call.kind.writes and self._memory.knows(tensor):
            values = call.marks[1:]
            constant = not any(value.reach or value.of_nodes for value in values)
            self._memory.overwrite(tensor, self._memory.read(tensor), mark, by_constant=constant)
        else:
            self._memory.note(tensor, mark)

    def _spoil(self, call: AtenCall, position: int | str, mark: Mark) -> None:
        """An argument that was written to and not returned."""
        written = call.args[position] if isinstance(position, int) and position < len(call.args) else None
        for tensor in _tensors((written,)):
            if self._memory.knows(tensor) and not any(tensor is output for output in call.outputs):
                self._memory.overwrite(tensor, NOTHING, mark, by_constant=False)

    # --- the layers ---

    @contextmanager
    def watching(self, layers: Layers) -> Iterator[None]:
        """Active, with hooks on the layers; messages are not fused with their sum."""
        modules = {module: name for name, module in reversed(layers)}
        with ExitStack() as stack:
            for module, name in modules.items():
                stack.callback(setattr, module, "fuse", module.fuse)
                module.fuse = False
                for handle in self._hooks(name, module):
                    stack.callback(handle.remove)
            stack.enter_context(_Escapes(self._notice))
            stack.enter_context(self)
            yield

    def _hooks(self, name: str, module: MessagePassing) -> Iterator[Any]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            handed = list(self._handed_columns([*args, *kwargs.values()]))
            if handed:
                self._handed[module] = handed

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            self._handed.pop(module, None)

        def before(module: MessagePassing, inputs: Any) -> None:
            edge_index, size, kwargs = inputs
            call = self._followed(name, module, edge_index, size, kwargs)
            self.calls.append(call)
            running.append((call, self._inside))
            self._inside = Mark({}, CROSSED, of_nodes=True, depth=call.layer)

        def after(module: MessagePassing, inputs: Any, output: Any) -> None:
            call, self._inside = running.pop()
            self._propagated(call, output)

        running: list[tuple[FollowedCall, Mark | None]] = []
        yield module.register_forward_pre_hook(self._aside(enter), with_kwargs=True)
        yield module.register_forward_hook(self._aside(leave))
        yield module.register_propagate_forward_pre_hook(self._aside(before))
        yield module.register_propagate_forward_hook(self._aside(after))

    def _aside(self, hook: Callable[..., None]) -> Callable[..., None]:
        """A hook whose own operations are not followed, and that does not see other threads."""

        def aside(*arguments: Any) -> None:
            if threading.get_ident() != self._thread:
                return
            with no_dispatch(), no_functions():
                hook(*arguments)

        return aside

    def _handed_columns(self, arguments: list[Any]) -> Iterator[HandedColumns]:
        for tensor in _tensors(arguments):
            labels = self._memory.read(tensor).labels.get((1, EDGE))
            if labels is not None and tensor.size(0) == 2 and is_integer(tensor):
                yield HandedColumns.of(tensor, labels)

    def _followed(self, name: str, module: MessagePassing, edge_index: Any, size: Any, kwargs: Any) -> FollowedCall:
        propagation = Propagation(
            name, module, edge_index, size, kwargs, self._handed.get(module), self._columns, self._memory.read
        )
        owned = propagation.owned()
        layer = max((self._memory.read(tensor).depth for tensor in _tensors(kwargs.values())), default=0)
        return FollowedCall(name, module, layer, owned.slots, owned.sender_rows, owned.receiver_rows, owned.backward)

    def _propagated(self, call: FollowedCall, output: Any) -> None:
        for tensor in _tensors((output,)):
            labels = {(call.module.node_dim % max(tensor.dim(), 1), NODE): call.receiver_rows}
            self._memory.replace(tensor, Mark(labels, of_nodes=True, depth=call.layer + 1))

    def _notice(self, tensor: Tensor) -> None:
        """A tensor goes to Python as numbers."""
        if not self._memory.knows(tensor):
            return
        mark = self._memory.read(tensor)
        self.escaped |= bool(mark.reach and (mark.labels or tensor.numel() > 1))


class _Escapes(TorchFunctionMode):
    """Sees the ways from tensors to Python that are no operations."""

    def __init__(self, notice: Callable[[Tensor], None]) -> None:
        super().__init__()
        self._notice = notice

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _ESCAPES:
            self._notice(plain(args[0]))
        return func(*args, **(kwargs or {}))


def _stripped(value: Any, tensors: list[Tensor]) -> Any:
    """An argument without PyG's wrappers; its tensors are added to the list."""
    if isinstance(value, Tensor):
        tensors.append(plain(value))
        return tensors[-1]
    if isinstance(value, (list, tuple)):
        return [_stripped(item, tensors) for item in value]
    return value


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors in nested lists, tuples, dictionaries and graphs."""
    for value in values:
        if isinstance(value, Tensor):
            yield plain(value)
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())
        elif isinstance(value, Data):
            yield from _tensors(value.to_dict().values())


def _element_of_lost(call: AtenCall) -> Labels | list[Labels]:
    """Without labels there is one thing to note: a single number of unlabelled data, on its way to Python."""
    rule = RULES[call.kind.name] if call.kind.name in ("select", "unbind") else None
    return rule(call) if rule and call.marks[0].reach != CONSTANT and call.first.dim() == 1 else {}
