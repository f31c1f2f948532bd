"""A model as a short program: message layers, and row-wise operations between them.

Everything before the first layer is a constant, the same for all targets. Values are numbered in the order in which they
come to be; a value made after c calls is needed only for nodes within L − c hops of a target.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_unflatten

from edgewise.program.layers.base import Layer


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
