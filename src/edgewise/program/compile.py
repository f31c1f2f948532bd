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

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.model.data_flow import Call, Key, Operation, keys_of
from edgewise.model.trace import Trace
from edgewise.program.compile_calls import add_layer, constant
from edgewise.program.hop import CallPart
from edgewise.program.ir import MessageStep, Program, Ref, Rows, RowStep, Source
from edgewise.program.layers import SIDE_BY_SIDE
from edgewise.program.layers.base import Layer, Unsupported
from edgewise.program.operations import (
    folds_first_axis,
    is_aligned,
    is_stack_of_tables,
    out_of_place,
    plain_name,
    row_arguments,
)
from edgewise.program.row_function import Place, RowFunction
from edgewise.trees import tree_flatten

Fallback: TypeAlias = Callable[[Operation, Data], list[Any]]
"""Makes the steps of a module that has no lowering (`layers/module.py`)."""


@dataclass
class Compiler:
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
    kind: dict[int, int] = field(default_factory=dict)
    """Per value: the kind of nodes that have rows in it."""
    constants: dict[Key, int] = field(default_factory=dict)
    """The same for constants of a typed graph, where it is known."""
    untyped: dict[Key, str] = field(default_factory=dict)
    """Of other constants, the operation that made them."""
    stacks: dict[Key, Operation] = field(default_factory=dict)
    """Tables that were stacked, and wait to be summed up."""
    waiting: dict[Key, Operation] = field(default_factory=dict)
    """Operations on constants that carry a residual around the first call: they run where they are read."""
    lost: set[Key] = field(default_factory=set)
    """Secondary results of operations (places of a maximum); reading one is unsupported."""
    steps: list[RowStep | MessageStep] = field(default_factory=list)
    values: int = 0
    calls: int = 0
    needed_calls: int = 0
    """Calls on which the output depends."""

    @property
    def whole(self) -> bool:
        """Whether an operation may see all rows at once."""
        return self.everywhere or (self.readout and self.calls == self.needed_calls)

    def new(self) -> int:
        """The next number of a value."""
        self.values += 1
        return self.values - 1

    @cached_property
    def is_apart(self) -> bool:
        """Whether calls work on parts of the graph: several side by side, or nodes of several kinds."""
        split = any(type(operation.function) in SIDE_BY_SIDE for operation in self.trace.operations)
        both_ways = any(call.is_mirrored for call in self.trace.calls)
        return not self.trace.is_chain or self.trace.typed is not None or split or both_ways

    def size(self, kind: int) -> int:
        """How many nodes a kind has."""
        return self.data.num_nodes if self.trace.typed is None else self.trace.typed.kinds.size(kind)

    def add_row_step(
        self, function: Any, leaves: list[Any], form: Any, *, kind: int, dims: int = 2, least: int = 1
    ) -> RowStep:
        """A row-wise step; its depth is that of what it reads (at `least`), or, of a plain chain, the calls so far."""
        refs = [leaf for leaf in leaves if isinstance(leaf, Ref)]
        around = [leaf.own_call + 1 for leaf in leaves if isinstance(leaf, (Ref, Rows)) and leaf.own_call is not None]
        depth = max([least, *around, *(self.shape[ref.value][1] for ref in refs)]) if self.is_apart else self.calls
        step = RowStep(function, tuple(leaves), form, self.new(), depth, kind)
        self.shape[step.output], self.kind[step.output] = (dims, depth), kind
        self.steps.append(step)
        return step

    def add_message(
        self, layer: Layer, source: Source, call: Call, part: CallPart | None, own: Source | None = None
    ) -> Ref:
        """A call as a step; the source of what it makes."""
        step = MessageStep(layer, source, self.new(), call.layer, part, own)
        self.calls += 1
        self.shape[step.output], self.kind[step.output] = (2, call.layer + 1), step.kind
        self.steps.append(step)
        return Ref(step.output)

    def apply(self, network: RowFunction, source: Source, kind: int) -> Source:
        """The operations of an inner network as steps, one for each; the source of its result."""
        values = [source]
        for function, leaves, form in network.operations:
            filled = [values[leaf.value] if isinstance(leaf, Place) else leaf for leaf in leaves]
            values.append(Ref(self.add_row_step(function, filled, form, kind=kind).output))
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
        for key in [key for key in reads if key in self.stacks]:
            if not self.whole or folds_first_axis(operation.function, operation.args, operation.kwargs):
                self._fold(operation, self.stacks[key])
                return
            self._emit(self.stacks.pop(key))
        if not any(key in self.known for key in reads):
            self._note_constant(operation, reads)
            if carries or any(key in self.waiting for key in reads):
                self.waiting.update(dict.fromkeys(operation.outputs[:1], operation))
                self.lost.update(operation.outputs[1:])
            return  # otherwise a constant: its result is looked up where it is used
        if is_stack_of_tables(operation.function, operation.args, operation.kwargs):
            self.stacks[operation.outputs[0]] = operation  # the step is the sum, mean or maximum over them
            return
        self._emit(operation)

    def _note_constant(self, operation: Operation, reads: Sequence[Key]) -> None:
        """Of which kind the rows of a constant are: whatever made it of rows of one kind, its numbers are those recorded."""
        kinds = {self.constants[key] for key in reads if key in self.constants}
        if len(kinds) == 1:
            (kind,) = kinds
            if operation.shapes and operation.shapes[0][:1] == (self.size(kind),):
                self.constants[operation.outputs[0]] = kind
                return
        self.untyped.update(dict.fromkeys(operation.outputs, operation.name))

    def _fold(self, operation: Operation, stack: Operation) -> None:
        """`torch.stack(tables).sum(0)`, as a `HeteroConv` joins what a node type receives: row by row after all."""
        leaves, _ = tree_flatten((stack.args, {}))
        tables = [(leaf, key) for leaf, key in zip(leaves, stack.inputs, strict=False) if isinstance(leaf, Tensor)]
        kind = self._kind_of([key for _, key in tables], operation.name)
        sources = [self._source(leaf, key, None, kind) for leaf, key in tables]
        name = plain_name(operation.function)
        if not folds_first_axis(operation.function, operation.args, operation.kwargs):
            raise Unsupported(f"{operation.name} reads tables that were stacked")
        if name in ("max", "min"):
            stacked = self.add_row_step(torch.stack, *tree_flatten(((sources,), {"dim": 1})), kind=kind, dims=3)
            step = self.add_row_step(operation.function, *tree_flatten(((Ref(stacked.output),), {"dim": 1})), kind=kind)
        else:
            total: Source = sources[0]
            for other in sources[1:]:
                step = self.add_row_step(torch.add, *tree_flatten(((total, other), {})), kind=kind)
                total = Ref(step.output)
            if name == "mean":
                step = self.add_row_step(torch.div, *tree_flatten(((total, len(sources)), {})), kind=kind)
        self.known[operation.outputs[0]] = step.output
        self.lost.update(operation.outputs[1:])

    def _kind_of(self, keys: list[Key], name: str) -> int:
        """The kind of nodes whose rows an operation reads; rows of several kinds do not mix, but for a readout."""
        kinds = {self.kind[self.known[key]] for key in keys if key in self.known}
        kinds = kinds or {self.constants[key] for key in keys if key in self.constants}
        if self.whole:
            return min(kinds, default=0)
        if len(kinds) > 1:
            raise Unsupported(f"{name} reads rows of several types of nodes")
        if not kinds and self.trace.typed is not None:
            made = next((f" that {self.untyped[key]} made" for key in keys if key in self.untyped), "")
            raise Unsupported(f"{name} reads rows{made} of which the type of nodes is not known")
        return kinds.pop() if kinds else 0

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
        waiting = [key for key in operation.inputs if key in self.waiting]
        for key in waiting:
            if key in self.waiting:  # else another one needed it before
                self._emit(self.waiting.pop(key))
        kind = self._kind_of([key for key in operation.inputs if key is not None], operation.name)
        seen = 0  # tensors so far
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                if which == "all" or seen == 0:
                    leaves[i] = self._source(leaf, operation.inputs[i], residual.get(i), kind)
                seen += 1
        shape = operation.shapes[0]
        step = self.add_row_step(out_of_place(operation.function), leaves, form, kind=kind, dims=len(shape))
        self._check_shapes(operation, step)
        self.known[operation.outputs[0]] = step.output
        self.lost.update(key for key in operation.outputs[1:] if key not in self.known)

    def _check_shapes(self, operation: Operation, step: RowStep) -> None:
        """Rows must stay rows: [nodes, width]; other shapes only between two calls, and without constants of nodes."""
        shape = operation.shapes[0]
        if self.whole:
            return
        nodes = self.size(step.kind)
        refs = [source for source in step.sources if isinstance(source, Ref)]
        odd = len(shape) != 2 or any(self.shape[ref.value][0] != 2 for ref in refs)
        constants = [leaf for leaf in (*operation.args, *operation.kwargs.values()) if isinstance(leaf, Tensor)]
        aligned = any(
            c.dim() and c.size(0) == nodes and nodes > 1 for c in constants if keys_of(c)[0] not in self.known
        )
        old = any(self.shape[ref.value][0] != 2 and self.shape[ref.value][1] != step.calls_done for ref in refs)
        if not shape or shape[0] != nodes or (odd and (aligned or old)):
            raise Unsupported(f"{operation.name} makes {list(shape)}, which is not a row for each node")

    def _source(self, leaf: Tensor, key: Key, own_call: int | None, kind: int) -> Any:
        """What stands for a tensor argument: a value, rows of nodes, or the tensor itself if it is the same for all nodes."""
        if key in self.known:
            return Ref(self.known[key], own_call)
        if own_call is not None or (not self.whole and is_aligned(leaf, self.size(kind), 2)):
            return Rows(constant(leaf, key), own_call)
        return constant(leaf, key)


def _needed(trace: Trace, *, all_layers: bool) -> set[int]:
    """The operations on which the output depends, and perhaps all layers."""
    keys, found = {trace.output_key}, set()
    for number in range(len(trace.operations) - 1, -1, -1):
        operation = trace.operations[number]
        if (operation.is_layer and all_layers) or any(key in keys for key in operation.outputs if key is not None):
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
    others = {call.dtype for call in trace.calls} - {trace.output.dtype}
    if others:
        raise Unsupported(f"its layers compute in {others.pop()}, and what it returns is {trace.output.dtype}")
    compiler = Compiler(trace, data, whole, readout, fallback)
    if trace.typed is not None:
        compiler.constants.update(trace.typed.rows)
    needed = _needed(trace, all_layers=not compiler.is_apart)
    compiler.needed_calls = sum(len(trace.operations[number].calls) for number in needed)
    for number in sorted(needed):
        _add(compiler, trace.operations[number])
    if trace.output_key not in compiler.known:
        raise Unsupported("the output is not made by the last layers in a way that could be followed")
    if sum(len(operation.calls) for operation in trace.operations) != len(trace.calls):
        raise Unsupported("some calls happen outside the layers")
    steps = sorted(compiler.steps, key=_depth)  # stable: what came first stays first
    kinds = None if trace.typed is None else trace.typed.kinds
    if any(isinstance(step, MessageStep) and step.receiver is not None and step.part is None for step in steps):
        steps = _on_all_columns(steps, data)
    return Program(tuple(steps), compiler.known[trace.output_key], trace.num_layers, kinds)


def _add(compiler: Compiler, operation: Operation) -> None:
    """An operation of the pass, which a refusal names."""
    try:
        if operation.is_layer:
            add_layer(compiler, operation)
        else:
            compiler.add_operation(operation)
    except Unsupported as reason:
        reason.operation = operation
        raise


def _on_all_columns(steps: list[RowStep | MessageStep], data: Data) -> list[RowStep | MessageStep]:
    """The steps of a chain in which a call reads two tables, as calls on parts of the graph: those may do that."""
    everywhere = CallPart(torch.ones(data.edge_index.size(1), dtype=torch.bool, device=data.edge_index.device))
    return [replace(step, part=everywhere) if isinstance(step, MessageStep) else step for step in steps]


def _depth(step: RowStep | MessageStep) -> tuple[int, bool]:
    """Where a step belongs: the calls of a depth, then the row-wise steps behind them."""
    return (step.call + 1, False) if isinstance(step, MessageStep) else (step.calls_done, True)
