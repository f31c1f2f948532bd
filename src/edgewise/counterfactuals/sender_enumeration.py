"""What a sender of the second and last call can add to a margin, by all subsets of what it receives: exact for few slots.

In a network of two calls a sender's row depends on its own slots in the first call alone. So the least and the most that it can
add to the margin are found by trying: at most 2¹⁰ subsets each, all senders of one degree in one pass.
"""

import torch
from torch import Tensor

from edgewise.counterfactuals.set_intervals import Boxes
from edgewise.counterfactuals.set_program import SetProgram
from edgewise.counterfactuals.set_steps import SetCall, SetMap
from edgewise.trust.interval_operations import Affine, Rectify

_MOST = 10
"""Slots of a sender whose subsets are all tried."""


def sender_ends(program: SetProgram, root: Boxes) -> tuple[Tensor, Tensor] | None:
    """Least and most of each sender, `[rows]` each: ∓∞ where it has too many slots; None: not a network of two calls.

    Units that are kept in the root stay, and at most its budget goes.
    """
    first, *between, last = program.steps
    maps = [step for step in between if isinstance(step, SetMap) and _is_plain(step)]
    if len(maps) != len(between) or not isinstance(first, SetCall) or not isinstance(last, SetCall):
        return None
    if first.sent is None or first.rest is None or last.matrix is None:
        return None
    low = torch.full((first.rows,), -torch.inf, dtype=torch.double)
    high, count = -low, first.start.diff()
    for degree in count.unique().tolist():
        if degree > _MOST:
            continue
        heads = (count == degree).nonzero().view(-1)
        slots = first.start[heads].view(-1, 1) + torch.arange(degree)  # [heads, degree]
        gone = (torch.arange(2**degree).view(-1, 1) >> torch.arange(degree)) & 1 == 1  # [subsets, degree]
        gone = gone[gone.sum(dim=1) <= root.budget]
        rows = first.rest[heads].unsqueeze(1) + (~gone).double() @ first.sent[slots]  # [heads, subsets, width]
        for step in maps:
            rows = step.numbers([rows])
        added = rows @ last.matrix[0]
        free = root.free[0, first.unit[slots]]  # [heads, degree]
        possible = (~gone | free.unsqueeze(1)).all(dim=2)
        low[heads] = torch.where(possible, added, torch.inf).amin(dim=1)
        high[heads] = torch.where(possible, added, -torch.inf).amax(dim=1)
    return low, high


def _is_plain(step: SetMap) -> bool:
    """Whether a row-wise step reads one value and treats all rows alike."""
    if isinstance(step.operation, Rectify):
        return True
    return isinstance(step.operation, Affine) and (step.scale is None or step.scale.dim() < 2)
