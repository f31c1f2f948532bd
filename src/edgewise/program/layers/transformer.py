"""TransformerConv: attention by products of queries and keys; ω multiplies the message after the softmax.

    z_v = Σ_e ω_e α_e (V x_u + e) + s_v R x_v + b,    α = softmax over the in-edges of (Q x_v) · (K x_u + e) / √channels

for each head, with e what the features of an edge add. It adds no loops: a loop in the graph is an edge like any other.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import TransformerConv

from edgewise.model.data_flow import Call
from edgewise.program.hop import Hop
from edgewise.program.layers.attended_rows import SteadyMessages
from edgewise.program.layers.attention import softmax_by_head, sum_by_head
from edgewise.program.layers.base import Layer, Linear, Tables, Unsupported, mapped
from edgewise.program.layers.known_messages import AttendedMessages, by_column


@dataclass(frozen=True, eq=False)
class _Projections:
    """What a row is as a sender and as a receiver, `[rows, H, channels]` each; and its own term, `[rows, out]`."""

    key: Tensor
    value: Tensor
    query: Tensor
    own: Tensor | None


@dataclass(frozen=True, eq=False)
class TransformerLayer(Layer):
    """A `TransformerConv` without a gate."""

    uses_model = True
    knows_messages = True

    conv: Any
    edge_part: Tensor | None
    """`[E, H, channels]`: what edge features add to keys and values; None: there are none."""

    @property
    def numbers_on_edges(self) -> int:
        """Keys, queries, their products and gradients."""
        return 8 * self.conv.heads * self.conv.out_channels

    def prepare(self, table: Any, linear: Linear = functional.linear) -> Any:
        """All projections of the rows `[rows, in]`, once."""
        conv, shape = self.conv, (-1, self.conv.heads, self.conv.out_channels)
        rows, mine = table if isinstance(table, Tables) else (table, table)
        own = linear(mine, conv.lin_skip.weight, None) if conv.root_weight else None
        maps = ((conv.lin_key, rows), (conv.lin_value, rows), (conv.lin_query, mine))
        key, value, query = (mapped(one, of, linear).view(shape) for one, of in maps)
        return _Projections(key, value, query, own)

    def extended(self, prepared: Any, rows: Tensor, node: Tensor) -> Any:
        """The projections of further rows."""
        more = self.prepare(rows)
        key, value, query = (
            torch.cat([getattr(part, name) for part in (prepared, more)]) for name in ("key", "value", "query")
        )
        return _Projections(key, value, query, None if more.own is None else torch.cat([prepared.own, more.own]))

    def known_messages(self, table: Any, hop: Hop) -> AttendedMessages:
        """α times what is sent and what the edge adds."""
        sides = table if isinstance(table, _Projections) else self.prepare(table)
        share = by_column(self._attention(sides, hop, self._edges_on(hop)), hop.edge_id)
        return AttendedMessages(sides.value, share, self.conv.concat, edge=self.edge_part, own=sides.own)

    def forward(self, table: Any, hop: Hop, weight: Tensor, own: Tensor | None) -> Tensor:
        """Softmax over what each node receives, then the weighted sum: `[heads of the hop, out]`."""
        sides = table if isinstance(table, _Projections) else self.prepare(table)
        if sides is table and not sides.value.requires_grad:
            return self._completed(self._steady_messages(sides, hop).received(weight, None), sides, hop, own)
        edge = self._edges_on(hop)
        share = self._attention(sides, hop, edge) * weight.view(-1, 1)  # [edges, H]
        received = sum_by_head(share, sides.value, hop)
        if edge is not None:
            received = received.index_add(0, hop.head, edge * share.unsqueeze(-1))
        received = received.flatten(1) if self.conv.concat else received.mean(dim=1)
        return self._completed(received, sides, hop, own)

    def _edges_on(self, hop: Hop) -> Tensor | None:
        """`[edges, H, channels]`: what their features add; None: there are none."""
        return None if self.edge_part is None else self.edge_part.index_select(0, hop.edge_id)

    def _attention(self, sides: _Projections, hop: Hop, edge: Tensor | None) -> Tensor:
        """α of the edges, `[edges, H]`."""
        key, query = sides.key.index_select(0, hop.tail), hop.own_rows(sides.query).index_select(0, hop.head)
        logits = (query * (key if edge is None else key + edge)).sum(dim=-1) / math.sqrt(self.conv.out_channels)
        return softmax_by_head(logits, None, hop)[0]

    def _steady_messages(self, sides: _Projections, hop: Hop) -> SteadyMessages:
        """The messages of a call that reads constants, found once for a hop."""

        def made() -> SteadyMessages:
            edge = self._edges_on(hop)
            attention = (self._attention(sides, hop, edge), None)
            return SteadyMessages.made((self, sides), attention, sides.value, hop, edge, concat=self.conv.concat)

        return SteadyMessages.on(hop, (self, sides), made)

    def _completed(self, received: Tensor, sides: _Projections, hop: Hop, own: Tensor | None) -> Tensor:
        """With the own term (times s) and its bias."""
        if sides.own is None:
            return received
        mine = hop.own_rows(sides.own)
        received = received + (mine if own is None else mine * own.view(-1, 1))
        return received if self.conv.lin_skip.bias is None else received + self.conv.lin_skip.bias


def lower_transformer(conv: TransformerConv, calls: list[Call], data: Data) -> list[Any]:
    """A `TransformerConv`; one with a gate (`beta=True`) mixes own term and messages in another way, and is left alone."""
    if conv.aggr not in ("add", "sum"):
        raise Unsupported(f"TransformerConv with aggr={conv.aggr!r}")
    if conv.lin_beta is not None:
        raise Unsupported("TransformerConv with beta=True")
    features, edge_part = calls[0].arguments.get("edge_attr"), None
    if features is not None and conv.lin_edge is not None:
        with torch.no_grad():
            part = conv.lin_edge(features).view(-1, conv.heads, conv.out_channels)
        edge_part = part.new_zeros(data.edge_index.size(1), *part.shape[1:]).index_copy_(0, calls[0].slots, part)
    return [TransformerLayer(conv, edge_part)]
