"""What a pass over edges whose weights vary works on, and what it leaves behind: slots, slopes, and notes for the way back."""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.program.intervals import Interval


@dataclass(frozen=True, eq=False)
class VariedEdges:
    """The slots of a block: edges, and between which numbers their weights lie. All `[slots]`."""

    edge: Tensor
    """The column of `edge_index`."""
    call: Tensor
    """The call in which the weight is varied; −1 for all of them."""
    low: Tensor
    high: Tensor

    def __len__(self) -> int:
        return len(self.edge)

    def active(self, call: int) -> Tensor:
        """`[slots]`: whether a slot's weight is varied in a call."""
        return (self.call == call) | (self.call < 0)


@dataclass(frozen=True, eq=False)
class Slopes:
    """Bounds of ∂z/∂ω_e, for the (slot, target) pairs where they are not both 0. All `[n]`."""

    position: Tensor
    """The target, a position in the question's index."""
    slot: Tensor
    bounds: Interval


@dataclass(frozen=True, eq=False)
class Received:
    """What a call leaves for the backward bounds: which pairs had moved before it, and the messages of the slots' own edges."""

    before: Tensor
    """`[pairs]`: keys slot · N + node of the pairs that had moved."""
    slot: Tensor
    """`[n]`: the slots whose own edge sends a message in this call."""
    message: Interval
    """`[n, width]`: those messages."""


@dataclass(frozen=True, eq=False)
class Bent:
    """What a rectifier leaves for the backward bounds: where it is surely on, or surely off, for all weights of the slot."""

    key: Tensor
    """`[pairs]`: slot · N + node."""
    on: Tensor
    """`[pairs, width]`."""
    off: Tensor
    """`[pairs, width]`."""


def find(keys: Tensor, wanted: Tensor) -> Tensor:
    """The place of each wanted key among `keys`; −1 if it is not among them.

    >>> find(torch.tensor([7, 3, 5]), torch.tensor([5, 4, 7]))
    tensor([ 2, -1,  0])
    """
    if len(keys) == 0:
        return torch.full_like(wanted, -1)
    ordered, order = keys.sort()
    place = torch.searchsorted(ordered, wanted).clamp(max=len(keys) - 1)
    return torch.where(ordered[place] == wanted, order[place], -1)


@dataclass(frozen=True, eq=False)
class Halt:
    """What a call that is not gone back through leaves for the backward bounds: the slopes of what it made."""

    key: Tensor
    """`[pairs]`: slot · N + node."""
    slope: Interval
    """`[pairs, width]`."""


@dataclass(frozen=True, eq=False)
class PooledPairs:
    """What a pool leaves for the backward bounds: which pairs had moved, and how much of each column may come from them."""

    key: Tensor
    """`[pairs]`: slot · N + node."""
    share: tuple[Tensor, Tensor] | None
    """`[pairs, width]` each: the least and the greatest derivative; None for a sum, where it is 1."""
