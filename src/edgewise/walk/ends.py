"""Where walks end: the explained nodes, and the gradient of the explained number there."""

from collections.abc import Callable

import torch
from torch import Tensor

from edgewise.lowering.program import Rows
from edgewise.walk.calls import Calls
from edgewise.walk.front import Front
from edgewise.walk.running import Runner


def ends(calls: Calls, value: Callable[[Tensor], Tensor], nodes: Tensor | None) -> Front:
    """The explained nodes (graph tasks: None, every node), and ∂z there; `value` maps output rows to numbers."""
    call = calls.chain.num_calls - 1
    link, message, state = calls.chain.receiving[-1], calls.chain.messages[-1], calls.chain.states[-1]
    known = calls.recording.known
    everyone = torch.arange(calls.num_nodes, device=known[message.output].device) if nodes is None else nodes

    def pick(rows: Tensor) -> Tensor:
        return rows if nodes is None else rows.index_select(0, nodes)

    tracked: list[tuple[Tensor, Tensor]] = []

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
