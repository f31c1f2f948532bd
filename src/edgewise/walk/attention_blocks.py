"""The blocks of attention layers in closed form: GAT, GATv2 and TransformerConv, differentiated in full.

One attention head at a time, a node v receives z = Σ_e α_e m_e, where α is the softmax of logits l_e. A change of a logit moves
z by α_e (m_e − z) for each unit. So the block of a message, with respect to its sender's own copy, is

    α_e B + α_e (m_e − z) ⊗ (λ_e A),

where B maps the sender to its message and λ_e A is the slope of the logit in the sender. What v reads of itself is in every
logit, so its own block is Σ_e α_e (m_e − z) ⊗ (ρ_e A'), and the block of the added loop and the root matrix if there are any.

| layer | m | B | λ, A | ρ, A' |
|---|---|---|---|---|
| GAT, logit bend(a · W x_u + a' · W' x_v + e) | W x_u | W | bend' · a, W | bend' · a', W' |
| GATv2, logit a · bend(W x_u + W' x_v + e) | W x_u | W | a · bend', W | a · bend', W' |
| TransformerConv, logit (Q x_v) · (K x_u + e) / √channels | V x_u + e | V | Q x_v / √channels, K | (K x_u + e) / √channels, Q |

`block_builder.by_copies` differentiates the same layers by autograd, and a test compares the two. All numbers are float64.
"""

import math
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import GATv2Conv

from edgewise.program.hop import Hop
from edgewise.program.layers.attention import AttentionLayer, projections, softmax_by_head
from edgewise.program.layers.base import Layer
from edgewise.program.layers.transformer import TransformerLayer
from edgewise.pyg_internals import residual_of
from edgewise.walk.geometry import Geometry


@dataclass(frozen=True, eq=False)
class WeighedMessages:
    """WeighedMessages of edges or of added loops, n of them, and how their logits depend on both ends."""

    head: Tensor
    """`[n]`: the receiver."""
    tail: Tensor
    """`[n]`: the sender."""
    attention: Tensor
    """`[n, H]`."""
    message: Tensor
    """`[n, H, channels]`."""
    of_sender: Tensor
    """`[n, H, channels]`: λ, by what the sender's map A makes."""
    of_receiver: Tensor
    """`[n, H, channels]`: ρ, by what the receiver's map A' makes."""


@dataclass(frozen=True, eq=False)
class AttentionSlopes:
    """A call at its own activations: all that its blocks are made of."""

    edges: WeighedMessages
    loops: WeighedMessages | None
    value: Tensor
    """`[H · channels, in]`: B."""
    sender: Tensor
    """`[H · channels, in]`: A."""
    receiver: Tensor
    """`[H · channels, in]`: A'."""
    root: Tensor | None
    """`[out, in]`: by which a node adds its own row."""
    concat: bool

    @property
    def groups(self) -> list[WeighedMessages]:
        """Everything that nodes receive."""
        return [self.edges] if self.loops is None else [self.edges, self.loops]

    def shifts(self, num_nodes: int) -> list[Tensor]:
        """α (m − z) of the edges and of the loops, `[n, H, channels]` each."""
        total = self.edges.message.new_zeros(num_nodes, *self.edges.message.shape[1:])
        for group in self.groups:
            total.index_add_(0, group.head, group.attention.unsqueeze(-1) * group.message)
        return [
            group.attention.unsqueeze(-1) * (group.message - total.index_select(0, group.head)) for group in self.groups
        ]

    def joined(self, parts: list[Tensor]) -> Tensor:
        """What each head makes, `[n, channels, …]`, side by side or averaged: `[n, out, …]`."""
        return torch.cat(parts, dim=1) if self.concat else torch.stack(parts).mean(dim=0)


def has_closed_form(layer: Layer) -> TypeGuard[AttentionLayer | TransformerLayer]:
    """Whether the blocks of a layer are known in closed form."""
    return isinstance(layer, (AttentionLayer, TransformerLayer))


def attention_blocks(layer: Layer, geometry: Geometry, table: Tensor, hop: Hop) -> Tensor:
    """`[P, out, in]`: the blocks of a call on rows `[N, in]`."""
    with torch.no_grad():
        slopes, size = _slopes(layer, table, hop), geometry.num_nodes
        shifts, (edges, heads, channels) = slopes.shifts(size), slopes.edges.message.shape
        out, width = channels * (heads if slopes.concat else 1), table.size(1)
        of_edges, own = shifts[0].new_zeros(edges, out, width), shifts[0].new_zeros(size, out, width)
        for h in range(heads):
            rows = slice(h * channels, (h + 1) * channels) if slopes.concat else slice(None)
            _add_head(slopes, h, [shift[:, h] for shift in shifts], of_edges[:, rows], own[:, rows])
        if not slopes.concat:
            of_edges, own = of_edges.div_(heads), own.div_(heads)
        own = own if slopes.root is None else own.add_(slopes.root)
        return _in_pairs(layer, geometry, hop, of_edges, own)


def _add_head(slopes: AttentionSlopes, h: int, shifts: list[Tensor], of_edges: Tensor, own: Tensor) -> None:
    """Add what one attention head makes of edges `[E, channels, in]` and of nodes by themselves `[N, channels, in]`."""
    channels = slopes.edges.message.size(2)
    value, sender, receiver = (
        matrix[h * channels : (h + 1) * channels] for matrix in (slopes.value, slopes.sender, slopes.receiver)
    )
    turned = own.new_zeros(len(own), channels, channels)
    for group, shift in zip(slopes.groups, shifts, strict=True):
        along = group.of_sender[:, h] @ sender  # [n, in]
        blocks = group.attention[:, h].view(-1, 1, 1) * value + shift.unsqueeze(2) * along.unsqueeze(1)
        if group is slopes.edges:
            of_edges += blocks
        else:
            own.index_add_(0, group.head, blocks)
        turned.index_add_(0, group.head, shift.unsqueeze(2) * group.of_receiver[:, h].unsqueeze(1))
    own += turned @ receiver


def attention_products(layer: Layer, geometry: Geometry, table: Tensor, hop: Hop, along: Tensor) -> Tensor:
    """`[P, out]`: the blocks of a call, each times the change `[N, in]` of its sender. No block is made."""
    with torch.no_grad():
        slopes, size = _slopes(layer, table, hop), geometry.num_nodes
        heads, change = slopes.edges.attention.size(1), along.double()
        shape = (-1, heads, slopes.edges.message.size(2))
        value, sender, receiver = (
            (change @ matrix.t()).view(shape) for matrix in (slopes.value, slopes.sender, slopes.receiver)
        )
        own, of_edges = torch.zeros_like(value), value
        for group, shift in zip(slopes.groups, slopes.shifts(size), strict=True):
            by_sender = (group.of_sender * sender.index_select(0, group.tail)).sum(-1, keepdim=True)  # [n, H, 1]
            by_receiver = (group.of_receiver * receiver.index_select(0, group.head)).sum(-1, keepdim=True)
            own.index_add_(0, group.head, shift * by_receiver)
            moved = group.attention.unsqueeze(-1) * value.index_select(0, group.tail) + shift * by_sender
            if group is slopes.edges:
                of_edges = moved
            else:
                own.index_add_(0, group.head, moved)
        mine = slopes.joined(list(own.unbind(1)))
        mine = mine if slopes.root is None else mine + change @ slopes.root.t()
        return _in_pairs(layer, geometry, hop, slopes.joined(list(of_edges.unbind(1))), mine)


def _in_pairs(layer: Layer, geometry: Geometry, hop: Hop, of_edges: Tensor, own: Tensor) -> Tensor:
    """Numbers of the hop's edges `[E, …]` and of nodes `[N, …]`, added up in the pairs to which they belong."""
    place = geometry.own_places(getattr(layer, "loop_edge", None))
    found = own.new_zeros(len(geometry), *own.shape[1:])
    return found.index_add_(0, geometry.edge_pair[hop.edge_id], of_edges).index_add_(0, place, own)


def _slopes(layer: Layer, table: Tensor, hop: Hop) -> AttentionSlopes:
    rows = table.detach().double()
    if isinstance(layer, TransformerLayer):
        return _of_transformer(layer, rows, hop)
    assert isinstance(layer, AttentionLayer)
    return _of_attention(layer, rows, hop)


def _of_attention(layer: AttentionLayer, rows: Tensor, hop: Hop) -> AttentionSlopes:
    """GAT and GATv2."""
    conv, by = layer.conv, projections(layer.conv)
    sent = _mapped(by[0], rows, conv.heads)
    received = sent if by[1] is by[0] else _mapped(by[1], rows, conv.heads)
    every = torch.arange(hop.num_heads, device=rows.device)
    edge = None if layer.edge_part is None else layer.edge_part.index_select(0, hop.edge_id)
    ends = [(hop.head, hop.tail, edge)]
    if layer.loop_edge is not None:
        ends.append((every, every, layer.loop_part))
    known = [_logits(layer, sent.index_select(0, u), received.index_select(0, v), part) for v, u, part in ends]
    logits = layer.without_loops(known[0][0], hop) if len(known) > 1 else known[0][0]
    shares = softmax_by_head(logits, known[1][0] if len(known) > 1 else None, hop)
    groups = [
        WeighedMessages(v, u, share, sent.index_select(0, u), *slopes)
        for (v, u, _), (_, *slopes), share in zip(ends, known, shares, strict=False)
        if share is not None
    ]
    sender, receiver = (linear.weight.detach().double() for linear in by)
    root = None if residual_of(conv) is None else residual_of(conv).weight.detach().double()
    loops = groups[1] if len(groups) > 1 else None
    return AttentionSlopes(groups[0], loops, sender, sender, receiver, root, bool(conv.concat))


def _logits(
    layer: AttentionLayer, sent: Tensor, received: Tensor, part: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Of messages: their logits `[n, H]`, and the slopes in what is sent and in what is received, `[n, H, channels]`."""
    conv = layer.conv
    if isinstance(conv, GATv2Conv):
        both = sent + received if part is None else sent + received + part
        vector = conv.att.detach().double()
        slope = vector * _bend_slope(both, conv.negative_slope)
        return (vector * functional.leaky_relu(both, conv.negative_slope)).sum(-1), slope, slope
    vectors = conv.att_src.detach().double(), conv.att_dst.detach().double()
    both = (sent * vectors[0]).sum(-1) + (received * vectors[1]).sum(-1)
    both = both if part is None else both + part
    slope = _bend_slope(both, conv.negative_slope).unsqueeze(-1)  # [n, H, 1]
    return functional.leaky_relu(both, conv.negative_slope), slope * vectors[0], slope * vectors[1]


def _bend_slope(numbers: Tensor, below: float) -> Tensor:
    """The derivative of a leaky ReLU, as torch takes it at zero."""
    return torch.where(numbers > 0, torch.ones_like(numbers), below)


def _of_transformer(layer: TransformerLayer, rows: Tensor, hop: Hop) -> AttentionSlopes:
    """TransformerConv: it adds no loops, and its root matrix takes a node's own row past attention."""
    conv, root = layer.conv, None
    key, value, query = (_mapped(linear, rows, conv.heads) for linear in (conv.lin_key, conv.lin_value, conv.lin_query))
    key, value = key.index_select(0, hop.tail), value.index_select(0, hop.tail)
    if layer.edge_part is not None:
        edge = layer.edge_part.index_select(0, hop.edge_id)
        key, value = key + edge, value + edge
    query, scale = query.index_select(0, hop.head), math.sqrt(conv.out_channels)
    share = softmax_by_head((query * key).sum(-1) / scale, None, hop)[0]
    edges = WeighedMessages(hop.head, hop.tail, share, value, query / scale, key / scale)
    if conv.root_weight:
        root = conv.lin_skip.weight.detach().double()
    by_value, by_key, by_query = (
        linear.weight.detach().double() for linear in (conv.lin_value, conv.lin_key, conv.lin_query)
    )
    return AttentionSlopes(edges, None, by_value, by_key, by_query, root, bool(conv.concat))


def _mapped(linear: Any, rows: Tensor, heads: int) -> Tensor:
    """Rows `[N, in]` through a linear map, `[N, H, channels]`, in float64."""
    bias = None if linear.bias is None else linear.bias.detach().double()
    return functional.linear(rows, linear.weight.detach().double(), bias).view(len(rows), heads, -1)
