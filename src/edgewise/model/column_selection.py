"""Selections among the columns of the given graph, and the labels of `tensor[index]`.

A selection that only looks at each column's own data (a mask of an attribute, a relation) is a selection and no more. One
that looked at other columns (a sort and "unlike the one before", `unique`) may have kept one column for several: then
a kept column with a dropped twin has several owners.
"""

from functools import cached_property

import torch
from torch import Tensor

from edgewise.model.axis_labels import AtenCall, aligned, doubted
from edgewise.model.shadow import CONSTANT, CROSSED, EDGE, FRESH, MIXED, Labels, Mark

_MASKS = (torch.bool, torch.uint8)


class GivenColumns:
    """The columns of the given `edge_index`, ends [2, edges] in numbers of nodes.

    >>> columns = GivenColumns(torch.tensor([[0, 0, 1], [1, 1, 2]]), 3)          # 0→1 twice, 1→2
    >>> columns.pick(torch.rand(3), 0, torch.arange(3), torch.tensor([0, 2]))    # which 0→1 is the first of these?
    tensor([-3,  2])
    """

    def __init__(self, ends: Tensor, num_nodes: int) -> None:
        self.ends, self.num_nodes, self.num_edges = ends, num_nodes, ends.size(1)
        self.is_loop = ends[0] == ends[1]
        self.has_loops = bool(self.is_loop.any())
        self.dropped = False
        """Whether a selection that looked at other columns has left some out."""

    @cached_property
    def pairs(self) -> Tensor:
        """One number for both directions of an edge, [edges]."""
        return _unordered(self.ends)

    def pick(self, tensor: Tensor, axis: int, labels: Tensor, positions: Tensor) -> Tensor:
        """The labels [selected] of a selection that looked at other columns; `positions` are numbers or a mask."""
        kept = torch.zeros_like(labels, dtype=torch.bool)
        kept[positions] = True
        if bool(kept.all()):
            return labels[positions]
        self.dropped = True
        mixed = _has_dropped_twin(self._pairs_of(labels), labels, kept)
        if tensor.dim() == 2 and axis == 1 and tensor.size(0) == 2 and not tensor.is_floating_point():
            mixed |= _has_dropped_twin(_unordered(tensor), labels, kept)  # as the ends are numbered now
        elif self._drops_a_loop(labels[~kept]):  # that loop and one made anew may be one
            mixed |= labels == FRESH
        return torch.where(mixed, MIXED, labels)[positions]

    def _pairs_of(self, labels: Tensor) -> Tensor:
        return torch.where(labels >= 0, self.pairs[labels.clamp(min=0)], labels) if self.num_edges else labels

    def _drops_a_loop(self, labels: Tensor) -> bool:
        return bool(self.is_loop[labels[labels >= 0]].any())


def _unordered(ends: Tensor) -> Tensor:
    if ends.numel() == 0:
        return ends.new_zeros(0)
    return ends.min(0).values * (int(ends.max()) + 1) + ends.max(0).values


def _has_dropped_twin(codes: Tensor, labels: Tensor, kept: Tensor) -> Tensor:
    """Whether a column with the same code and another label was dropped, [columns].

    >>> codes, labels = torch.tensor([7, 7, 8, 8]), torch.tensor([0, 1, 2, 2])
    >>> _has_dropped_twin(codes, labels, torch.tensor([True, False, True, False]))
    tensor([ True, False, False, False])
    """
    code = codes.unique(return_inverse=True)[1]
    both = torch.stack([code, labels]).unique(dim=1, return_inverse=True)[1]
    dropped = [torch.bincount(group[~kept], minlength=len(group))[group] for group in (code, both)]
    return dropped[0] > dropped[1]


def indexed(call: AtenCall, tensor: Tensor, indices: list[Tensor | None]) -> Labels:
    """The labels of `tensor[indices]`: its own are gathered; the index adds the kinds it lacks (`x[row]`: a row per edge)."""
    used = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(used) != 1 or (used[0][1].dtype in _MASKS and used[0][1].dim() > 1):
        return _by_several(call, tensor, [index for _, index in used], starts_at=used[0][0])
    axis, index = used[0]
    if index.dtype in _MASKS:
        return _by_mask(call, tensor, axis, index)
    return _by_numbers(call, tensor, axis, index)


def _by_several(call: AtenCall, tensor: Tensor, indices: list[Tensor], starts_at: int) -> Labels:
    """`matrix[row, col]`: one entry per entry of the indices, if they name every axis."""
    if starts_at or len(indices) != tensor.dim() or any(index.dtype in _MASKS for index in indices):
        return {}
    return aligned([(index, call.mark(index)) for index in indices], max(index.dim() for index in indices))


def _by_mask(call: AtenCall, tensor: Tensor, axis: int, mask: Tensor) -> Labels:
    mark, positions = call.mark(mask), mask.bool()
    labels = _gathered(call, tensor, axis, positions, mark)
    for (_, kind), vector in mark.labels.items():
        if (axis, kind) not in labels:
            labels[(axis, kind)] = _lent(call.mark(tensor), kind, vector[positions])
    return labels


def _by_numbers(call: AtenCall, tensor: Tensor, axis: int, index: Tensor) -> Labels:
    mark, shift = call.mark(index), index.dim() - 1
    if index.dim() == 1 or tensor.dim() == 1 - index.dim():  # a single entry keeps its label: it may leave for Python
        labels = _gathered(call, tensor, axis, index.reshape(-1), mark)
    else:
        own = call.mark(tensor).labels
        labels = {(a + shift * (a > axis), kind): vector for (a, kind), vector in own.items() if a != axis}
    by_place = index.numel() <= tensor.size(axis)  # a selection of columns, not a look into a table of nodes
    for (a, kind), vector in mark.labels.items():
        if index.dim() and (axis + a, kind) not in labels:
            labels[(axis + a, kind)] = _lent(call.mark(tensor), kind, vector) if by_place else vector
    return labels


def _lent(mark: Mark, kind: str, vector: Tensor) -> Tensor:
    """The labels of an index, lent to entries that have none."""
    return doubted(vector) if kind == EDGE and mark.reach != CONSTANT else vector


def _gathered(call: AtenCall, tensor: Tensor, axis: int, positions: Tensor, mark: Mark) -> Labels:
    labels: Labels = {}
    for (a, kind), vector in call.mark(tensor).labels.items():
        if a != axis:
            labels[(a, kind)] = vector
        elif kind == EDGE and mark.edge_reach == CROSSED:
            labels[(a, kind)] = call.pick(tensor, axis, vector, positions)
        else:
            labels[(a, kind)] = vector[positions]
    return labels
