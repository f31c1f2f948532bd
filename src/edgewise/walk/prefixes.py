"""Walks under way."""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.walk.front import Front
from edgewise.walk.network import Network


@dataclass(frozen=True, eq=False)
class Prefixes:
    """Walks under way, all before the same call: whose they are, what they can reach at best, and where they went."""

    call: int
    front: Front
    target: Tensor
    bound: Tensor
    nodes: Tensor
    """`[P, L + 1]`; columns before `call + 1` are not filled yet."""

    def select(self, which: Tensor) -> "Prefixes":
        """Some of them."""
        front = self.front.select(which)
        return Prefixes(self.call, front, self.target[which], self.bound[which], self.nodes[which])

    def __len__(self) -> int:
        return len(self.target)


def starting(network: Network, front: Front, owner: Tensor) -> Prefixes:
    """Nothing but the explained nodes."""
    nodes = front.node.new_zeros(len(front), network.num_calls + 1)
    nodes[:, -1] = front.node
    bound = torch.full((len(front),), torch.inf, dtype=torch.double, device=nodes.device)
    return Prefixes(network.num_calls - 1, front, owner, bound, nodes)


def joined(parts: list[Prefixes]) -> Prefixes:
    """Those of several pieces, which nothing goes around yet."""
    fronts = [part.front for part in parts]
    front = Front(torch.cat([f.node for f in fronts]), torch.cat([f.summed for f in fronts]), None)
    columns = [torch.cat([getattr(part, name) for part in parts]) for name in ("target", "bound", "nodes")]
    return Prefixes(parts[0].call, front, *columns)
