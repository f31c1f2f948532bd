"""A model as a short program: message layers, and row-wise operations between them.

Everything before the first layer is a constant, the same for all targets. Values are numbered in the order in which they
come to be; a value made after c calls is needed only for nodes within L − c hops of a target.

A GCN of two layers with a ReLU in between is three steps, with W₁ and W₂ inside the layers:

    value 0 = MessageStep(layer 1, Rows(x), call 0)
    value 1 = RowStep(relu, Ref(0))
    value 2 = MessageStep(layer 2, Ref(1), call 1)      the output
"""

from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

from torch import Tensor, nn

from edgewise.graph.node_kinds import NodeKinds
from edgewise.model.module_copy import copied_module
from edgewise.program.hop import CallPart
from edgewise.program.layers.base import Layer
from edgewise.trees import TreeSpec, tree_unflatten


@dataclass(frozen=True)
class Ref:
    """A value; `own_call` says that it is a residual around that call, scaled by its self weights.

    In `h = conv(x) + x` the second summand is what a node contributes to itself in that call: it belongs to s, not to ω.
    """

    value: int
    own_call: int | None = None


@dataclass(frozen=True, eq=False)
class Rows:
    """A constant with a row for each node, `[N, …]`; `own_call` as in `Ref`."""

    tensor: Tensor
    own_call: int | None = None


Source: TypeAlias = Ref | Rows


@dataclass(frozen=True, eq=False)
class RowStep:
    """A row-wise operation: `function(*args, **kwargs)` with the sources put in.

    >>> import torch; from edgewise.trees import tree_flatten
    >>> leaves, form = tree_flatten(((Ref(0), 2.0), {}))                 # value 0 times 2
    >>> step = RowStep(torch.mul, tuple(leaves), form, output=1, calls_done=1)
    >>> step.sources
    [Ref(value=0, own_call=None)]
    >>> step.run([torch.tensor([[1.0], [10.0]])])
    tensor([[ 2.],
            [20.]])
    """

    function: Any
    leaves: tuple[Any, ...]
    """The arguments in a flat list; a `Ref` or `Rows` stands where rows have to be put in."""
    form: TreeSpec
    """How the leaves nest as `(args, kwargs)`."""
    output: int
    """The number of the value that it makes."""
    calls_done: int
    """How many calls come before it, one after the other: the depth of what it makes."""
    kind: int = 0
    """Whose rows it works on (`graph/node_kinds.py`)."""

    @property
    def sources(self) -> list[Source]:
        """What it reads."""
        return [leaf for leaf in self.leaves if isinstance(leaf, (Ref, Rows))]

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """`(args, kwargs)` with the sources themselves in them, for whoever asks what the operation does."""
        args, kwargs = tree_unflatten(list(self.leaves), self.form)
        return args, kwargs

    def filled(self, values: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """`(args, kwargs)` with a value in place of each source."""
        left = iter(values)
        leaves = [next(left) if isinstance(leaf, (Ref, Rows)) else leaf for leaf in self.leaves]
        args, kwargs = tree_unflatten(leaves, self.form)
        return args, kwargs

    def run(self, rows: list[Tensor]) -> Tensor:
        """The operation on the given rows of its sources."""
        args, kwargs = self.filled(list(rows))
        result = self.function(*args, **kwargs)
        return result if isinstance(result, Tensor) else result[0]  # max along an axis gives values and places


@dataclass(frozen=True, eq=False)
class MessageStep:
    """A message-passing call: the layer reads the rows of `source` and makes the value `output`."""

    layer: Layer
    source: Source
    output: int
    call: int
    """Its depth: 0 is a call that reads the features. Calls side by side share a number."""
    part: CallPart | None = None
    """The columns and kinds of nodes that it works on; None: all columns of a graph of one kind."""
    receiver: Source | None = None
    """The rows of the receivers, where attention reads them from another table than those of the senders."""

    @property
    def kind(self) -> int:
        """The kind of the nodes that have rows in its output."""
        return 0 if self.part is None else self.part.receivers

    @property
    def sources(self) -> list[Source]:
        """What it reads."""
        return [self.source] if self.receiver is None else [self.source, self.receiver]

    @cached_property
    def is_prepared(self) -> bool:
        """Whether it reads constants alone, so that its layer prepares them once for all targets."""
        return all(isinstance(source, Rows) for source in self.sources)


@dataclass(frozen=True, eq=False)
class Program:
    """The steps in order, and which value is the output.

    >>> import torch; from edgewise.program.layers.affine import AffineLayer
    >>> plus = AffineLayer(coefficient=None, root=1.0)                   # every node: itself plus what it receives
    >>> x = torch.tensor([[1.0], [10.0], [100.0]])
    >>> program = Program((MessageStep(plus, Rows(x), 0, call=0), MessageStep(plus, Ref(0), 1, call=1)), 1, num_calls=2)
    >>> program.segments                                               # nothing between the calls, nothing at the end
    [[], []]
    """

    steps: tuple[RowStep | MessageStep, ...]
    """By depth: the calls of a depth, then the row-wise steps behind them."""
    output: int
    num_calls: int
    """The depth: how many calls there are one after the other."""
    kinds: NodeKinds | None = None

    @property
    def layers(self) -> list[Layer]:
        """The message layers, call by call."""
        return [step.layer for step in self.messages]

    @cached_property
    def messages(self) -> list[MessageStep]:
        """The calls, in order."""
        return [step for step in self.steps if isinstance(step, MessageStep)]

    @cached_property
    def is_chain(self) -> bool:
        """Whether there is one call of each depth, on the whole graph and on one table."""
        return len(self.messages) == self.num_calls and all(step.part is None for step in self.messages)

    def calls_of(self, depth: int) -> list[MessageStep]:
        """The calls of a depth, side by side."""
        return [step for step in self.messages if step.call == depth]

    @cached_property
    def segments(self) -> list[list[RowStep]]:
        """The row-wise steps after the calls of each depth."""
        found: list[list[RowStep]] = [[] for _ in range(self.num_calls)]
        depth = -1
        for step in self.steps:
            if isinstance(step, MessageStep):
                depth = step.call
            else:
                found[depth].append(step)
        return found

    @cached_property
    def segments_by_kind(self) -> list[dict[int, list[RowStep]]]:
        """The same, apart for each kind of nodes: their rows do not mix."""
        found: list[dict[int, list[RowStep]]] = []
        for segment in self.segments:
            found.append({})
            for step in segment:
                found[-1].setdefault(step.kind, []).append(step)
        return found

    def rows_of(self, value: int) -> int:
        """The kind of nodes that have rows in a value."""
        return next(step.kind for step in self.steps if step.output == value)


def in_double(part: Any) -> Any:
    """A program, or a part of one, with all its numbers in float64; modules inside (attention) are copied.

    >>> import torch
    >>> in_double(Rows(torch.ones(2, 1))).tensor.dtype
    torch.float64
    """
    if isinstance(part, Tensor):
        return part.double() if part.is_floating_point() else part
    if isinstance(part, nn.Module):
        return copied_module(part).double()
    if isinstance(part, MessageStep) and part.is_prepared:
        return replace(part, layer=in_double(part.layer))  # what it reads was prepared, and is not read again
    if type(part) is tuple:
        return tuple(in_double(item) for item in part)
    own = type(part).__module__.startswith("edgewise.")  # not torch's, such as a TreeSpec
    if own and is_dataclass(part) and not isinstance(part, type):
        return replace(part, **{field.name: in_double(getattr(part, field.name)) for field in fields(part)})
    return part
