"""Steps of a program around one target: calls, whose messages come in slots, and row-wise operations between them."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from edgewise.counterfactuals.goal import Goal
from edgewise.trust.interval_operations import Affine, Join, Rectify, Sum

WIDEST = 1024
"""Columns of a value; a wider one would not fit thousands of sets."""


@dataclass(frozen=True, eq=False)
class SetCall:
    """A message-passing call around one target: slots bring messages to the first `rows` pairs."""

    source: int
    output: int
    rows: int
    head: Tensor
    """`[S]`: the pair that receives, rising."""
    tail: Tensor
    """`[S]`: the pair that sends; unused where the source is a constant."""
    unit: Tensor
    """`[S]`"""
    coefficient: Tensor
    """`[S]`"""
    size: Tensor
    """`[S]`: the sum of the absolute coefficients of its columns."""
    matrix: Tensor | None
    """`[out, in]` for what is sent."""
    own_scale: Tensor | None
    """`[rows, 1]`: added loop and GIN's 1 + ε, through `matrix`."""
    root: Tensor | None
    """`[out, in]` for the receiver's own row."""
    bias: Tensor | None
    sent: Tensor | None = None
    """`[S, out]`: what slots bring, coefficients included, where the source is a constant."""
    rest: Tensor | None = None
    """`[rows, out]`: own terms and bias, where the source is a constant."""
    magnitude: tuple[Tensor, Tensor] | None = None
    """The same two, with absolute values in place of all numbers: the scale of rounding errors."""
    terms: int = 0
    """The most numbers that are added up for one of its outputs."""
    digits: int = 0
    """Binary digits behind the point of what constants send, before coefficients."""

    @property
    def width(self) -> int:
        """Numbers in a message: before the matrix or behind it, whichever are more."""
        if self.sent is not None:
            return self.sent.size(1)
        return WIDEST if self.matrix is None else max(self.matrix.shape)

    @property
    def widest(self) -> int:
        """Numbers of the largest table of one set."""
        return (len(self.head) + self.rows) * max(self.width, 1)

    def send(self, table: Tensor) -> Tensor:
        """Rows `[…, in]` through the matrix."""
        return table if self.matrix is None else table @ self.matrix.t()

    @cached_property
    def groups(self) -> list[tuple[Tensor, Tensor]]:
        """Receivers `[n]` with their slots `[n, most]`, by about how many they have; S stands where there is none."""
        start = torch.searchsorted(self.head.contiguous(), torch.arange(self.rows + 1))
        count = start.diff()
        found = []
        bucket = torch.where(count > 0, (count - 1).clamp(min=1).double().log2().floor().long() + 1, 0)
        for size in bucket.unique().tolist():
            if size:
                heads = (bucket == size).nonzero().view(-1)
                most = torch.arange(int(count[heads].max()))
                slots = start[heads].view(-1, 1) + most
                found.append((heads, torch.where(most < count[heads].view(-1, 1), slots, len(self.head))))
        return found


@dataclass(frozen=True, eq=False)
class SetMap:
    """A row-wise operation on the first `rows` pairs; `matrix`, `scale` and `shift` are those of an `Affine`."""

    operation: Affine | Rectify | Sum | Join
    rows: int
    matrix: Tensor | None = None
    """`[out, in]`"""
    scale: Tensor | None = None
    """Broadcasts against `[rows, width]`."""
    shift: Tensor | None = None

    @property
    def reads(self) -> tuple[int, ...]:
        """The numbers of the values that it reads."""
        return self.operation.reads

    @property
    def output(self) -> int:
        """The number of the value that it makes."""
        return self.operation.output

    def numbers(self, tables: list[Tensor]) -> Tensor:
        """The operation on rows `[…, rows, width]`."""
        operation = self.operation
        if isinstance(operation, Rectify):
            return tables[0] * torch.where(tables[0] > 0, operation.above, operation.below)
        if isinstance(operation, Sum):
            return tables[0] + operation.sign * tables[1]
        if isinstance(operation, Join):
            sets = max(table.size(0) if table.dim() == 3 else 1 for table in tables)
            return torch.cat([table.expand(sets, -1, -1) for table in tables], dim=-1)
        found = tables[0] if self.matrix is None else tables[0] @ self.matrix.t()
        found = found if self.scale is None else found * self.scale
        return found if self.shift is None else found + self.shift


def turned_call(step: SetCall, goal: Goal) -> SetCall:
    """A call whose outputs are multiplied by the directions of a goal."""
    turn, bias = goal.directions, step.bias
    if step.sent is not None and step.rest is not None:
        return replace(step, sent=step.sent @ turn.t(), rest=step.rest @ turn.t() + goal.offset)
    matrix = turn if step.matrix is None else turn @ step.matrix
    root = None if step.root is None else turn @ step.root
    return replace(step, matrix=matrix, root=root, bias=goal.offset if bias is None else bias @ turn.t() + goal.offset)
