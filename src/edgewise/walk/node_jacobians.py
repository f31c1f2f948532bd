"""What happens at nodes between calls, differentiated: from a state to what a call reads, from its sum to the next state.

Three places need it: between two calls (`node_maps`, `blocks_of_states`), at the features (`first_call`) and at the explained
numbers (`ends`).

Example: three nodes whose states have two numbers; call 0 sums up q = [[1, −2], [3, 4], [−5, 6]] and a ReLU follows. Its
Jacobian at every node is a diagonal, so one backward pass of `relu(q).sum()` gives them all, `[N, 2]`:
`RowMap(diagonal=[[1, 0], [1, 1], [0, 1]])`. With a linear map behind the ReLU, y = M relu(q), M `[out, 2]`, the Jacobians are
the matrices M · diag(…), and one backward pass for each column of y gives that row of all of them: `RowMap(matrices=…)`,
`[N, out, 2]`. With a residual, y = relu(q) + s, there is a second map, from the state s to y: the diagonal of ones.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from edgewise.program.ir import Rows
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.layers.attention import AttentionLayer
from edgewise.program.operations import is_element_wise
from edgewise.walk.attention_blocks import attention_products, has_closed_form
from edgewise.walk.block_builder import by_copies
from edgewise.walk.blocks import Blocks, FirstCall, RowMap
from edgewise.walk.calls import Calls
from edgewise.walk.chain import Link
from edgewise.walk.lrp import Runner
from edgewise.walk.prefixes import Front


def blocks_of_states(calls: Calls, call: int) -> Blocks:
    """The blocks of a call with respect to the senders' states, for call ≥ 1.

    Usually the state is what the call reads; otherwise the Jacobian in between becomes `Blocks.sending`.
    """
    plain, link = calls.plain_blocks(call), calls.chain.sending[call]
    if link is None:
        return plain
    state = calls.chain.states[call]
    assert state is not None
    (sending,) = _jacobians(calls, link, call, {state: calls.recording.known[state]})
    return Blocks(plain.geometry, plain.scale, plain.matrix, plain.root, plain.post, plain.dense, sending, plain.width)


def node_maps(calls: Calls, call: int) -> tuple[RowMap | None, RowMap | None]:
    """The Jacobians of the state before a call (≥ 1): with respect to what the call before it summed up, and to its state.

    None means the identity in the first place, and no residual in the second.
    """
    link, message, state = (
        calls.chain.receiving[call - 1],
        calls.chain.messages[call - 1],
        calls.chain.states[call - 1],
    )
    known = calls.recording.known
    leaves = {message.output: known[message.output]}
    if state is not None:
        leaves[state] = known[state]
    found = _jacobians(calls, link, call - 1, leaves, summed=message.output)
    if link.steps and found[0] is None:
        found[0] = RowMap(diagonal=torch.zeros_like(known[message.output]).double())
    return found[0], found[1] if len(found) > 1 else None


def _jacobians(
    calls: Calls, link: Link, call: int, start: dict[int, Tensor], summed: int | None = None
) -> list[RowMap | None]:
    """The Jacobians of a link's output with respect to the values it starts with, node by node.

    Args:
        calls: The calls, with their rule.
        link: The row-wise steps.
        call: The call whose γ the steps follow.
        start: The values `[N, d]` that the link starts with, by their numbers.
        summed: Which of them is a call's sum: under a rule it is q^γ that is differentiated.

    Returns:
        A map for each value of `start`, or None where the output does not depend on it (no steps at all: the identity).
    """
    if not link.steps and calls.rule.is_gradient:
        return [None for _ in start]
    runner = Runner(calls.rule, calls.rule.gamma(call), lambda source: source.tensor)
    with torch.enable_grad():
        values, leaves = {}, []
        for value, rows in start.items():
            if value == summed:
                values[value], leaf = calls.summed(call, rows)
            else:
                values[value] = leaf = rows.detach().clone().requires_grad_()
            leaves.append(leaf)
        output = runner.run(link, values)
        plain = all(is_element_wise(step.function) for step in link.steps)
        return _maps(output, leaves, element_wise=plain)


def _maps(output: Tensor, leaves: list[Tensor], *, element_wise: bool) -> list[RowMap | None]:
    """∂output/∂leaf at every node, for output `[N, out]` and leaves `[N, in]`.

    Rows do not mix, so a sum over the nodes separates them: one backward pass for element-wise steps, otherwise `out` of them.
    """
    if element_wise:
        found = torch.autograd.grad(output.sum(), leaves, allow_unused=True)
        return [None if g is None else RowMap(diagonal=g.double()) for g in found]
    columns = [
        torch.autograd.grad(column.sum(), leaves, retain_graph=True, allow_unused=True) for column in output.unbind(1)
    ]
    maps: list[RowMap | None] = []
    for of_leaf in zip(*columns, strict=True):  # `out` times [N, in] or None
        known = [g for g in of_leaf if g is not None]
        full = [torch.zeros_like(known[0]) if g is None else g for g in of_leaf] if known else []
        maps.append(RowMap(matrices=torch.stack(full, dim=1).double()) if full else None)
    return maps


def first_call(calls: Calls) -> FirstCall:
    """The call that reads the features: never its blocks, which may be wide, only block · features.

    In `edgewise.examples.triangle_model`, x = (1, 0, 1), W = 2 and root 1: `sent` = x · Wᵀ = (2, 0, 2), `root` = (1, 0, 1).
    """
    recording, message = calls.recording, calls.chain.messages[0]
    tangent, geometry = recording.tangent, calls.geometry(0)
    dense_attention = isinstance(message.layer, AttentionLayer) and calls.attention != "fixed"
    if calls.rule.is_gradient and (dense_attention or not _is_factored(message.layer)):
        products = attention_products if has_closed_form(message.layer) else by_copies
        along = products(message.layer, geometry, recording.table(message), recording.hop(0), tangent)
        return FirstCall(geometry, None, dense=along, skip=_skip(calls))
    plain = calls.plain_blocks(0)
    start = tangent.double()
    sent = start if plain.matrix is None else start @ plain.matrix.t()
    root = None if plain.root is None else start @ plain.root.t()
    return FirstCall(geometry, plain.scale, sent, root, plain.post, skip=_skip(calls))


def _skip(calls: Calls) -> Tensor | None:
    """`[N, state]`: what residuals carry from the features into the state after the first call; None without residuals.

    Dual numbers follow the link behind the call: its sum is held, what depends on the features moves along them.
    """
    link = calls.chain.receiving[0]
    sources = [source for step in link.steps for source in step.sources]
    if calls.chain.num_calls == 1 or all(calls.along_features(source) is None for source in sources):
        return None
    message = calls.chain.messages[0]
    with forward_ad.dual_level():
        runner = Runner(calls.rule, calls.rule.gamma(0), partial(_dual, calls))
        values = {message.output: calls.summed(0, calls.recording.known[message.output])[0]}
        found = forward_ad.unpack_dual(runner.run(link, values)).tangent
    return None if found is None else found.detach().double()


def _dual(calls: Calls, source: Rows) -> Tensor:
    """A constant as a dual number along the features, if it depends on them."""
    along = calls.along_features(source)
    return source.tensor if along is None else forward_ad.make_dual(source.tensor.detach(), along)


def _is_factored(layer: Any) -> bool:
    """Whether `block_builder` can give the layer's blocks by factors."""
    return isinstance(layer, (AffineLayer, AttentionLayer))


def ends(calls: Calls, value: Callable[[Tensor], Tensor], nodes: Tensor | None) -> Front:
    """Where walks end: the explained nodes, with the gradient of the explained number at what they summed up.

    Args:
        calls: The calls.
        value: From output rows to the explained numbers, `[rows, classes]` → `[rows]`.
        nodes: `[T]`, the explained nodes; None in graph tasks, where a walk may end at any node.

    Returns:
        The front before the last call: `summed` is ∂z with respect to the node's sum. With a residual around the last call,
        `around` is ∂z with respect to the state before it; in a model of one call, ∂z times the features' change.
    """
    call = calls.chain.num_calls - 1
    link, message, state = calls.chain.receiving[-1], calls.chain.messages[-1], calls.chain.states[-1]
    known = calls.recording.known
    everyone = torch.arange(calls.num_nodes, device=known[message.output].device) if nodes is None else nodes

    def pick(rows: Tensor) -> Tensor:  # [N, d] → [T, d]
        return rows if nodes is None else rows.index_select(0, nodes)

    tracked: list[tuple[Tensor, Tensor]] = []  # rows that a residual reads from the features, and their changes

    def constant(source: Rows) -> Tensor:
        rows = pick(source.tensor)
        along = calls.along_features(source) if calls.chain.num_calls == 1 else None
        if along is not None:
            rows = rows.detach().clone().requires_grad_()
            tracked.append((rows, pick(along)))
        return rows

    with torch.enable_grad():
        summed, leaf = calls.summed(call, pick(known[message.output]), nodes)
        values = {message.output: summed}
        around = None
        if state is not None and state != message.output:
            values[state] = around = pick(known[state]).detach().clone().requires_grad_()
        rows = Runner(calls.rule, calls.rule.gamma(call), constant).run(link, values)
        inputs = [leaf, *([] if around is None else [around]), *(rows for rows, _ in tracked)]
        found = torch.autograd.grad(value(rows).sum(), inputs, allow_unused=True)
    gradient = torch.zeros_like(leaf) if found[0] is None else found[0]
    beside: Tensor | None = None
    if around is not None and found[1] is not None:
        beside = found[1].double()
    for (_, tangent), of_rows in zip(tracked, found[1:], strict=False):
        if of_rows is not None:
            product = (of_rows.double() * tangent.double()).flatten(1).sum(dim=1)
            beside = product if beside is None else beside + product
    return Front(everyone, gradient.double(), beside)
