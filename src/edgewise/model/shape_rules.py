"""How labels pass through operations that only move entries: views, slices, joins of tensors, changes of shape."""

from collections.abc import Iterator

import torch
from torch import Tensor

from edgewise.model.axis_labels import AtenCall, add, aligned, blank, reshaped
from edgewise.model.shadow import CONSTANT, EDGE, LOST, Labels, Mark


def reshape(call: AtenCall) -> Labels:
    """The same entries in another shape."""
    return reshaped(call.first, call.own, call.outputs[0])


def concatenate(call: AtenCall) -> Labels:
    """Labels are concatenated with the data; a part without labels is fresh or lost."""
    dim = call.outputs[0].dim()
    axis = call.axis(dim=dim)
    parts = [(t, mark) for t, mark in zip(call.inputs, call.marks, strict=True) if t.dim() == dim]
    labels: Labels = {}
    for key in {key: None for _, mark in parts for key in mark.labels}:
        if key[0] == axis:
            labels[key] = torch.cat([_part(t, mark, key) for t, mark in parts])
        else:
            for _, mark in parts:
                add(labels, key, mark.labels.get(key))
    return labels


def _part(tensor: Tensor, mark: Mark, key: tuple[int, str]) -> Tensor:
    vector = mark.labels.get(key)
    return blank(tensor, mark, tensor.size(key[0]), key[1]) if vector is None else vector


def stack(call: AtenCall) -> Labels:
    """A new axis; along the others the parts must agree."""
    new = call.axis(dim=call.outputs[0].dim())
    labels = aligned(zip(call.inputs, call.marks, strict=True), call.first.dim())
    return {(a + (a >= new), kind): vector for (a, kind), vector in labels.items()}


def select(call: AtenCall) -> Labels:
    """One entry along an axis. A single number keeps a label, so that its way to Python is noticed."""
    axis, at = call.axis(), call.argument("index")
    if call.first.dim() == 1:
        return _element(call, int(at))
    return {(a - (a > axis), kind): vector for (a, kind), vector in call.own.items() if a != axis}


def _element(call: AtenCall, at: int) -> Labels:
    if not call.own and call.marks[0].reach != CONSTANT:
        return {(0, EDGE): torch.tensor([LOST], device=call.first.device)}
    at %= max(call.first.size(0), 1)
    return {(0, kind): vector[at : at + 1] for (_, kind), vector in call.own.items()}


def unbind(call: AtenCall) -> list[Labels]:
    """All entries along an axis, one by one."""
    axis = call.axis()
    if call.first.dim() == 1:
        return [_element(call, at) for at in range(len(call.outputs))]
    labels = {(a - (a > axis), kind): vector for (a, kind), vector in call.own.items() if a != axis}
    return [labels for _ in call.outputs]


def split(call: AtenCall) -> list[Labels]:
    """Parts along an axis."""
    axis, start, found = call.axis(), 0, []
    for result in call.outputs:
        found.append(_sliced(call, axis, slice(start, start + result.size(axis))))
        start += result.size(axis)
    return found


def slice_part(call: AtenCall) -> Labels:
    """A part along an axis."""
    return _sliced(call, call.axis(), slice(call.argument("start"), call.argument("end"), call.argument("step")))


def _sliced(call: AtenCall, axis: int, part: slice) -> Labels:
    labels = {key: vector[part] if key[0] == axis else vector for key, vector in call.own.items()}
    if call.escaped and (axis, EDGE) in call.own:  # the numbers in the slice may have been computed from the edges
        positions = torch.arange(call.first.size(axis), device=call.first.device)[part]
        labels[(axis, EDGE)] = call.pick(call.first, axis, call.own[(axis, EDGE)], positions)
    return labels


def flip(call: AtenCall) -> Labels:
    """Axes in reverse order."""
    axes = call.axes("dims")
    return {key: vector.flip(0) if key[0] in axes else vector for key, vector in call.own.items()}


def permute(call: AtenCall) -> Labels:
    """Axes in another order."""
    order = list(_new_order(call))
    return {(order.index(a), kind): vector for (a, kind), vector in call.own.items()}


def _new_order(call: AtenCall) -> Iterator[int]:
    dim = call.first.dim()
    if call.kind.name == "permute":
        return iter(call.axes("dims"))
    p, q = (0, dim - 1) if call.kind.name == "t" else (call.axis("dim0"), call.axis("dim1"))
    return (q if a == p else p if a == q else a for a in range(dim))


def expand(call: AtenCall) -> Labels:
    """New axes on the left; a repeated entry keeps no label."""
    lead = call.outputs[0].dim() - call.first.dim()
    return {(a + lead, kind): vector for (a, kind), vector in call.own.items()}


def repeat(call: AtenCall) -> Labels:
    """Copies of the whole, along any axis."""
    times = call.argument("repeats")
    lead = len(times) - call.first.dim()
    return {(a + lead, kind): vector.repeat(times[a + lead]) for (a, kind), vector in call.own.items()}


def pad(call: AtenCall) -> Labels:
    """Entries around the edges; a padded axis loses its labels."""
    widths = call.argument("pad")  # (left, right) for the last axis, then for the one before it, and so on
    padded = {call.first.dim() - 1 - i // 2 for i, width in enumerate(widths) if width}
    return {key: vector for key, vector in call.own.items() if key[0] not in padded}
