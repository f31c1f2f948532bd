"""How labels pass through single aten operations: a table from the name of an operation to its rule.

A rule is given the call and returns the labels of its result, or a list with the labels of each result. An operation that is
not in the table and not element by element loses all labels; a lost label is refused later, never guessed.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import torch
from torch import Tensor

from edgewise.model.axis_labels import AtenCall, add, aligned, blank, join, reshaped
from edgewise.model.column_selection import indexed
from edgewise.model.shadow import CONSTANT, EDGE, LOST, NODE, Labels, Mark

Rule: TypeAlias = Callable[[AtenCall], Labels | list[Labels]]


def is_integer(tensor: Tensor) -> bool:
    """Whether a tensor may hold numbers of nodes or columns."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)


def elementwise(call: AtenCall) -> Labels:
    """Each entry depends on the entries at the same place, after broadcasting."""
    result = call.outputs[0]
    labels = aligned(zip(call.inputs, call.marks, strict=True), result.dim())
    if labels and is_integer(result):
        return _without_strangers(call, labels, result)
    return labels


def _without_strangers(call: AtenCall, labels: Labels, result: Tensor) -> Labels:
    """Numbers that also depend on numbers of unknown columns have no owner."""
    for tensor, mark in zip(call.inputs, call.marks, strict=True):
        if mark.reach == CONSTANT or mark.has_edges or not is_integer(tensor):
            continue
        for axis, kind in labels:
            own_axis = axis - result.dim() + tensor.dim()
            if kind == EDGE and own_axis >= 0 and tensor.size(own_axis) > 1:
                labels[(axis, kind)] = torch.full_like(labels[(axis, kind)], LOST)
    return labels


def _unchanged(call: AtenCall) -> list[Labels]:
    """Entries stay where they are, though they may depend on all others (norms, softmax)."""
    return [call.own if result.dim() == call.first.dim() else {} for result in call.outputs]


def _filled(call: AtenCall) -> Labels:
    return call.own


def _copied(call: AtenCall) -> Labels:
    """`target.copy_(source)`: numbers get the owners of the source; rows of features stay whose they were."""
    source = call.argument("src")
    labels = aligned([(source, call.mark(source))], call.first.dim())
    fitting = {key: v for key, v in labels.items() if key[0] >= 0 and len(v) == call.first.size(key[0])}
    mark = call.mark(source)
    if call.first.is_floating_point() or (mark.reach == CONSTANT and not mark.of_nodes):
        return {**call.own, **fitting}
    return fitting


def _reshaped(call: AtenCall) -> Labels:
    return reshaped(call.first, call.own, call.outputs[0])


def _index(call: AtenCall) -> Labels:
    return indexed(call, call.first, call.argument("indices"))


def _index_select(call: AtenCall) -> Labels:
    return indexed(call, call.first, [None] * call.axis() + [call.argument("index")])


def _masked_select(call: AtenCall) -> Labels:
    return indexed(call, call.first, [call.argument("mask")]) if call.first.dim() == 1 else {}


def _embedding(call: AtenCall) -> Labels:
    return indexed(call, call.first, [call.argument("indices")])


def _index_put(call: AtenCall) -> Labels:
    """`target[index] = values`, along the first axis."""
    indices, values = call.argument("indices"), call.argument("values")
    if len(indices) != 1 or call.argument("accumulate", default=False) or indices[0].dim() != 1:
        return {}
    labels = {key: vector for key, vector in call.own.items() if key[0]}
    for kind in (EDGE, NODE):
        vector = _put(call, kind, indices[0], values)
        if vector is not None:
            labels[(0, kind)] = vector
    return labels


def _put(call: AtenCall, kind: str, index: Tensor, values: Tensor) -> Tensor | None:
    target, mark = call.first, call.mark(values)
    one_each = values.dim() in (0, target.dim())
    old, new = call.own.get((0, kind)), mark.labels.get((0, kind)) if one_each else None
    by_mask = call.mark(index).labels.get((0, kind)) if index.dtype == torch.bool else None
    if new is None and not (mark.reach and is_integer(target)):
        return join(old, by_mask)
    if old is None and new is None:
        return None
    vector = (blank(target, call.marks[0], target.size(0), kind) if old is None else old).clone()
    if new is None:
        vector[index] = LOST
    elif old is None:
        vector[index] = new
    else:
        vector[index] = join(vector[index], new.expand(len(vector[index])))
    return vector


def _scattered(call: AtenCall) -> Labels:
    """`scatter` and `gather` along one axis: the other axes stay."""
    axis = call.axis()
    labels: Labels = {}
    for tensor, mark in zip(call.inputs, call.marks, strict=True):
        if tensor.dim() == call.first.dim():
            for (a, kind), vector in mark.labels.items():
                if a != axis and len(vector) == call.outputs[0].size(a):
                    add(labels, (a, kind), vector)
    return labels


def _gather(call: AtenCall) -> Labels:
    index = call.argument("index")
    if index.dim() == 1:
        return indexed(call, call.first, [index])
    labels = _scattered(call)
    for (a, kind), vector in call.mark(index).labels.items():
        if a == call.axis():
            add(labels, (a, kind), vector)
    return labels


def _nonzero(call: AtenCall) -> Labels:
    if call.first.dim() != 1:
        return {}
    mask = call.first.bool()
    return {key: vector[mask] for key, vector in call.own.items()}


def _sorted(call: AtenCall) -> Labels:
    axis = call.axis(default=-1)
    order = call.outputs[-1]
    labels = {key: vector for key, vector in call.own.items() if key[0] != axis}
    if order.dim() == 1:
        labels.update({key: vector[order] for key, vector in call.own.items()})
    return labels


def _cat(call: AtenCall) -> Labels:
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


def _stack(call: AtenCall) -> Labels:
    new = call.axis(dim=call.outputs[0].dim())
    labels = aligned(zip(call.inputs, call.marks, strict=True), call.first.dim())
    return {(a + (a >= new), kind): vector for (a, kind), vector in labels.items()}


def _select(call: AtenCall) -> Labels:
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


def _unbind(call: AtenCall) -> list[Labels]:
    axis = call.axis()
    if call.first.dim() == 1:
        return [_element(call, at) for at in range(len(call.outputs))]
    labels = {(a - (a > axis), kind): vector for (a, kind), vector in call.own.items() if a != axis}
    return [labels for _ in call.outputs]


def _split(call: AtenCall) -> list[Labels]:
    axis, start, found = call.axis(), 0, []
    for result in call.outputs:
        found.append(_sliced(call, axis, slice(start, start + result.size(axis))))
        start += result.size(axis)
    return found


def _slice(call: AtenCall) -> Labels:
    return _sliced(call, call.axis(), slice(call.argument("start"), call.argument("end"), call.argument("step")))


def _sliced(call: AtenCall, axis: int, part: slice) -> Labels:
    if call.escaped and (axis, EDGE) in call.own:  # the numbers in the slice may have been computed from the edges
        positions = torch.arange(call.first.size(axis), device=call.first.device)[part]
        picked = call.pick(call.first, axis, call.own[(axis, EDGE)], positions)
        rest = {key: vector[part] if key[0] == axis else vector for key, vector in call.own.items()}
        return {**rest, (axis, EDGE): picked}
    return {key: vector[part] if key[0] == axis else vector for key, vector in call.own.items()}


def _flip(call: AtenCall) -> Labels:
    axes = call.axes("dims")
    return {key: vector.flip(0) if key[0] in axes else vector for key, vector in call.own.items()}


def _permuted(call: AtenCall) -> Labels:
    order = list(_new_order(call))
    return {(order.index(a), kind): vector for (a, kind), vector in call.own.items()}


def _new_order(call: AtenCall) -> Iterator[int]:
    dim = call.first.dim()
    if call.kind.name == "permute":
        return iter(call.axes("dims"))
    p, q = (0, dim - 1) if call.kind.name == "t" else (call.axis("dim0"), call.axis("dim1"))
    return (q if a == p else p if a == q else a for a in range(dim))


def _expanded(call: AtenCall) -> Labels:
    lead = call.outputs[0].dim() - call.first.dim()
    return {(a + lead, kind): vector for (a, kind), vector in call.own.items()}


def _repeated(call: AtenCall) -> Labels:
    times = call.argument("repeats")
    lead = len(times) - call.first.dim()
    return {(a + lead, kind): vector.repeat(times[a + lead]) for (a, kind), vector in call.own.items()}


def _product(call: AtenCall) -> Labels:
    """A matrix product has the rows of its left factor."""
    left = call.inputs[1] if call.kind.name in ("addmm", "baddbmm", "addmv") else call.first
    return {key: vector for key, vector in call.mark(left).labels.items() if key[0] < left.dim() - 1}


def _reduced(call: AtenCall) -> Labels:
    if "dim" not in call.kind.positions:
        return {}
    gone = call.axes("dim")
    kept = call.outputs[0].dim() == call.first.dim()
    shift = [0 if kept else sum(d < a for d in gone) for a in range(call.first.dim())]
    return {(a - shift[a], kind): vector for (a, kind), vector in call.own.items() if a not in gone}


def _padded(call: AtenCall) -> Labels:
    pad = call.argument("pad")  # (left, right) for the last axis, then for the one before it, and so on
    padded = {call.first.dim() - 1 - i // 2 for i, width in enumerate(pad) if width}
    return {key: vector for key, vector in call.own.items() if key[0] not in padded}


def _named(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


ELEMENT_NAMES = frozenset(
    "bernoulli floor_divide rsub celu prelu _prelu_kernel log_sigmoid_forward rrelu_with_noise masked_fill polar".split()
)
"""Element by element, though PyTorch does not say so."""

RULES: dict[str, Rule] = {
    **_named(_filled, "fill zero uniform normal random exponential isin bucketize"),
    **_named(_unchanged, "native_batch_norm native_layer_norm native_group_norm _native_batch_norm_legit cudnn_batch_norm"),
    **_named(_unchanged, "_native_batch_norm_legit_no_training _batch_norm_with_update _batch_norm_no_update"),
    **_named(_unchanged, "_softmax _log_softmax native_dropout cumsum cumprod logcumsumexp _fused_rms_norm"),
    **_named(_unchanged, "_thnn_fused_gru_cell _thnn_fused_lstm_cell"),
    **_named(_copied, "copy"),
    **_named(_reshaped, "_to_copy alias detach view _unsafe_view reshape unsqueeze squeeze contiguous _reshape_alias"),
    **_named(_reshaped, "_conj resolve_conj view_as"),
    **_named(_index, "index _unsafe_index"),
    **_named(_index_select, "index_select"),
    **_named(_masked_select, "masked_select"),
    **_named(_embedding, "embedding"),
    **_named(_index_put, "index_put _unsafe_index_put _index_put_impl"),
    **_named(_scattered, "scatter scatter_add scatter_reduce index_add index_copy index_fill index_reduce"),
    **_named(_gather, "gather"),
    **_named(_nonzero, "nonzero"),
    **_named(_sorted, "sort argsort topk"),
    **_named(_cat, "cat concat"),
    **_named(_stack, "stack"),
    **_named(_select, "select"),
    **_named(_unbind, "unbind"),
    **_named(_split, "split split_with_sizes chunk unsafe_split unsafe_split_with_sizes unsafe_chunk"),
    **_named(_slice, "slice"),
    **_named(_flip, "flip"),
    **_named(_permuted, "t transpose permute"),
    **_named(_expanded, "expand"),
    **_named(_repeated, "repeat"),
    **_named(_product, "mm bmm addmm baddbmm linear mv addmv"),
    **_named(_reduced, "sum mean amax amin max min any all prod argmax argmin logsumexp var std nansum median"),
    **_named(_reduced, "linalg_vector_norm norm var_mean std_mean"),
    **_named(_padded, "constant_pad_nd"),
}

CROSSING = frozenset(
    "sort argsort topk mm bmm addmm baddbmm linear mv addmv cumsum cumprod logcumsumexp _softmax _log_softmax scatter scatter_add"
    " scatter_reduce index_add index_copy index_fill index_reduce native_batch_norm native_layer_norm native_group_norm"
    " _native_batch_norm_legit cudnn_batch_norm _native_batch_norm_legit_no_training _batch_norm_with_update"
    " _batch_norm_no_update _fused_rms_norm _thnn_fused_gru_cell _thnn_fused_lstm_cell".split()
)
"""Operations that let an entry depend on entries of other owners, though it keeps its label."""
FACTORIES = frozenset("full scalar_tensor lift_fresh lift".split())
"""Operations that do not read the values of their inputs; so do `new_*` and `*_like`."""
