"""Walks under way, read from the explained node back: `Front` is what the network needs, `Prefixes` what a search knows.

A prefix that has reached node v before call c has chosen the last nodes of a walk and none of the earlier ones. All that the
network has to know about it is a vector: the gradient of the explained number with respect to what v summed up in call c,
along the nodes that were chosen.

Example: the path 0 ─2→ 1 ─3→ 2 of `edgewise.examples.path_model`, two calls with one feature per node, node 2 explained.

    prefix (·, ·, 2)   before call 1, node 2, summed = [1]    the explained number is what node 2 summed up
    prefix (·, 1, 2)   before call 0, node 1, summed = [3]    the block of 1 → 2 in call 1 is [3]
    walk   (0, 1, 2)   3 · [2] · x₀ = 6 with x₀ = 1           the block of 0 → 1 in call 0 is [2]
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Front:
    """P prefixes that wait before the same call: the node each has reached, and its gradient there (float64)."""

    node: Tensor
    """`[P]`: the node that receives in the call."""
    summed: Tensor
    """`[P, out]`: the gradient with respect to what the node sums up in the call."""
    around: Tensor | None
    """The gradient that a residual carries around the call; None without a residual.

    Before a call ≥ 1 it is `[P, state]`, with respect to the node's state before the call. Before the first call it is `[P]`,
    multiplied with the features already: the walk ends there.
    """

    def select(self, which: Tensor) -> "Front":
        """Return the prefixes at some places, in that order."""
        around = None if self.around is None else self.around.index_select(0, which)
        return Front(self.node.index_select(0, which), self.summed.index_select(0, which), around)

    def __len__(self) -> int:
        return len(self.node)


def signed(front: Front, sign: str) -> Front:
    """Negate the gradients of a search for negative walks, so that the best walk is always the largest."""
    if sign != "negative":
        return front
    return Front(front.node, -front.summed, None if front.around is None else -front.around)


@dataclass(frozen=True, eq=False)
class Prefixes:
    """A front with what a search knows about each prefix: its target, its bound, and the nodes chosen so far."""

    call: int
    """The call before which all of them wait."""
    front: Front
    target: Tensor
    """`[P]`: the number of the target within its block."""
    bound: Tensor
    """`[P]`: no walk that continues the prefix comes before this number in the searched order."""
    nodes: Tensor
    """`[P, L + 1]`, source first; columns before `call + 1` are not filled yet."""

    def select(self, which: Tensor) -> "Prefixes":
        """Return the prefixes at some places, in that order."""
        front = self.front.select(which)
        return Prefixes(self.call, front, self.target[which], self.bound[which], self.nodes[which])

    def __len__(self) -> int:
        return len(self.target)


def starting(front: Front, owner: Tensor, num_calls: int) -> Prefixes:
    """The prefixes that a search starts from: nothing but the explained nodes, with bounds that exclude nothing.

    `owner` `[P]` is the target of each explained node; a graph task has one explained node per node of the graph.
    """
    nodes = front.node.new_zeros(len(front), num_calls + 1)
    nodes[:, -1] = front.node
    bound = torch.full((len(front),), torch.inf, dtype=torch.double, device=nodes.device)
    return Prefixes(num_calls - 1, front, owner, bound, nodes)


def joined(parts: list[Prefixes]) -> Prefixes:
    """Several pieces of one front as one; their gradients are those of states, so nothing goes around a call yet."""
    fronts = [part.front for part in parts]
    front = Front(torch.cat([f.node for f in fronts]), torch.cat([f.summed for f in fronts]), None)
    columns = [torch.cat([getattr(part, name) for part in parts]) for name in ("target", "bound", "nodes")]
    return Prefixes(parts[0].call, front, *columns)
