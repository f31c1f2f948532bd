"""What happens at nodes between calls, differentiated: from a state to what a call reads, from its sum to the next state."""

import torch
from torch import Tensor

from edgewise.lowering.row_wise import is_element_wise
from edgewise.walk.blocks import Blocks
from edgewise.walk.calls import Calls
from edgewise.walk.chain import Link
from edgewise.walk.row_maps import RowMap
from edgewise.walk.running import Runner


def blocks_of_states(calls: Calls, call: int) -> Blocks:
    """The blocks of a call from the senders' states, for call ≥ 1."""
    plain, link = calls.plain_blocks(call), calls.chain.sending[call]
    if link is None:
        return plain
    state = calls.chain.states[call]
    assert state is not None
    (sending,) = _jacobians(calls, link, call, {state: calls.recording.known[state]})
    return Blocks(plain.geometry, plain.scale, plain.matrix, plain.root, plain.post, plain.dense, sending, plain.width)


def node_maps(calls: Calls, call: int) -> tuple[RowMap | None, RowMap | None]:
    """What leads to the state before a call."""
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
    """Of a link's output with respect to the values it starts with; None: the identity, or (not the first) nothing."""
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
    """∂output/∂leaf at every row."""
    if element_wise:
        found = torch.autograd.grad(output.sum(), leaves, allow_unused=True)
        return [None if g is None else RowMap(diagonal=g.double()) for g in found]
    columns = [
        torch.autograd.grad(column.sum(), leaves, retain_graph=True, allow_unused=True) for column in output.unbind(1)
    ]
    maps: list[RowMap | None] = []
    for of_leaf in zip(*columns, strict=True):
        known = [g for g in of_leaf if g is not None]
        full = [torch.zeros_like(known[0]) if g is None else g for g in of_leaf] if known else []
        maps.append(RowMap(matrices=torch.stack(full, dim=1).double()) if full else None)
    return maps
