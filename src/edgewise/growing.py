"""Edges that hang together: grown from the target, the strongest that can be attached first."""

import torch
from torch import Tensor

from edgewise.entries import strongest
from edgewise.explanation import Explanation


class Growing:
    """Entries of one explanation that may be taken, in units (an edge, or both of its directions) that come together.

    An edge hangs on the target if its receiver does: so its message can arrive. At layer level it must arrive in time: the
    receiver hangs on the target from a later layer on (a node may keep what it heard). Of a whole graph there is no target
    node: the strongest edge is the start, and an edge hangs on it by either end.
    """

    def __init__(self, why: Explanation, strength: Tensor, able: Tensor, together: Tensor) -> None:
        self._shape, width = able.shape, able.size(-1)
        self._place = able.reshape(-1).nonzero().view(-1)
        column, layer = self._place % max(width, 1), self._place // max(width, 1)
        self._unit = (layer * max(width, 1) + together[column]).unique(return_inverse=True)[1]
        self._strength = strength.reshape(-1)[self._place]
        against = why.settings.get("flow") == "target_to_source"
        self._sender, self._receiver = (why.edge_index.flip(0) if against else why.edge_index)[:, column]
        layered = why.level == "layer"
        self._arrives = layer + 1 if layered else torch.ones_like(layer)
        self._leaves = layer if layered else torch.ones_like(layer)
        self._of_graph = why.settings.get("task") == "graph"
        self._index, self._num_nodes, self._last = why.index, why.num_nodes, self._shape[0] if layered else 1

    def strongest(self, k: int) -> Tensor:
        """The k strongest units, wherever they are."""
        strength = self._unit_strength()
        best = strongest(torch.zeros(len(strength), dtype=torch.long, device=strength.device), strength, k)
        return self._mask(torch.isin(self._unit, best))

    def attached_strongest(self, k: int) -> Tensor:
        """k units, each the strongest that hangs on the target when it is taken; fewer if no more does."""
        taken, hangs = torch.zeros_like(self._place, dtype=torch.bool), self._start()
        for _ in range(k):
            open_ = self._attached(hangs) & ~taken
            if not bool(open_.any()):
                break
            best = torch.where(open_, self._strength, -torch.inf).argmax()
            hangs = self._take(self._unit == self._unit[best], taken, hangs)
        return self._mask(taken)

    def attached(self) -> Tensor:
        """Every unit that hangs on the target through others."""
        taken, hangs = torch.zeros_like(self._place, dtype=torch.bool), self._start()
        if self._of_graph and len(self._place):
            hangs = self._take(self._unit == self._unit[self._strength.argmax()], taken, hangs)
        while True:
            new = self._attached(hangs) & ~taken
            if not bool(new.any()):
                return self._mask(taken)
            hangs = self._take(torch.isin(self._unit, self._unit[new]), taken, hangs)

    def _start(self) -> Tensor:
        """`[N]`: the latest layer in which a node hangs on the target; 0 if it does not."""
        hangs = torch.zeros(self._num_nodes, dtype=torch.long, device=self._place.device)
        if not self._of_graph:
            hangs[self._index] = self._last
        return hangs

    def _attached(self, hangs: Tensor) -> Tensor:
        if not self._of_graph:
            return hangs[self._receiver] >= self._arrives
        if not bool(hangs.any()):
            return torch.ones_like(self._place, dtype=torch.bool)
        return (hangs[self._receiver] > 0) | (hangs[self._sender] > 0)

    def _take(self, unit: Tensor, taken: Tensor, hangs: Tensor) -> Tensor:
        taken |= unit
        ends = self._sender[unit]
        if not self._of_graph:
            return hangs.scatter_reduce(0, ends, self._leaves[unit], "amax")
        return hangs.index_fill(0, torch.cat([ends, self._receiver[unit]]), 1)

    def _unit_strength(self) -> Tensor:
        """`[units]`: equal for all entries of a unit."""
        number = int(self._unit.max()) + 1 if len(self._unit) else 0
        return self._strength.new_zeros(number).index_copy(0, self._unit, self._strength)

    def _mask(self, taken: Tensor) -> Tensor:
        full = torch.zeros(self._shape, dtype=torch.bool, device=self._place.device)
        full.view(-1)[self._place[taken]] = True
        return full
