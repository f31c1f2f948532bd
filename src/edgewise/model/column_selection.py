"""Selections among the columns of the given graph, and the labels of `tensor[index]`.

A selection that only looks at each column's own data (a mask of an attribute, a relation) is a selection and no more. One
that looked at other columns (a sort and "unlike the one before", `unique`) may have kept one column for several: then
a kept column with a dropped twin has several owners.
"""

from functools import cached_property

import torch
from torch import Tensor

from edgewise.model.axis_labels import AtenCall, add, aligned
from edgewise.model.shadow import CROSSED, EDGE, FRESH, MIXED, Labels, Mark

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
        picked = labels[positions]
        lost = self._count(labels) > self._count(picked)
        if not bool(lost.any()) and len(picked) >= len(labels):
            return picked
        self.dropped = True
        owned = picked >= 0
        twins = torch.isin(self.pairs, self.pairs[lost])[picked.clamp(min=0)] & owned if self.num_edges else ~owned
        if tensor.dim() == 2 and axis == 1 and tensor.size(0) == 2 and not tensor.is_floating_point():
            twins |= _twins_by_number(tensor, labels, positions, owned)
        elif bool(self.is_loop[lost].any()):  # the loop that was left out and one made anew may be one
            twins |= picked == FRESH
        return torch.where(twins, MIXED, picked)

    def _count(self, labels: Tensor) -> Tensor:
        return torch.bincount(labels[labels >= 0], minlength=self.num_edges)


def _unordered(ends: Tensor) -> Tensor:
    if ends.numel() == 0:
        return ends.new_zeros(0)
    return ends.min(0).values * (int(ends.max()) + 1) + ends.max(0).values


def _twins_by_number(tensor: Tensor, labels: Tensor, positions: Tensor, owned: Tensor) -> Tensor:
    """Which kept columns have the same ends as a dropped one, as the ends are numbered now, [selected]."""
    kept = torch.zeros(tensor.size(1), dtype=torch.bool, device=tensor.device)
    kept[positions] = True
    now = _unordered(tensor)
    selected = now[positions]
    return torch.isin(selected, now[~kept & (labels >= 0)]) | (owned & torch.isin(selected, now[~kept]))


def indexed(call: AtenCall, tensor: Tensor, indices: list[Tensor | None]) -> Labels:
    """The labels of `tensor[indices]`: its own are gathered, and the index brings its own (`x[row]` has a row per edge)."""
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
            labels[(axis, kind)] = vector[positions]
    return labels


def _by_numbers(call: AtenCall, tensor: Tensor, axis: int, index: Tensor) -> Labels:
    mark, shift = call.mark(index), index.dim() - 1
    if index.dim() == 1 or tensor.dim() == 1 - index.dim():  # a single entry keeps its label: it may leave for Python
        labels = _gathered(call, tensor, axis, index.reshape(-1), mark)
    else:
        own = call.mark(tensor).labels
        labels = {(a + shift * (a > axis), kind): vector for (a, kind), vector in own.items() if a != axis}
    for (a, kind), vector in mark.labels.items():
        if index.dim():
            add(labels, (axis + a, kind), vector)
    return labels


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
