"""Prefixes of walks, read from the explained node back, as the network sees them."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Front:
    """Prefixes that wait before the same call: the node they reached, and their gradients there."""

    node: Tensor
    summed: Tensor
    """`[P, out]`: with respect to what the node summed up."""
    around: Tensor | None
    """`[P, state]`: with respect to the node's state before the call, through a residual; before the first call `[P]`: times
    the features."""

    def select(self, which: Tensor) -> "Front":
        """Some of them."""
        around = None if self.around is None else self.around.index_select(0, which)
        return Front(self.node.index_select(0, which), self.summed.index_select(0, which), around)

    def __len__(self) -> int:
        return len(self.node)


def signed(front: Front, sign: str) -> Front:
    """For negative walks everything is negated, so that the best is always the largest."""
    if sign != "negative":
        return front
    return Front(front.node, -front.summed, None if front.around is None else -front.around)
