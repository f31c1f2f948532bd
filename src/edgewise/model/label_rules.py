"""How labels pass through single aten operations: a table from the name of an operation to its rule.

A rule is given the call and returns the labels of its result, or a list with the labels of each result. An operation that is
not in the table and not element by element loses all labels; a lost label is refused later, never guessed.
"""

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import torch
from torch import Tensor

from edgewise.model import shape_rules
from edgewise.model.axis_labels import AtenCall, OperationKind, add, aligned, blank, doubted, join, joined
from edgewise.model.column_selection import indexed
from edgewise.model.shadow import CONSTANT, EDGE, LOST, NODE, Labels

Rule: TypeAlias = Callable[[AtenCall], Labels | list[Labels]]


def is_integer(tensor: Tensor) -> bool:
    """Whether a tensor may hold numbers of nodes or columns."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)


def elementwise(call: AtenCall) -> Labels:
    """Each entry depends on the entries at the same place, after broadcasting."""
    result = call.outputs[0]
    labels = aligned(zip(call.inputs, call.marks, strict=True), result.dim())
    if labels:
        for tensor, mark in zip(call.inputs, call.marks, strict=True):
            if mark.reach != CONSTANT and tensor.dtype is not torch.bool and not mark.has_edges:
                _doubt(labels, tensor, result)
    return labels


def _doubt(labels: Labels, stranger: Tensor, result: Tensor) -> None:
    """Data of unknown columns went in: numbers have no owner any more, weights of fresh edges may have one."""
    for axis, kind in labels:
        own_axis = axis - result.dim() + stranger.dim()
        if kind == EDGE and own_axis >= 0 and stranger.size(own_axis) > 1:
            vector = labels[(axis, kind)]
            whole = is_integer(result) and is_integer(stranger)
            labels[(axis, kind)] = torch.full_like(vector, LOST) if whole else doubted(vector)


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
        vector[index] = joined(vector[index], new.expand(len(vector[index])))
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


def _product(call: AtenCall) -> Labels:
    """A matrix product has the rows of its left factor, and the columns of its right one."""
    first = 1 if call.kind.name in ("addmm", "baddbmm", "addmv") else 0
    left, right = call.inputs[first : first + 2]
    labels = {key: vector for key, vector in call.mark(left).labels.items() if key[0] < left.dim() - 1}
    if right.dim() > 1 and call.kind.name != "linear":
        column, last = right.dim() - 1, call.outputs[0].dim() - 1
        labels.update({(last, kind): vector for (a, kind), vector in call.mark(right).labels.items() if a == column})
    return labels


def _reduced(call: AtenCall) -> Labels:
    if "dim" not in call.kind.positions:
        return {}
    gone = call.axes("dim")
    kept = call.outputs[0].dim() == call.first.dim()
    shift = [0 if kept else sum(d < a for d in gone) for a in range(call.first.dim())]
    return {(a - shift[a], kind): vector for (a, kind), vector in call.own.items() if a not in gone}


def _named(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


ELEMENT_NAMES = frozenset(
    (
        *("bernoulli", "floor_divide", "rsub", "celu", "prelu", "_prelu_kernel", "masked_fill", "polar"),
        *("log_sigmoid_forward", "rrelu_with_noise"),
    )
)
"""Element by element, though PyTorch does not say so."""

RULES: dict[str, Rule] = {
    **_named(_filled, "fill zero uniform normal random exponential isin bucketize"),
    **_named(
        _unchanged, "native_batch_norm native_layer_norm native_group_norm _native_batch_norm_legit cudnn_batch_norm"
    ),
    **_named(_unchanged, "_native_batch_norm_legit_no_training _batch_norm_with_update _batch_norm_no_update"),
    **_named(_unchanged, "_softmax _log_softmax native_dropout cumsum cumprod logcumsumexp _fused_rms_norm"),
    **_named(_unchanged, "_thnn_fused_gru_cell _thnn_fused_lstm_cell"),
    **_named(_copied, "copy"),
    **_named(
        shape_rules.reshape,
        "_to_copy alias detach view _unsafe_view reshape unsqueeze squeeze contiguous _reshape_alias",
    ),
    **_named(shape_rules.reshape, "_conj resolve_conj view_as"),
    **_named(_index, "index _unsafe_index"),
    **_named(_index_select, "index_select"),
    **_named(_masked_select, "masked_select"),
    **_named(_embedding, "embedding"),
    **_named(_index_put, "index_put _unsafe_index_put _index_put_impl"),
    **_named(_scattered, "scatter scatter_add scatter_reduce index_add index_copy index_fill index_reduce"),
    **_named(_gather, "gather"),
    **_named(_nonzero, "nonzero"),
    **_named(_sorted, "sort argsort topk"),
    **_named(shape_rules.concatenate, "cat concat"),
    **_named(shape_rules.stack, "stack"),
    **_named(shape_rules.select, "select"),
    **_named(shape_rules.unbind, "unbind"),
    **_named(shape_rules.split, "split split_with_sizes chunk unsafe_split unsafe_split_with_sizes unsafe_chunk"),
    **_named(shape_rules.slice_part, "slice"),
    **_named(shape_rules.flip, "flip"),
    **_named(shape_rules.permute, "t transpose permute"),
    **_named(shape_rules.expand, "expand"),
    **_named(shape_rules.repeat, "repeat"),
    **_named(_product, "mm bmm addmm baddbmm linear mv addmv"),
    **_named(_reduced, "sum mean amax amin max min any all prod argmax argmin logsumexp var std nansum median"),
    **_named(_reduced, "linalg_vector_norm norm var_mean std_mean"),
    **_named(shape_rules.pad, "constant_pad_nd"),
}

CROSSING = frozenset(name for name, rule in RULES.items() if rule in (_sorted, _product, _scattered, _unchanged))
"""Operations that let an entry depend on entries of other owners, though it keeps its label."""
_FACTORIES = frozenset(("full", "scalar_tensor", "lift_fresh", "lift"))


@cache
def rule_of(kind: OperationKind) -> Rule | None:
    """The rule of an operation, `None` if it loses all labels.

    >>> from edgewise.model.axis_labels import operation_kind
    >>> rule_of(operation_kind(torch.ops.aten.add.Tensor)) is elementwise
    True
    """
    whole = elementwise if kind.elementwise or kind.name in ELEMENT_NAMES else None
    return RULES.get(kind.name, whole)


@cache
def makes_constants(kind: OperationKind) -> bool:
    """Whether an operation does not read the values of its inputs.

    >>> from edgewise.model.axis_labels import operation_kind
    >>> makes_constants(operation_kind(torch.ops.aten.zeros_like.default))
    True
    """
    return kind.name in _FACTORIES or kind.name.startswith("new_") or kind.name.endswith("_like")
