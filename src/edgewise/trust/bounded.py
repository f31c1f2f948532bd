"""Blocks of edges whose weights move between given bounds, for models that interval arithmetic can follow."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from edgewise.lowering.differences import Differences
from edgewise.problem import Problem
from edgewise.trust.at_one import AtOne
from edgewise.trust.moved import Slots
from edgewise.trust.plan import NotCertifiable, Plan
from edgewise.trust.spreading import Spread

_FIRST, _GROWTH = 16, 4
_TABLE = 2**22  # slots × nodes in a block
_COPIES_OF_A_NUMBER = 64  # both ends of change and slope, and what is made of them on the way
_ENOUGH = 2**27  # bytes; larger blocks are no faster


def follow(problem: Problem) -> AtOne:
    """The model in interval arithmetic, or `NotCertifiable` with the reason."""
    if problem.task != "node":
        raise NotCertifiable("task='graph': pooling is not followed, only models of nodes are")
    if problem.target.of != "logit":
        raise NotCertifiable(f"of={problem.target.of!r} is not piecewise linear in the outputs; of='logit' is")
    if problem.lowering is None:
        raise NotCertifiable("the model is not lowered (a layer or an operation of it is not known)")
    plan = Plan.of(problem.lowering.program)
    return AtOne(plan, Differences(problem.lowering, problem.index.to(problem.device), problem.target))


def spreads(
    at_one: AtOne,
    level: str,
    bounds: list[tuple[float, float]],
    memory: int,
    among: Callable[[Tensor], Tensor] | None = None,
) -> Iterator[Spread]:
    """All edges, or those that `among` keeps (at layer level in every call), each with all bounds, one edge after another."""
    slots = at_one.graph.slots(level, of_self=False)
    if among is not None:
        kept = among(slots.item)
        slots = replace(slots, item=slots.item[kept], call=slots.call[kept])
    low, high = (torch.tensor(ends, dtype=torch.double, device=slots.item.device) for ends in zip(*bounds, strict=True))
    width = max(at_one.value[operation.output].lo.size(1) for operation in at_one.plan.operations)
    most, size = max(_TABLE // (at_one.num_nodes * len(bounds)), 1), _FIRST
    begin = 0
    while begin < len(slots):
        size = min(size, most, len(slots) - begin)
        edge, call = (part[begin : begin + size].repeat_interleave(len(bounds)) for part in (slots.item, slots.call))
        spread = Spread(at_one, Slots(edge, call, low.repeat(size), high.repeat(size)))
        yield spread
        begin += size
        fits = int(min(memory, _ENOUGH) * size / max(spread.peak * width * _COPIES_OF_A_NUMBER * 8, 1))
        size = max(1, min(fits, size * _GROWTH))
