"""GATConv and GATv2Conv: every head weighs what it receives by attention; ω multiplies the message after that.

So ω = 0 takes a message away and leaves the attention of the others as it is:

    z_v = Σ_e ω_e α_e B x_u + s_v α_vv B x_v + b

where α is the softmax of the logits over all edges that end in v and the added self-loop. "Head" has two meanings here: H
attention heads, and the heads of a `Hop`, which receive.

The path 0 → 1 → 2 with one attention head of width 1, B = 1, x = (1, 10, 100) and attention that ignores its input (all logits
0): node 2 receives from node 1 and, by the added loop, from itself, each with α = ½, so z₂ = ½ · 10 + ½ · 100 = 55. With
ω(e1) = 0 it is 50, not 100: the loop keeps its ½.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GATv2Conv

from edgewise.model.data_flow import Call
from edgewise.program.hop import Hop, weighted_sum
from edgewise.program.layers.attended_rows import SteadyMessages, attended_rows, both_sides, row_attention
from edgewise.program.layers.base import Layer, Linear, Tables, Unsupported, mapped
from edgewise.program.layers.known_messages import AttendedMessages, by_column
from edgewise.pyg_internals import residual_of


@dataclass(frozen=True)
class _Sides:
    """Features as senders and as receivers, and what a residual adds: all of a layer that a single row decides."""

    sent: Tensor
    """`[rows, H, channels]`: what each row sends."""
    receiving: Tensor
    """`[rows, H, channels]`: what attention reads of it as a receiver."""
    residual: Tensor | None
    """`[rows, out]`, for `residual=True`."""


@dataclass(frozen=True, eq=False)
class AttentionLayer(Layer):
    """Both attention layers: they differ in how two nodes and an edge become a number (`logits`)."""

    uses_model = True
    knows_messages = True

    conv: Any
    edge_part: Tensor | None
    """`[E, H]` (GAT) or `[E, H, channels]` (GATv2): what edge features add to the logits; None: there are none."""
    loop_part: Tensor | None
    """The same for added loops, `[N, …]`."""
    loop_edge: Tensor | None
    """`[N]`: the explicit loop that owns a node's v→v message, or −1. None: the layer adds no loops."""
    is_loop: Tensor | None
    """`[E]`: explicit loops, which the layer replaces by its own."""

    @property
    def numbers_on_edges(self) -> int:
        """Logits and weights of each head (GAT); sums of both sides, bent, and their gradients (GATv2)."""
        conv = self.conv
        return 7 * conv.heads * conv.out_channels if isinstance(conv, GATv2Conv) else 16 * conv.heads

    def prepare(self, table: Any, linear: Linear = functional.linear) -> Any:
        """Both projections of the rows `[rows, in]`, once; senders and receivers may have tables of their own."""
        conv, shape = self.conv, (-1, self.conv.heads, self.conv.out_channels)
        rows, own = table if isinstance(table, Tables) else (table, table)
        by_sender, by_receiver = projections(conv)
        sent = mapped(by_sender, rows, linear).view(shape)
        receiving = sent if own is rows and by_receiver is by_sender else mapped(by_receiver, own, linear).view(shape)
        return _Sides(sent, receiving, residual_of(conv)(own) if residual_of(conv) is not None else None)

    def of_kind(self, nodes: Tensor) -> "AttentionLayer":
        """Added loops of some nodes."""
        part, edge = (None if of is None else of.index_select(0, nodes) for of in (self.loop_part, self.loop_edge))
        return replace(self, loop_part=part, loop_edge=edge)

    def extended(self, prepared: Any, rows: Tensor, node: Tensor) -> Any:
        """Both projections of further rows."""
        more = self.prepare(rows)
        residual = None if prepared.residual is None else torch.cat([prepared.residual, more.residual])
        sent, receiving = (
            torch.cat([getattr(part, name) for part in (prepared, more)]) for name in ("sent", "receiving")
        )
        return _Sides(sent, receiving, residual)

    def logits(self, sent: Tensor, receiving: Tensor, edge: Tensor | None = None) -> Tensor:
        """Attention before the softmax, `[edges, H]`, from the two sides of each edge and its features.

        GAT: leaky_relu(a · sender + a' · receiver + edge). GATv2: a · leaky_relu(sender + receiver + edge).
        """
        conv = self.conv
        both = sent + receiving if edge is None else sent + receiving + edge
        if isinstance(conv, GATv2Conv):
            return (functional.leaky_relu(both, conv.negative_slope) * conv.att).sum(dim=-1)
        return functional.leaky_relu(both, conv.negative_slope)

    def sides_of_attention(self, sides: _Sides) -> tuple[Tensor, Tensor]:
        """What logits read of a row as sender and as receiver: `[rows, H]` (GAT) or `[rows, H, channels]` (GATv2)."""
        if isinstance(self.conv, GATv2Conv):
            return sides.sent, sides.receiving
        return (sides.sent * self.conv.att_src).sum(-1), (sides.receiving * self.conv.att_dst).sum(-1)

    @property
    def sender_matrix(self) -> Tensor:
        """`[H · channels, in]`: what every message is multiplied with."""
        found: Tensor = projections(self.conv)[0].weight.detach()
        return found

    def attention(self, table: Tensor, hop: Hop) -> tuple[Tensor, Tensor | None]:
        """α of the edges `[edges, H]`, and of the added loops `[heads of the hop, H]`; None: the layer adds none."""
        return self.attention_of(self.prepare(table), hop)

    def known_messages(self, table: Any, hop: Hop) -> AttendedMessages:
        """α · sent; the own terms are added loops and residuals."""
        sides = self.as_sides(table)
        of_edges, loop = self.attention_of(sides, hop)
        share = by_column(of_edges, hop.edge_id)
        return AttendedMessages(sides.sent, share, self.conv.concat, loop, self.loop_edge, own=sides.residual)

    def forward(self, table: Any, hop: Hop, weight: Tensor, own: Tensor | None) -> Tensor:
        """Softmax over what each node receives, then the weighted sum: `[heads of the hop, out]`."""
        if isinstance(table, _Sides) and not table.sent.requires_grad:
            steady = self._steady_messages(table, hop)
            is_one = steady.loop is None or (own is None and self.is_loop is None)
            mine = None if is_one else self.loop_weight(hop, weight, own)
            return self._completed(steady.received(weight, mine), table, hop, own)
        sides = self._sides_on(table, hop)
        if self._is_plain_v2:
            sent, received, loops = sides.sent, hop.own_rows(sides.receiving), self.loop_edge is not None
            found = attended_rows(self.conv, sent, received, hop, weight, own, loops=loops)
            if found is not None:
                return self.finish(found, sides, hop, own)
        return self.attended(sides, self.attention_of(sides, hop), hop, weight, own)

    def _steady_messages(self, sides: _Sides, hop: Hop) -> SteadyMessages:
        """The messages of a call that reads constants, found once for a hop."""

        def made() -> SteadyMessages:
            attention = self.attention_of(sides, hop)
            return SteadyMessages.made((self, sides), attention, sides.sent, hop, concat=self.conv.concat)

        return SteadyMessages.on(hop, (self, sides), made)

    def _sides_on(self, table: Any, hop: Hop) -> _Sides:
        """As `as_sides`. Receivers may be the first rows of the table: then only they are projected as such."""
        conv, (by_sender, by_receiver) = self.conv, projections(self.conv)
        if not isinstance(table, Tensor) or hop.own is not None or by_receiver is by_sender:
            return self.as_sides(table)
        sent, received = both_sides(table, hop.num_heads, by_sender, by_receiver)
        residual = None if residual_of(conv) is None else residual_of(conv)(table[: hop.num_heads])
        return _Sides(sent.unflatten(1, (conv.heads, -1)), received.unflatten(1, (conv.heads, -1)), residual)

    @property
    def _is_plain_v2(self) -> bool:
        """Whether compiled loops know the layer: a GATv2 without edge features, which replaces no loop of the graph."""
        return isinstance(self.conv, GATv2Conv) and self.edge_part is None and self.is_loop is None

    def as_sides(self, table: Any) -> _Sides:
        """Both projections of a table; what is prepared already stays as it is."""
        found: _Sides = table if isinstance(table, _Sides) else self.prepare(table)
        return found

    def attended(
        self, sides: _Sides, attention: tuple[Tensor, Tensor | None], hop: Hop, weight: Tensor, own: Tensor | None
    ) -> Tensor:
        """What the heads make of these rows under given attention: linear in the rows."""
        of_edges, of_loop = attention
        received = sum_by_head(of_edges * weight.view(-1, 1), sides.sent, hop)  # [heads of the hop, H, channels]
        if of_loop is not None:
            of_loop = of_loop * self.loop_weight(hop, weight, own)
            received = received + of_loop.unsqueeze(-1) * hop.own_rows(sides.sent)
        return self.finish(received, sides, hop, own)

    def attention_of(self, sides: _Sides, hop: Hop) -> tuple[Tensor, Tensor | None]:
        """As `attention`, from rows that are projected already."""
        if self._is_plain_v2 and not (torch.is_grad_enabled() and sides.sent.requires_grad):
            found = row_attention(
                self.conv, sides.sent, hop.own_rows(sides.receiving), hop, loops=self.loop_edge is not None
            )
            if found is not None:
                return found
        by_sender, by_receiver = self.sides_of_attention(sides)
        receiver = hop.own_rows(by_receiver)  # [heads of the hop, …]
        edge = None if self.edge_part is None else self.edge_part.index_select(0, hop.edge_id)
        logits = self.logits(by_sender.index_select(0, hop.tail), receiver.index_select(0, hop.head), edge)
        loop = None
        if self.loop_edge is not None:
            logits = self.without_loops(logits, hop)
            part = None if self.loop_part is None else self.loop_part.index_select(0, hop.node)
            loop = self.logits(hop.own_rows(by_sender), receiver, part)
        return softmax_by_head(logits, loop, hop)

    def without_loops(self, logits: Tensor, hop: Hop) -> Tensor:
        """The layer removes explicit loops before it adds its own: their logits are −∞, so their α is 0."""
        if self.is_loop is None:
            return logits
        return logits.masked_fill(self.is_loop.index_select(0, hop.edge_id).view(-1, 1), -torch.inf)

    def loop_weight(self, hop: Hop, weight: Tensor, own: Tensor | None) -> Tensor:
        """`[heads of the hop, 1]`: ω of the explicit loop where there is one, otherwise s."""
        mine = weight.new_ones(hop.num_heads) if own is None else own
        if self.is_loop is not None and self.loop_edge is not None:
            owner = self.loop_edge.index_select(0, hop.node)
            is_owner = hop.edge_id == owner.index_select(0, hop.head)
            explicit = torch.zeros_like(mine).index_add(0, hop.head, torch.where(is_owner, weight, 0))
            mine = torch.where(owner >= 0, explicit, mine)
        return mine.view(-1, 1)

    def finish(self, received: Tensor, sides: _Sides, hop: Hop, own: Tensor | None) -> Tensor:
        """Attention heads side by side or averaged, then the residual (times s) and the bias: `[heads of the hop, out]`."""
        received = received.flatten(1) if self.conv.concat else received.mean(dim=1)
        return self._completed(received, sides, hop, own)

    def _completed(self, received: Tensor, sides: _Sides, hop: Hop, own: Tensor | None) -> Tensor:
        """With the residual (times s) and the bias."""
        if sides.residual is not None:
            rows = hop.own_rows(sides.residual)
            received = received + (rows if own is None else rows * own.view(-1, 1))
        return received if self.conv.bias is None else received + self.conv.bias


def projections(conv: Any) -> tuple[Any, Any]:
    """The maps of senders and of receivers, which may be one."""
    if isinstance(conv, GATv2Conv):
        return conv.lin_l, conv.lin_l if conv.share_weights else conv.lin_r
    return (conv.lin_src, conv.lin_dst) if conv.lin is None else (conv.lin, conv.lin)


def softmax_by_head(logits: Tensor, loop: Tensor | None, hop: Hop) -> tuple[Tensor, Tensor | None]:
    """α of the edges `[edges, H]` and of the loops `[heads of the hop, H]`: over all that a node receives, per attention head.

    As PyG does it: shifted by the largest logit, and 1e-16 added to the sum. On the path 0 → 1 → 2, node 2 has one edge and its
    loop; with equal logits each gets one half.

    >>> hop = Hop(torch.tensor([0, 1]), torch.tensor([1]), torch.tensor([1]), torch.tensor([2]), torch.tensor([2]), 3)
    >>> softmax_by_head(torch.zeros(1, 1), torch.zeros(1, 1), hop)
    (tensor([[0.5000]]), tensor([[0.5000]]))
    """
    index = hop.head.view(-1, 1).expand_as(logits)  # [edges, H]
    with torch.no_grad():  # top: [heads of the hop, H], the largest logit
        low = torch.full((hop.num_heads, logits.size(1)), -torch.inf, dtype=logits.dtype, device=logits.device)
        top = (low if loop is None else loop.detach()).scatter_reduce(0, index, logits.detach(), "amax")
        top = top.masked_fill(top == -torch.inf, 0.0)
    exponent = (logits - top.index_select(0, hop.head)).exp()
    total = torch.zeros_like(top).index_add(0, hop.head, exponent)  # [heads of the hop, H]
    of_loop = None
    if loop is not None:
        of_loop = (loop - top).exp()
        total = total + of_loop
        of_loop = of_loop / (total + 1e-16)
    return exponent / (total + 1e-16).index_select(0, hop.head), of_loop


def sum_by_head(weight: Tensor, sent: Tensor, hop: Hop) -> Tensor:
    """Σ weight · sent over the edges of each node, one attention head after the other: `[heads of the hop, H, channels]`."""
    parts = [weighted_sum(weight[:, h].contiguous(), sent[:, h], hop) for h in range(sent.size(1))]
    return torch.stack(parts, dim=1)


def lower_attention(conv: GATConv | GATv2Conv, calls: list[Call], data: Data) -> list[Any]:
    """An attention layer: edge features go through their matrix once, loops are as the layer makes them."""
    if conv.aggr not in ("add", "sum"):
        raise Unsupported(f"{type(conv).__name__} with aggr={conv.aggr!r}")
    loop_edge = is_loop = None
    if conv.add_self_loops:
        loop_edge, is_loop = _loops(data, calls[0])
    edge_part, loop_part = _edge_parts(conv, calls[0], data)
    return [AttentionLayer(conv, edge_part, loop_part, loop_edge, is_loop)]


def _loops(data: Data, call: Call) -> tuple[Tensor, Tensor | None]:
    """`[N]`: the column of each node's explicit loop (the last of several), or −1; and `[E]`: which columns are loops.

    Only loops that the call was given: that of another relation owns no message here.
    """
    source, receiver = data.edge_index
    owner = torch.full((data.num_nodes,), -1, device=source.device)
    used = call.slots[call.slots < len(source)]
    loops = used[source[used] == receiver[used]]
    if len(loops) == 0:
        return owner, None
    return owner.scatter_reduce(0, receiver[loops], loops, "amax"), source == receiver  # the last one owns the message


def _edge_parts(conv: Any, call: Call, data: Data) -> tuple[Tensor | None, Tensor | None]:
    """What edge features add to the logits of edges `[E, …]` and of added loops `[N, …]`; None, None: there are none.

    For added loops PyG fills in features of its own (`fill_value`): they are in the recorded call.
    """
    features = call.edge_features
    if features is None or conv.lin_edge is None:
        return None, None
    with torch.no_grad():
        part = conv.lin_edge(features.view(-1, 1) if features.dim() == 1 else features)
        part = part.view(-1, conv.heads, conv.out_channels)
        if isinstance(conv, GATConv):
            part = (part * conv.att_edge).sum(dim=-1)
    num_edges = data.edge_index.size(1)
    whole = part.new_zeros(num_edges + data.num_nodes, *part.shape[1:])  # by owner: edges, then nodes' loops
    whole[call.slots] = part
    loops = whole[num_edges:].clone()
    own, _ = _loops(data, call)
    has = own >= 0
    loops[has] = whole[own[has]]  # the message of an explicit loop stands at that loop's column
    return whole[:num_edges], loops
