"""The messages of a call at ω = 1, for layers whose output is their sum: what is missing is then one of them.

Attention is settled before weights come into play, so that a message that is missing where nothing else has changed takes
itself out of the sum, and nothing has to be run again: the 100,000 in-edges of a hub are looked at once, not once for each.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class KnownMessages(Protocol):
    """What edges and own terms add to the outputs of their receivers."""

    def of_edges(self, column: Tensor, sender: Tensor, receiver: Tensor) -> Tensor:
        """Of some edges, `[n, out]`."""

    def of_nodes(self, node: Tensor) -> Tensor | None:
        """Of the own terms of some nodes, `[n, out]`; None: there are none."""


@dataclass(frozen=True, eq=False)
class AttendedMessages:
    """α · sent of every edge, and the own terms of nodes."""

    sent: Tensor
    """`[N, H, channels]`."""
    share: Tensor
    """`[E, H]`: α, by column."""
    concat: bool
    """Whether attention heads stand side by side; otherwise they are averaged."""
    loop: Tensor | None = None
    """`[N, H]`: α of added loops; None: there are none."""
    loop_edge: Tensor | None = None
    """`[N]`: the explicit loop that owns a node's v→v message, or −1; None: as if all were −1."""
    edge: Tensor | None = None
    """`[E, H, channels]`: what an edge adds to its message; None: nothing."""
    own: Tensor | None = None
    """`[N, out]`: own terms besides loops; None: there are none."""

    def of_edges(self, column: Tensor, sender: Tensor, receiver: Tensor) -> Tensor:
        """What some edges add to the outputs of their receivers, `[n, out]`.

        Half of 4 in the first head, a quarter of 8 in the second:

        >>> messages = AttendedMessages(torch.tensor([[[4.0], [8.0]]]), torch.tensor([[0.5, 0.25]]), concat=True)
        >>> messages.of_edges(*torch.zeros(3, 1, dtype=torch.long))
        tensor([[2., 2.]])
        """
        share, rows = self.share.index_select(0, column), self.sent.index_select(0, sender)
        if self.loop is not None and self.loop_edge is not None:
            is_owner = self.loop_edge.index_select(0, receiver) == column
            share = torch.where(is_owner.view(-1, 1), self.loop.index_select(0, receiver), share)
        if self.edge is not None:
            rows = rows + self.edge.index_select(0, column)
        return self._joined(share.unsqueeze(-1) * rows)

    def of_nodes(self, node: Tensor) -> Tensor | None:
        """What the own terms of some nodes add to their outputs, `[n, out]`; None: there are none."""
        own = None if self.own is None else self.own.index_select(0, node)
        if self.loop is None:
            return own
        share = self.loop.index_select(0, node)
        if self.loop_edge is not None:  # the message of an explicit loop is that of its edge
            share = share.masked_fill((self.loop_edge.index_select(0, node) >= 0).view(-1, 1), 0.0)
        rows = self._joined(share.unsqueeze(-1) * self.sent.index_select(0, node))
        return rows if own is None else rows + own

    def _joined(self, rows: Tensor) -> Tensor:
        return rows.flatten(1) if self.concat else rows.mean(dim=1)


def by_column(of_edges: Tensor, edge_id: Tensor) -> Tensor:
    """Numbers of edges `[edges, …]` in the order of their columns."""
    found = torch.empty_like(of_edges)
    found[edge_id] = of_edges
    return found
