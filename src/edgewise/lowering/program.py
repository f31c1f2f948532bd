"""A model as a short program: message layers, and row-wise operations between them.

Everything before the first layer is a constant, the same for all targets. Values are numbered in the order in which they
come to be; a value made after c calls is needed only for nodes within L − c hops of a target.
"""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten
from torch_geometric.data import Data

from edgewise.lowering.layers import lower_layer
from edgewise.lowering.layers.base import Layer
from edgewise.lowering.row_wise import is_aligned, out_of_place, plain_name, row_arguments
from edgewise.lowering.unsupported import Unsupported
from edgewise.model.skips import Key, Operation, keys_of
from edgewise.model.trace import Trace


@dataclass(frozen=True)
class Ref:
    """A value; `own_call` says that it is a residual around that call, scaled by its self weights."""

    value: int
    own_call: int | None = None


@dataclass(frozen=True, eq=False)
class Rows:
    """A constant with a row for each node."""

    tensor: Tensor
    own_call: int | None = None


Source: TypeAlias = Ref | Rows


@dataclass(frozen=True, eq=False)
class RowStep:
    """A row-wise operation: `function(*args, **kwargs)` with the sources put in."""

    function: Any
    leaves: tuple[Any, ...]
    form: TreeSpec
    output: int
    calls_done: int

    @property
    def sources(self) -> list[Source]:
        """What it reads."""
        return [leaf for leaf in self.leaves if isinstance(leaf, (Ref, Rows))]

    def run(self, rows: list[Tensor]) -> Tensor:
        """The operation on the given rows of its sources."""
        left = iter(rows)
        leaves = [next(left) if isinstance(leaf, (Ref, Rows)) else leaf for leaf in self.leaves]
        args, kwargs = tree_unflatten(leaves, self.form)
        result = self.function(*args, **kwargs)
        return result if isinstance(result, Tensor) else result[0]  # max along an axis gives values and places


@dataclass(frozen=True, eq=False)
class MessageStep:
    """A message-passing call."""

    layer: Layer
    source: Source
    output: int
    call: int


@dataclass(frozen=True, eq=False)
class Program:
    """The steps in order, and which value is the output."""

    steps: tuple[RowStep | MessageStep, ...]
    output: int
    num_calls: int

    @property
    def layers(self) -> list[Layer]:
        """The message layers, call by call."""
        return [step.layer for step in self.steps if isinstance(step, MessageStep)]

    def segments(self) -> list[list[RowStep]]:
        """The row-wise steps after each call."""
        found: list[list[RowStep]] = []
        for step in self.steps:
            if isinstance(step, MessageStep):
                found.append([])
            else:
                found[-1].append(step)
        return found


@dataclass
class _Compiler:
    """Reads operations in order; `known` says which value a tensor is."""

    trace: Trace
    data: Data
    whole: bool
    """Graph tasks: every operation sees all rows, so any operation will do."""
    known: dict[Key, int] = field(default_factory=dict)
    steps: list[RowStep | MessageStep] = field(default_factory=list)
    values: int = 0
    calls: int = 0

    def new(self) -> int:
        self.values += 1
        return self.values - 1

    def add_layer(self, operation: Operation) -> None:
        x = operation.kwargs.get("x", operation.args[0] if operation.args else None)
        if not isinstance(x, Tensor):
            raise Unsupported(f"{operation.name} is called with a pair of features")
        key = keys_of(x)[0] if operation.own_input is None else operation.own_input
        source: Source = Ref(self.known[key]) if key in self.known else Rows(_constant(x, key))
        others = [k for k in operation.inputs if k in self.known and k != key]
        if others:
            raise Unsupported(f"{operation.name} reads more than node features from earlier layers")
        calls = [self.trace.calls[i] for i in operation.calls]
        for piece in lower_layer(operation.function, calls, self.data):
            value = self.new()
            if isinstance(piece, Layer):
                self.steps.append(MessageStep(piece, source, value, self.calls))
                self.calls += 1
            else:
                self.steps.append(self._row_step(piece, [source], value))
            source = Ref(value)
        for key in operation.outputs:
            self.known[key] = source.value  # type: ignore[union-attr]

    def _row_step(self, function: Any, sources: list[Any], value: int) -> RowStep:
        leaves, form = tree_flatten((tuple(sources), {}))
        return RowStep(function, tuple(leaves), form, value, self.calls)

    def add_operation(self, operation: Operation) -> None:
        if not any(key in self.known for key in operation.inputs if key is not None):
            return  # a constant: its result is looked up where it is used
        args, kwargs = operation.args, {**operation.kwargs}
        kwargs.pop("inplace", None)
        which = "all" if self.whole else row_arguments(operation.function, args, kwargs)
        if which is None:
            raise Unsupported(f"{operation.name} is not known to work row by row")
        leaves, form = tree_flatten((args, kwargs))
        residual = {i: r.call for r in self.trace.residuals if r.position == operation.position for i in r.arguments}
        seen = 0
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                if which == "all" or seen == 0:
                    leaves[i] = self._source(leaf, operation.inputs[i], residual.get(i))
                seen += 1
        value = self.new()
        self.steps.append(RowStep(out_of_place(operation.function), tuple(leaves), form, value, self.calls))
        self.known[operation.outputs[0]] = value

    def _source(self, leaf: Tensor, key: Key, own_call: int | None) -> Any:
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


def compile_program(trace: Trace, data: Data, *, whole: bool = False) -> Program:
    """The program of a recorded pass, or `Unsupported` with the reason."""
    compiler = _Compiler(trace, data, whole)
    for operation in trace.operations:
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
    """The slope below zero, if a segment is one ReLU (0) or leaky ReLU and nothing else; otherwise None."""
    slopes = []
    for previous, step in zip([None, *segment], segment, strict=False):
        name, sources = plain_name(step.function), step.sources
        chained = len(sources) == 1 and isinstance(sources[0], Ref) and sources[0].own_call is None
        if not chained or (previous is not None and sources[0] != Ref(previous.output)):
            return None
        if name in ("relu", "leaky_relu"):
            args, kwargs = tree_unflatten(list(step.leaves), step.form)
            given = kwargs.get("negative_slope", args[1] if len(args) > 1 and name == "leaky_relu" else 0.01)
            slopes.append(0.0 if name == "relu" else float(given))
        elif name not in ("dropout", "contiguous", "clone"):
            return None
    return slopes[0] if len(slopes) == 1 else None
