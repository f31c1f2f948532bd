"""What a sender of the second and last call can add to a margin, by all subsets of what it receives: exact for few slots.

In a network of two calls a sender's row depends on its own slots in the first call alone. So the least and the most that it can
add to the margin are found by trying: at most 2¹⁰ subsets each, once for the tree; of a box some of them are possible.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.counterfactuals.set_intervals import Boxes
from edgewise.counterfactuals.set_program import SetProgram
from edgewise.counterfactuals.set_steps import SetCall, SetMap
from edgewise.trust.interval_operations import Affine, Rectify

_MOST = 10
"""Slots of a sender whose subsets are all tried."""


@dataclass(frozen=True, eq=False)
class _Senders:
    """Senders with the same number of slots."""

    rows: Tensor
    """`[n]`"""
    unit: Tensor
    """`[n, slots]`"""
    gone: Tensor
    """`[subsets, slots]`: 1 where a slot is gone."""
    added: Tensor
    """`[n, subsets]`: what each adds to the margin, before the coefficients of the last call."""


class SenderTable:
    """All senders of the last call that have few slots, with what they add for every subset of them."""

    def __init__(self, groups: list[_Senders], rows: int) -> None:
        self._groups, self._rows = groups, rows

    @staticmethod
    def of(program: SetProgram) -> "SenderTable | None":
        """None: not a network of two calls with a single margin."""
        first, *between, last = program.steps
        maps = [step for step in between if isinstance(step, SetMap) and _is_plain(step)]
        if len(maps) != len(between) or not isinstance(first, SetCall) or not isinstance(last, SetCall):
            return None
        if first.sent is None or first.rest is None or last.matrix is None or len(last.matrix) != 1:
            return None
        groups, count = [], first.start.diff()
        for degree in count.unique().tolist():
            if degree <= _MOST:
                rows = (count == degree).nonzero().view(-1)
                slots = first.start[rows].view(-1, 1) + torch.arange(degree)  # [n, degree]
                gone = ((torch.arange(2**degree).view(-1, 1) >> torch.arange(degree)) & 1).double()
                table = first.rest[rows].unsqueeze(1) + (1 - gone) @ first.sent[slots]  # [n, subsets, width]
                for step in maps:
                    table = step.numbers([table])
                groups.append(_Senders(rows, first.unit[slots], gone, table @ last.matrix[0]))
        return SenderTable(groups, first.rows)

    def ends(self, boxes: Boxes) -> tuple[Tensor, Tensor]:
        """Least and most of each sender in each box, `[boxes, rows]`; ∓∞ where it has many slots."""
        low = torch.full((len(boxes), self._rows), -torch.inf, dtype=torch.double)
        high = -low
        for group in self._groups:
            silenced, kept, free = (
                part[:, group.unit].double() for part in (boxes.silenced, boxes.kept, boxes.free)
            )  # [boxes, n, slots]
            gone = group.gone.t()
            possible = (silenced.sum(dim=-1, keepdim=True) == silenced @ gone) & (kept @ gone == 0)
            possible &= free @ gone <= boxes.budget
            low[:, group.rows] = torch.where(possible, group.added, torch.inf).amin(dim=-1)
            high[:, group.rows] = torch.where(possible, group.added, -torch.inf).amax(dim=-1)
        return low, high


def _is_plain(step: SetMap) -> bool:
    """Whether a row-wise step reads one value and treats all rows alike."""
    if isinstance(step.operation, Rectify):
        return True
    return isinstance(step.operation, Affine) and (step.scale is None or step.scale.dim() < 2)
