"""GATConv and GATv2Conv: every head weighs what it hears by attention; ω multiplies the message after that."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GATv2Conv

from edgewise.model.trace import Call
from edgewise.program.layers.affine_convs import check_every_edge
from edgewise.program.layers.base import Layer, Unsupported
from edgewise.program.levels import Hop, weighted_sum


@dataclass(frozen=True)
class _Sides:
    """Features as senders and as receivers, `[rows, heads, channels]`, and what attention reads of them."""

    sent: Tensor
    heard_by: Tensor
    residual: Tensor | None


@dataclass(frozen=True, eq=False)
class AttentionLayer(Layer):
    """Both attention layers: they differ in how two nodes and an edge become a number (`logits`)."""

    uses_model = True

    conv: Any
    edge_part: Tensor | None
    """What the edge features add to attention: `[E, …]`, and the same for added loops `[N, …]`."""
    loop_part: Tensor | None
    loop_edge: Tensor | None
    """`[N]`: the explicit loop that owns a node's v→v message, or −1. None: the layer adds no loops."""
    is_loop: Tensor | None
    """`[E]`: explicit loops, which the layer replaces by its own."""

    def prepare(self, table: Tensor) -> Any:
        """Both projections, once."""
        conv, shape = self.conv, (-1, self.conv.heads, self.conv.out_channels)
        if isinstance(conv, GATv2Conv):
            sent = conv.lin_l(table).view(shape)
            heard_by = sent if conv.share_weights else conv.lin_r(table).view(shape)
        else:
            sent = heard_by = conv.lin(table).view(shape)
        return _Sides(sent, heard_by, conv.res(table) if conv.res is not None else None)

    def _logits(self, sent: Tensor, heard_by: Tensor, edge: Tensor | None) -> Tensor:
        """Attention before the softmax, `[edges, heads]`."""
        conv = self.conv
        if isinstance(conv, GATv2Conv):
            both = sent + heard_by if edge is None else sent + heard_by + edge
            return (functional.leaky_relu(both, conv.negative_slope) * conv.att).sum(dim=-1)
        both = sent + heard_by if edge is None else sent + heard_by + edge
        return functional.leaky_relu(both, conv.negative_slope)

    def _sides_of_attention(self, sides: _Sides) -> tuple[Tensor, Tensor]:
        if isinstance(self.conv, GATv2Conv):
            return sides.sent, sides.heard_by
        return (sides.sent * self.conv.att_src).sum(-1), (sides.heard_by * self.conv.att_dst).sum(-1)

    @property
    def sender_matrix(self) -> Tensor:
        """`[heads · channels, in]`: what every message is multiplied with."""
        found: Tensor = (self.conv.lin_l if isinstance(self.conv, GATv2Conv) else self.conv.lin).weight.detach()
        return found

    def attention(self, table: Tensor, hop: Hop) -> tuple[Tensor, Tensor | None]:
        """`[edges, heads]`, and that of the added loops `[heads of the hop, heads]`."""
        return self._attention(self.prepare(table), hop)

    def forward(self, table: Any, hop: Hop, weight: Tensor, own: Tensor | None) -> Tensor:
        """Softmax over what a head hears, then the weighted sum."""
        sides = table if isinstance(table, _Sides) else self.prepare(table)
        attention, of_loop = self._attention(sides, hop)
        heard = _sum_by_head(attention * weight.view(-1, 1), sides.sent, hop)
        if of_loop is not None:
            of_loop = of_loop * self._loop_weight(hop, weight, own)
            heard = heard + of_loop.unsqueeze(-1) * hop.own_rows(sides.sent)
        return self._finish(heard, sides, hop, own)

    def _attention(self, sides: _Sides, hop: Hop) -> tuple[Tensor, Tensor | None]:
        by_sender, by_receiver = self._sides_of_attention(sides)
        receiver = hop.own_rows(by_receiver)
        edge = None if self.edge_part is None else self.edge_part.index_select(0, hop.edge_id)
        logits = self._logits(by_sender.index_select(0, hop.tail), receiver.index_select(0, hop.head), edge)
        loop = None
        if self.loop_edge is not None:
            logits = self._without_loops(logits, hop)
            part = None if self.loop_part is None else self.loop_part.index_select(0, hop.node)
            loop = self._logits(hop.own_rows(by_sender), receiver, part)
        return _softmax(logits, loop, hop)

    def _without_loops(self, logits: Tensor, hop: Hop) -> Tensor:
        if self.is_loop is None:
            return logits
        return logits.masked_fill(self.is_loop.index_select(0, hop.edge_id).view(-1, 1), -torch.inf)

    def _loop_weight(self, hop: Hop, weight: Tensor, own: Tensor | None) -> Tensor:
        """ω of the explicit loop where there is one, otherwise s."""
        mine = weight.new_ones(hop.num_heads) if own is None else own
        if self.is_loop is not None and self.loop_edge is not None:
            owner = self.loop_edge.index_select(0, hop.node)
            is_owner = hop.edge_id == owner.index_select(0, hop.head)
            explicit = torch.zeros_like(mine).index_add(0, hop.head, torch.where(is_owner, weight, 0))
            mine = torch.where(owner >= 0, explicit, mine)
        return mine.view(-1, 1)

    def _finish(self, heard: Tensor, sides: _Sides, hop: Hop, own: Tensor | None) -> Tensor:
        heard = heard.flatten(1) if self.conv.concat else heard.mean(dim=1)
        if sides.residual is not None:
            rows = hop.own_rows(sides.residual)
            heard = heard + (rows if own is None else rows * own.view(-1, 1))
        return heard if self.conv.bias is None else heard + self.conv.bias


def _softmax(logits: Tensor, loop: Tensor | None, hop: Hop) -> tuple[Tensor, Tensor | None]:
    """Over the edges of each head and its loop, per attention head."""
    index = hop.head.view(-1, 1).expand_as(logits)
    with torch.no_grad():
        low = torch.full((hop.num_heads, logits.size(1)), -torch.inf, dtype=logits.dtype, device=logits.device)
        top = (low if loop is None else loop.detach()).scatter_reduce(0, index, logits.detach(), "amax")
        top = top.masked_fill(top == -torch.inf, 0.0)
    exponent = (logits - top.index_select(0, hop.head)).exp()
    total = torch.zeros_like(top).index_add(0, hop.head, exponent)
    of_loop = None
    if loop is not None:
        of_loop = (loop - top).exp()
        total = total + of_loop
        of_loop = of_loop / (total + 1e-16)
    return exponent / (total + 1e-16).index_select(0, hop.head), of_loop


def _sum_by_head(weight: Tensor, sent: Tensor, hop: Hop) -> Tensor:
    parts = [weighted_sum(weight[:, h].contiguous(), sent[:, h], hop) for h in range(sent.size(1))]
    return torch.stack(parts, dim=1)


def lower_attention(conv: GATConv | GATv2Conv, calls: list[Call], data: Data) -> list[Any]:
    """Edge features through their matrix, once; loops as the layer makes them."""
    if conv.aggr not in ("add", "sum") or getattr(conv, "lin", True) is None:
        raise Unsupported(f"{type(conv).__name__} with aggr={conv.aggr!r} or two sides")
    check_every_edge(calls[0], data)
    loop_edge = is_loop = None
    if conv.add_self_loops:
        loop_edge, is_loop = _loops(data)
    edge_part, loop_part = _edge_parts(conv, calls[0], data)
    return [AttentionLayer(conv, edge_part, loop_part, loop_edge, is_loop)]


def _loops(data: Data) -> tuple[Tensor, Tensor | None]:
    source, receiver = data.edge_index
    owner = torch.full((data.num_nodes,), -1, device=source.device)
    loops = (source == receiver).nonzero().view(-1)
    if len(loops) == 0:
        return owner, None
    return owner.scatter_reduce(0, receiver[loops], loops, "amax"), source == receiver  # the last one owns the message


def _edge_parts(conv: Any, call: Call, data: Data) -> tuple[Tensor | None, Tensor | None]:
    """What edge features add to attention; for added loops PyG fills in features of its own (`fill_value`)."""
    features = call.edge_features
    if features is None or conv.lin_edge is None:
        return None, None
    with torch.no_grad():
        part = conv.lin_edge(features.view(-1, 1) if features.dim() == 1 else features)
        part = part.view(-1, conv.heads, conv.out_channels)
        if isinstance(conv, GATConv):
            part = (part * conv.att_edge).sum(dim=-1)
    num_edges = data.edge_index.size(1)
    whole = part.new_zeros(num_edges + data.num_nodes, *part.shape[1:])
    whole[call.slots] = part
    loops = whole[num_edges:].clone()
    own, _ = _loops(data)
    has = own >= 0
    loops[has] = whole[own[has]]  # the message of an explicit loop stands at that loop's column
    return whole[:num_edges], loops
