"""Steps of a program around one target: calls, whose messages come in slots, and row-wise operations between them."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

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
    def start(self) -> Tensor:
        """`[rows + 1]`: where the slots of each receiver begin."""
        return torch.searchsorted(self.head.contiguous(), torch.arange(self.rows + 1))

    def received(self, table: Tensor, weight: Tensor, *, of_slots: bool = False) -> Tensor:
        """Σ weight · row over the slots of each receiver, `[sets, rows, width]`; weights are `[sets, S]`.

        Rows are those of the senders in a table `[sets, pairs, width]`, or with `of_slots` one for each slot. A table that is
        the same for all sets may be `[1, …]`.
        """
        place = torch.arange(len(self.head)) if of_slots else self.tail
        return grouped_rows(table, place, self.start, weight)

    @cached_property
    def by_tail(self) -> tuple[Tensor, Tensor]:
        """The slots in the order of their senders, and where those of each sender begin."""
        order = self.tail.argsort(stable=True)
        last = int(self.tail.max()) + 1 if len(self.tail) else 0
        return order, torch.searchsorted(self.tail[order].contiguous(), torch.arange(last + 1))

    @cached_property
    def groups(self) -> list[tuple[Tensor, Tensor]]:
        """Receivers `[n]` with their slots `[n, most]`, by about how many they have; S stands where there is none."""
        start = self.start
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
            return bent(operation, tables[0])
        if isinstance(operation, Sum):
            return tables[0] + operation.sign * tables[1]
        if isinstance(operation, Join):
            sets = max(table.size(0) if table.dim() == 3 else 1 for table in tables)
            return torch.cat([table.expand(sets, -1, -1) for table in tables], dim=-1)
        found = tables[0] if self.matrix is None else tables[0] @ self.matrix.t()
        found = found if self.scale is None else found * self.scale
        return found if self.shift is None else found + self.shift


def grouped_rows(table: Tensor, place: Tensor, start: Tensor, weight: Tensor) -> Tensor:
    """Σ weight · table[place] over each group, for many sets at once: `[sets, groups, width]`.

    >>> table, weight = torch.tensor([[[1.0], [10.0]]]), torch.tensor([[1.0, 1.0, 3.0], [0.0, 1.0, 0.0]])
    >>> grouped_rows(table, torch.tensor([0, 1, 1]), torch.tensor([0, 2, 3]), weight).squeeze(-1)
    tensor([[11., 30.],
            [10.,  0.]])
    """
    sets, groups, width = len(weight), len(start) - 1, table.size(-1)
    if len(place) == 0 or groups == 0:
        return table.new_zeros(sets, groups, width)
    number = torch.arange(sets).view(-1, 1)
    apart = table.size(1) if len(table) > 1 else 0
    rows = functional.embedding_bag(
        (place + apart * number).view(-1),
        table.reshape(-1, width),
        (start[:-1] + len(place) * number).view(-1),
        mode="sum",
        per_sample_weights=weight.reshape(-1),
    )
    return rows.view(sets, groups, width)


def bent(kink: Rectify, rows: Tensor) -> Tensor:
    """A function with a kink at 0."""
    if kink.below.dim() == 0 and float(kink.below) == 0 and bool((kink.above == 1).all()):
        return rows.clamp(min=0)
    return rows * torch.where(rows > 0, kink.above, kink.below)


def turned_call(step: SetCall, goal: Goal) -> SetCall:
    """A call whose outputs are multiplied by the directions of a goal."""
    turn, bias = goal.directions, step.bias
    if step.sent is not None and step.rest is not None:
        return replace(step, sent=step.sent @ turn.t(), rest=step.rest @ turn.t() + goal.offset)
    matrix = turn if step.matrix is None else turn @ step.matrix
    root = None if step.root is None else turn @ step.root
    return replace(step, matrix=matrix, root=root, bias=goal.offset if bias is None else bias @ turn.t() + goal.offset)
