"""DeepLIFT through layers whose messages are not linear in what is sent: attention, and a ReLU on each edge.

In both, ω multiplies a message m in a product of its own: Δ(ωm) = Δω · (m + m′)/2 + Δm · (ω + ω′)/2. Attention's m is a
product, too, α · (what is sent), with α = exp(logit − log Σ exp) by the rules for exp, sums and log.
"""

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import GATv2Conv

from edgewise.program import lift_rules as rules
from edgewise.program.hop import Hop
from edgewise.program.layers.attention import AttentionLayer
from edgewise.program.layers.gine import EdgeReluLayer
from edgewise.program.lift_rules import Lift, linear


def edge_relu_messages(layer: EdgeReluLayer, table: Lift, hop: Hop, weight: Lift) -> Lift:
    """Σ ω relu(x_u + e) + (1 + ε) x: the ReLU of each edge by the rescale rule."""
    features = layer.edge_features.index_select(0, hop.edge_id)
    messages = rules.rescaled(torch.relu, linear(lambda t: t.index_select(0, hop.tail) + features, table))
    received = linear(lambda m: _summed(m, hop), rules.product(_column(weight, 1), messages))
    return linear(lambda r, t: r + hop.own_rows(t) * layer.root, received, table)


def attention_messages(layer: AttentionLayer, table: Lift, hop: Hop, weight: Lift) -> Lift:
    """Σ ω α B x_u + α_vv B x_v + residual + b, with the attention that belongs to each run."""
    runs = [layer.prepare(rows) for rows in (table.actual, table.reference)]
    sent = Lift(*(run.sent for run in runs))
    sides = [layer.sides_of_attention(run) for run in runs]
    by_sender, by_receiver = (Lift(*side) for side in zip(*sides, strict=True))
    attention, of_loop = _attention(layer, by_sender, by_receiver, hop)
    messages = rules.product(_column(attention, 1), linear(lambda t: t.index_select(0, hop.tail), sent))
    received = linear(lambda m: _summed(m, hop), rules.product(_column(weight, 2), messages))
    if of_loop is not None:
        own = rules.product(_column(of_loop, 1), linear(hop.own_rows, sent))
        kept = linear(lambda w: layer.loop_weight(hop, w, None), weight)  # [heads of the hop, 1]
        received = linear(torch.add, received, rules.product(_column(kept, 1), own))
    found = [
        layer.finish(rows, run, hop, None)
        for rows, run in zip((received.actual, received.reference), runs, strict=True)
    ]
    return Lift(*found)


def _attention(layer: AttentionLayer, by_sender: Lift, by_receiver: Lift, hop: Hop) -> tuple[Lift, Lift | None]:
    """α of the edges `[edges, H]` and of the added loops `[heads of the hop, H]`, or None."""
    receiver = linear(hop.own_rows, by_receiver)
    edge = None if layer.edge_part is None else layer.edge_part.index_select(0, hop.edge_id)
    logits = _logits(
        layer,
        linear(lambda s, r: s.index_select(0, hop.tail) + r.index_select(0, hop.head), by_sender, receiver),
        edge,
    )
    kept = torch.ones(len(hop.tail), 1, dtype=logits.reference.dtype, device=hop.tail.device)
    if layer.loop_edge is not None and layer.is_loop is not None:  # explicit loops are replaced by the layer's own
        kept = (~layer.is_loop.index_select(0, hop.edge_id)).to(kept).view(-1, 1)
    loop = None
    if layer.loop_edge is not None:
        part = None if layer.loop_part is None else layer.loop_part.index_select(0, hop.node)
        loop = _logits(layer, linear(lambda s, r: hop.own_rows(s) + r, by_sender, receiver), part)
    return _softmax(logits, loop, kept, hop)


def _logits(layer: AttentionLayer, both: Lift, edge: Tensor | None) -> Lift:
    """As `AttentionLayer` makes them, the leaky ReLU by the rescale rule."""
    conv = layer.conv
    both = both if edge is None else linear(lambda t: t + edge, both)
    bent = rules.rescaled(lambda t: functional.leaky_relu(t, conv.negative_slope), both)
    return linear(lambda t: (t * conv.att).sum(dim=-1), bent) if isinstance(conv, GATv2Conv) else bent


def _softmax(logits: Lift, loop: Lift | None, kept: Tensor, hop: Hop) -> tuple[Lift, Lift | None]:
    """α over all that a node receives; `kept` `[edges, 1]` is 0 for edges that take no part."""
    index = hop.head.view(-1, 1).expand_as(logits.reference)
    low = torch.full((hop.num_heads, index.size(1)), -torch.inf, dtype=kept.dtype, device=kept.device)
    for run in ("actual", "reference"):
        low = low.scatter_reduce(0, index, getattr(logits, run).detach(), "amax")
        low = low if loop is None else torch.maximum(low, getattr(loop, run).detach())
    top = low.masked_fill(low == -torch.inf, 0.0)  # nodes that receive nothing
    of_head = top.index_select(0, hop.head)
    edges = rules.rescaled(torch.exp, linear(lambda t: t - of_head, logits))
    total = linear(lambda e: _summed(e * kept, hop), edges)
    if loop is not None:
        loops = rules.rescaled(torch.exp, linear(lambda t: t - top, loop))
        total = linear(torch.add, total, loops)
    small = torch.finfo(kept.dtype).tiny
    below = rules.rescaled(lambda t: t.clamp(min=small).log(), total)
    of_edges = rules.rescaled(torch.exp, linear(lambda t, b: t - of_head - b.index_select(0, hop.head), logits, below))
    of_edges = linear(lambda a: a * kept, of_edges)
    of_loops = None if loop is None else rules.rescaled(torch.exp, linear(lambda t, b: t - top - b, loop, below))
    return of_edges, of_loops


def _summed(messages: Tensor, hop: Hop) -> Tensor:
    """What every head receives, `[heads of the hop, …]`."""
    zero = torch.zeros(hop.num_heads, *messages.shape[1:], dtype=messages.dtype, device=messages.device)
    return zero.index_add(0, hop.head, messages)


def _column(value: Lift, axes: int) -> Lift:
    """The same with further axes of size 1 at the end."""
    return linear(lambda t: t.view(*t.shape, *[1] * axes), value)
