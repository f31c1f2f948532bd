"""One aten operation as the rules of labels see it, and the algebra of labels that the rules share.

The labels of an operation's result follow from the labels of its inputs: kept, moved to another axis, joined entry by
entry, or gathered like the data. Everything here works on plain vectors of labels and knows nothing of models.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import torch
from torch import Tensor

from edgewise.model.shadow import EDGE, FRESH, LOST, MIXED, NOTHING, Labels, Mark, same_vector
from edgewise.torch_internals import schema_of

Picker: TypeAlias = Callable[[Tensor, int, Tensor, Tensor], Tensor]
"""(tensor, axis, labels, positions) -> the labels of those positions, with a merge of columns made visible."""


@dataclass(frozen=True, eq=False)
class OperationKind:
    """What is the same in every call of one aten operation."""

    name: str
    """Without the trailing underscore of operations in place."""
    elementwise: bool
    writes: tuple[int | str, ...]
    """Positions and keywords of the arguments that are written to."""
    positions: dict[str, int]
    reshapes_in_place: bool


_UNTAGGED = (
    *("celu", "elu", "hardshrink", "hardsigmoid", "hardtanh", "isfinite", "ldexp", "leaky_relu", "mish", "rad2deg"),
    *("relu6", "selu", "softplus", "softshrink", "threshold"),
)
"""Elementwise operations that torch before 2.12 does not mark as such."""


@cache
def operation_kind(func: Any) -> OperationKind:
    """The kind of an aten operation.

    >>> operation_kind(torch.ops.aten.relu_.default).name, operation_kind(torch.ops.aten.relu_.default).elementwise
    ('relu', True)
    """
    schema = schema_of(func)
    if schema is None:  # an operation of higher order
        return OperationKind(str(func), elementwise=False, writes=(), positions={}, reshapes_in_place=False)
    space, _, name = schema.name.partition("::")
    arguments = [(index, a) for index, a in enumerate(schema.arguments)]
    writes = tuple(a.name if a.kwarg_only else i for i, a in arguments if a.alias_info and a.alias_info.is_write)
    name = name.rstrip("_") if writes else name
    return OperationKind(
        name=name if space == "aten" else schema.name,
        elementwise=space == "aten" and _has_elementwise_form(name),
        writes=writes,
        positions={a.name: i for i, a in arguments},
        reshapes_in_place=torch.Tag.inplace_view in func.tags,
    )


def _has_elementwise_form(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    return name in _UNTAGGED or (
        packet is not None
        and any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads())
    )


@dataclass(slots=True)
class AtenCall:
    """One call: its arguments, what was known of its inputs before, and its results."""

    kind: OperationKind
    args: list[Any]
    kwargs: dict[str, Any]
    inputs: list[Tensor]
    marks: list[Mark]
    pick: Picker
    escaped: bool = False
    """Whether data of edges has left for Python, so that any number may come from there."""
    outputs: list[Tensor] = field(default_factory=list)

    @property
    def first(self) -> Tensor:
        """The first tensor among the arguments."""
        return self.inputs[0]

    @property
    def own(self) -> Labels:
        """The labels of the first tensor."""
        return self.marks[0].labels

    def mark(self, tensor: Tensor) -> Mark:
        """What is known of one of the arguments."""
        return next((mark for known, mark in zip(self.inputs, self.marks, strict=True) if known is tensor), NOTHING)

    def argument(self, name: str, default: Any = None) -> Any:
        """An argument by the name that it has in the operation's schema."""
        position = self.kind.positions.get(name, len(self.args))
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, default)

    def axis(self, name: str = "dim", default: int = 0, dim: int | None = None) -> int:
        """An axis argument, counted from the left."""
        return int(self.argument(name, default)) % max(self.first.dim() if dim is None else dim, 1)

    def axes(self, name: str) -> list[int]:
        """An argument that names one axis or several; all axes if it names none."""
        given = self.argument(name)
        listed = given if isinstance(given, (list, tuple)) else [] if given is None else [given]
        return [int(a) % max(self.first.dim(), 1) for a in listed] or list(range(self.first.dim()))


def joined(a: Tensor, b: Tensor) -> Tensor:
    """The labels of entries that depend on both sides.

    >>> joined(torch.tensor([4, -1, 4]), torch.tensor([4, 5, 6]))
    tensor([ 4,  5, -3])
    """
    if a is b:
        return a
    if (len(a) == 1) != (len(b) == 1):  # one of them is broadcast
        return a if len(b) == 1 else b
    if same_vector(a, b):
        return a
    return torch.where(a == b, a, torch.where(b == FRESH, a, torch.where(a == FRESH, b, MIXED)))


def join(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """As `joined`, where a side may have no labels."""
    if a is None or b is None:
        return b if a is None else a
    return joined(a, b)


def add(labels: Labels, key: tuple[int, str], vector: Tensor | None) -> None:
    """Join one more vector into `labels`."""
    if vector is not None:
        known = labels.get(key)
        labels[key] = vector if known is None else joined(known, vector)


def aligned(parts: Iterable[tuple[Tensor, Mark]], dim: int) -> Labels:
    """The joined labels of tensors that are broadcast to `dim` axes."""
    labels: Labels = {}
    for tensor, mark in parts:
        for (axis, kind), vector in mark.labels.items():
            add(labels, (axis + dim - tensor.dim(), kind), vector)
    return labels


def blank(tensor: Tensor, mark: Mark, size: int, kind: str) -> Tensor:
    """Labels for entries that have none: fresh if no data went into them, lost otherwise."""
    free = mark.reach == 0 and (kind == EDGE or not mark.of_nodes)
    return torch.full((size,), FRESH if free else LOST, device=tensor.device)


def doubted(vector: Tensor) -> Tensor:
    """Labels of entries that unlabelled data of edges went into: what seemed fresh may come from a column after all."""
    return torch.where(vector == FRESH, LOST, vector)


def reshaped(before: Tensor, labels: Labels, after: Tensor) -> Labels:
    """The labels of the same entries in another shape.

    >>> given, flat = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([0, 1, 2, 1, 2, 0])
    >>> reshaped(given, {(1, EDGE): torch.arange(3)}, flat)[0, EDGE]
    tensor([0, 1, 2, 0, 1, 2])
    """
    if before.shape == after.shape:
        return labels
    found: Labels = {}
    for (axis, kind), vector in labels.items():
        kept = _same_axis(before, axis, after)
        if kept is not None:
            found[(kept, kind)] = vector
        elif after.numel() and not before.is_floating_point():
            found.update(_spread(before, axis, kind, vector, after))
    return found


def _same_axis(before: Tensor, axis: int, after: Tensor) -> int | None:
    """The axis of `after` that is the given one, if it was only moved between other axes."""
    if after.dim() == 0:
        return 0
    if before.dim() == 0:
        return after.dim() - 1
    left, size = math.prod(before.shape[:axis]), before.size(axis)
    fits = (b for b in range(after.dim()) if after.size(b) == size and math.prod(after.shape[:b]) == left)
    return next(fits, None)


def _spread(before: Tensor, axis: int, kind: str, vector: Tensor, after: Tensor) -> Labels:
    """An axis that was folded into others: labels entry by entry, kept where they agree along an axis."""
    shape = [-1 if a == axis else 1 for a in range(before.dim())]
    entries = vector.view(shape).expand(before.shape).reshape(after.shape)
    found: Labels = {}
    for b in range(after.dim()):
        rows = entries.movedim(b, 0).reshape(after.size(b), -1)
        if bool((rows == rows[:, :1]).all()):
            found[(b, kind)] = rows[:, 0].contiguous()
    return found
