"""From a recorded forward pass to a program (`ir.py`): `compile_program`.

The compiler reads the recorded operations in order and keeps, for every tensor that depends on a layer, the number of the
value it is. An operation on such a tensor becomes a step; an operation on constants alone is not run again, its result is taken
as it was recorded. For `conv2(relu(conv1(x @ W)))`:

    x @ W        a constant: read where it is used
    conv1(…)     MessageStep: value 0
    relu(…)      reads value 0, works row by row (`operations.py`): RowStep, value 1
    conv2(…)     MessageStep: value 2

Whatever is not known raises `Unsupported` with the reason; the model then runs as it is. A program is only a claim: `question/`
compares its output with the model's before it is used.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor
from torch_geometric.data import Data

from edgewise.model.data_flow import Call, Key, Operation, keys_of
from edgewise.model.trace import Trace
from edgewise.program.ir import MessageStep, Program, Ref, Rows, RowStep, Source
from edgewise.program.layers import lower_layer
from edgewise.program.layers.base import Layer, Unsupported
from edgewise.program.operations import is_aligned, out_of_place, rectifier_bend, row_arguments
from edgewise.program.row_function import Place, RowFunction
from edgewise.trees import tree_flatten

Fallback: TypeAlias = Callable[[Operation, Data], list[Any]]
"""Makes the steps of a module that has no lowering (`layers/module.py`)."""


@dataclass
class _Compiler:
    """Reads operations in order; `known` says which value a tensor is.

    A tensor is recognised by its key (`model/data_flow.py`): its identity and its version, so that a tensor before and after an
    operation in place is two values.
    """

    trace: Trace
    data: Data
    everywhere: bool = False
    """Graph tasks: every operation sees all rows, so any operation will do."""
    readout: bool = False
    """The same, but only behind the last call."""
    fallback: "Fallback | None" = None
    known: dict[Key, int] = field(default_factory=dict)
    shape: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Per value: its dimensions, and after how many calls it was made."""
    waiting: dict[Key, Operation] = field(default_factory=dict)
    """Operations on constants that carry a residual around the first call: they run where they are read."""
    lost: set[Key] = field(default_factory=set)
    """Secondary results of operations (places of a maximum); reading one is unsupported."""
    steps: list[RowStep | MessageStep] = field(default_factory=list)
    values: int = 0
    calls: int = 0

    @property
    def whole(self) -> bool:
        """Whether an operation may see all rows at once."""
        return self.everywhere or (self.readout and self.calls == len(self.trace.calls))

    def new(self) -> int:
        """The next number of a value."""
        self.values += 1
        return self.values - 1

    def add_layer(self, operation: Operation) -> None:
        """A message-passing module: its layers and row-wise functions as steps, one after the other.

        Its features must be one tensor that can be followed, or a constant; edges and edge features must be constants.
        """
        x = operation.kwargs.get("x", operation.args[0] if operation.args else None)
        if not isinstance(x, Tensor):
            raise Unsupported(f"{operation.name} is called with a pair of features")
        key = keys_of(x)[0] if operation.own_input is None else operation.own_input
        if key in self.waiting or any(k in self.lost for k in operation.inputs):
            raise Unsupported(f"{operation.name} reads what could not be followed")
        if key in self.known and self.shape[self.known[key]][0] != 2:
            raise Unsupported(f"{operation.name} reads features that are not [nodes, width]")
        source: Source = Ref(self.known[key]) if key in self.known else Rows(_constant(x, key))
        others = [k for k in operation.inputs if k in self.known and k != key]
        if others:
            raise Unsupported(f"{operation.name} reads more than node features from earlier layers")
        calls = [self.trace.calls[i] for i in operation.calls]
        for piece in self._pieces(operation, calls):
            if isinstance(piece, Layer):
                value = self.new()
                self.steps.append(MessageStep(piece, source, value, self.calls))
                self.calls += 1
                self.shape[value] = (2, self.calls)
                source = Ref(value)
            else:
                source = self._inline(piece, source)
        for key in operation.outputs:
            self.known[key] = source.value  # type: ignore[union-attr]

    def _pieces(self, operation: Operation, calls: list[Call]) -> list[Any]:
        """The layers and row-wise functions of a module, by its lowering or else by the fallback."""
        try:
            return lower_layer(operation.function, calls, self.data)
        except Unsupported:
            if self.fallback is None:
                raise
            return self.fallback(operation, self.data)

    def _inline(self, network: RowFunction, source: Source) -> Source:
        """The operations of an inner network as steps, one for each; the source of its result."""
        values = [source]
        for function, leaves, form in network.operations:
            value = self.new()
            filled = tuple(values[leaf.value] if isinstance(leaf, Place) else leaf for leaf in leaves)
            self.steps.append(RowStep(function, filled, form, value, self.calls))
            self.shape[value] = (2, self.calls)
            values.append(Ref(value))
        return values[-1]

    def add_operation(self, operation: Operation) -> None:
        """An operation outside the layers: a step, a constant, or one that waits.

        An operation on constants waits if it carries a residual around the first call, as `lin(x)` in `conv(x) + lin(x)`: its
        input has to be scaled by s, so its result cannot be taken as it was recorded.
        """
        carries = any(r.position == operation.position for r in self.trace.residuals)
        reads = [key for key in operation.inputs if key is not None]
        if any(key in self.lost for key in reads):
            raise Unsupported(f"{operation.name} reads a second result, such as the places of a maximum")
        if not any(key in self.known for key in reads):
            if carries or any(key in self.waiting for key in reads):
                self.waiting.update(dict.fromkeys(operation.outputs[:1], operation))
                self.lost.update(operation.outputs[1:])
            return  # otherwise a constant: its result is looked up where it is used
        self._emit(operation)

    def _emit(self, operation: Operation) -> None:
        """An operation as a step, after those that it waits for.

        `which` says which tensor arguments have a row for each node: all of them, or (`linear`) the first one alone.
        """
        kwargs = {key: value for key, value in operation.kwargs.items() if key != "inplace"}
        which = "all" if self.whole else row_arguments(operation.function, operation.args, kwargs)
        if which is None:
            raise Unsupported(f"{operation.name} is not known to work row by row")
        leaves, form = tree_flatten((operation.args, kwargs))
        residual = {i: r.layer for r in self.trace.residuals if r.position == operation.position for i in r.arguments}
        seen = 0  # tensors so far
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                if which == "all" or seen == 0:
                    leaves[i] = self._source(leaf, operation.inputs[i], residual.get(i))
                seen += 1
        value = self.new()
        step = RowStep(out_of_place(operation.function), tuple(leaves), form, value, self.calls)
        self._check_shapes(operation, step)
        self.steps.append(step)
        self.known[operation.outputs[0]] = value
        self.lost.update(key for key in operation.outputs[1:] if key not in self.known)

    def _check_shapes(self, operation: Operation, step: RowStep) -> None:
        """Rows must stay rows: [nodes, width]; other shapes only between two calls, and without constants of nodes."""
        shape = operation.shapes[0]
        self.shape[step.output] = (len(shape), self.calls)
        if self.whole:
            return
        nodes = self.data.num_nodes
        refs = [source for source in step.sources if isinstance(source, Ref)]
        odd = len(shape) != 2 or any(self.shape[ref.value][0] != 2 for ref in refs)
        constants = [leaf for leaf in (*operation.args, *operation.kwargs.values()) if isinstance(leaf, Tensor)]
        aligned = any(
            c.dim() and c.size(0) == nodes and nodes > 1 for c in constants if keys_of(c)[0] not in self.known
        )
        old = any(
            self.shape[ref.value] != (2, self.calls)
            and self.shape[ref.value][0] != 2
            and self.shape[ref.value][1] != self.calls
            for ref in refs
        )
        if not shape or shape[0] != nodes or (odd and (aligned or old)):
            raise Unsupported(f"{operation.name} makes {list(shape)}, which is not a row for each node")

    def _source(self, leaf: Tensor, key: Key, own_call: int | None) -> Any:
        """What stands for a tensor argument: a value, rows of nodes, or the tensor itself if it is the same for all nodes."""
        if key in self.waiting:
            self._emit(self.waiting.pop(key))
        if key in self.known:
            return Ref(self.known[key], own_call)
        if own_call is not None or (not self.whole and is_aligned(leaf, self.data.num_nodes, 2)):
            return Rows(_constant(leaf, key), own_call)
        return _constant(leaf, key)


def _constant(tensor: Tensor, key: Key) -> Tensor:
    """A tensor that no layer made; it must still be what it was when it was used."""
    if key is not None and key[0] == id(tensor) and tensor._version != key[1]:
        raise Unsupported("a constant is changed in place after it was used")
    return tensor.detach()


def _needed(trace: Trace) -> set[int]:
    """The operations on which the output depends, and all layers."""
    keys, found = {trace.output_key}, set()
    for number in range(len(trace.operations) - 1, -1, -1):
        operation = trace.operations[number]
        if operation.is_layer or any(key in keys for key in operation.outputs if key is not None):
            found.add(number)
            keys |= {key for key in operation.inputs if key is not None}
    return found


def compile_program(
    trace: Trace, data: Data, *, whole: bool = False, readout: bool = False, fallback: Fallback | None = None
) -> Program:
    """The program of a recorded pass; raises `Unsupported` with the reason.

    Args:
        trace: The recorded pass.
        data: The graph it was recorded on.
        whole: Graph tasks: every operation sees all rows, so any operation will do.
        readout: The same, but only behind the last call.
        fallback: Makes layers of modules that have no lowering.
    """
    compiler = _Compiler(trace, data, whole, readout, fallback)
    needed = _needed(trace)
    for number, operation in enumerate(trace.operations):
        if number not in needed:
            continue
        if operation.is_layer:
            compiler.add_layer(operation)
        else:
            compiler.add_operation(operation)
    if trace.output_key not in compiler.known:
        raise Unsupported("the output is not made by the last layers in a way that could be followed")
    if compiler.calls != len(trace.calls):
        raise Unsupported("some calls happen outside the layers")
    return Program(tuple(compiler.steps), compiler.known[trace.output_key], compiler.calls)


def rectifier(segment: list[RowStep]) -> float | None:
    """The slope below zero, if a segment is one ReLU (0) or leaky ReLU and nothing else; otherwise None.

    Spellings whose derivative at 0 is not that below zero (`clamp(min=0)`) are left to autograd.
    """
    if len(segment) != 1 or len(segment[0].sources) != 1:
        return None
    (step,) = segment
    (source,) = step.sources
    if not isinstance(source, Ref) or source.own_call is not None:
        return None
    bend = rectifier_bend(step.function, *step.arguments)
    return float(bend.below) if bend is not None and bend.is_off_at_kink else None
