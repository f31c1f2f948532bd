"""Attention as an operation of interval arithmetic: what every row is as sender and receiver, and how the two make a logit.

    out_v = Σ_r ω_r α_r s_r + own term + bias,    α = softmax of the logits over the rows r that v receives

A row is an in-edge, or the loop that a layer adds. GAT, GATv2 and TransformerConv differ in their logits alone.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GATv2Conv

from edgewise.graph.computation_graph import InEdges
from edgewise.program.intervals import UNIT, Interval, TwoSided
from edgewise.program.layers.attention import AttentionLayer, projections
from edgewise.program.layers.transformer import TransformerLayer
from edgewise.pyg_internals import residual_of
from edgewise.trust.interval_operations import Rectify


@dataclass(frozen=True, eq=False)
class Map:
    """x ↦ x Wᵀ + shift; `slack` bounds how far a matrix that was itself computed may be from the true one.

    >>> half = Map.of(torch.tensor([[0.5]]).double())
    >>> half.linear(Interval.point(torch.tensor([[3.0]]).double())).lo.round(decimals=6).item()
    1.5
    """

    matrix: TwoSided
    shift: Tensor | None = None
    slack: Tensor | None = None
    """`[in, out]`: an absolute error of each entry of the matrix."""

    @staticmethod
    def of(weight: Tensor, bias: Tensor | None = None) -> "Map":
        """A matrix `[out, in]` as it is."""
        return Map(TwoSided.of(weight.detach().double()), None if bias is None else bias.detach().double())

    @staticmethod
    def product(left: Tensor, right: Tensor) -> "Map":
        """The product of two matrices `[out, k]` and `[k, in]`: tighter than one after the other."""
        left, right = left.detach().double(), right.detach().double()
        slack = (left.abs() @ right.abs()) * (2 * (left.size(1) + 3) * UNIT)
        return Map(TwoSided.of(left @ right), slack=slack.t())

    def linear(self, rows: Interval) -> Interval:
        """Without its shift, as changes and slopes go through it."""
        found = rows.linear(self.matrix)
        return found if self.slack is None else found.widened(rows.size @ self.slack)

    def __call__(self, rows: Interval) -> Interval:
        """The map itself."""
        found = self.linear(rows)
        return found if self.shift is None else found + Interval.point(self.shift)


@dataclass(frozen=True, eq=False)
class InRows:
    """What each node receives, grouped by receiver like `InEdges`: its in-edges, and the loop that the layer adds."""

    rows: InEdges
    """`edge` is the column whose ω multiplies the row's message, −1 for a loop that no column owns."""
    part: Tensor
    """`[rows]`: the row of `Attention.on_logit` and `on_message` that belongs to it."""

    @staticmethod
    def of(graph: InEdges, layer: Any) -> "InRows":
        """The in-edges without the loops that the layer replaces, and its own loops."""
        nodes = torch.arange(graph.num_nodes, device=graph.edge.device)
        receiver, sender, edge, part = (
            torch.repeat_interleave(nodes, graph.start.diff()),
            graph.sender,
            graph.edge,
            graph.edge,
        )
        owner = getattr(layer, "loop_edge", None)
        if owner is not None:
            is_loop = getattr(layer, "is_loop", None)
            num_edges = len(graph.edge)
            if is_loop is not None:
                kept = ~is_loop[edge]
                receiver, sender, edge, part = (values[kept] for values in (receiver, sender, edge, part))
            receiver, sender = torch.cat([receiver, nodes]), torch.cat([sender, nodes])
            edge, part = torch.cat([edge, owner]), torch.cat([part, num_edges + nodes])
        order = receiver.argsort(stable=True)
        start = torch.zeros(graph.num_nodes + 1, dtype=torch.long, device=edge.device)
        start[1:] = torch.bincount(receiver, minlength=graph.num_nodes).cumsum(0)
        return InRows(InEdges(start, edge[order], sender[order], graph.num_nodes), part[order])

    @property
    def most(self) -> int:
        """The most rows that one node receives, and a few more terms."""
        return int(self.rows.start.diff().max()) + 4 if len(self.rows.start) > 1 else 4


@dataclass(frozen=True, eq=False)
class Attention:
    """A call with attention; all numbers of a row are `[H · channels]`, those of a head `[H]`."""

    source: int
    output: int
    call: int
    layer: Any
    """`AttentionLayer` or `TransformerLayer`."""
    sent: Map
    left: Map | None
    """What logits read of a sender; None: what it sends."""
    right: Map
    own: Map | None
    bias: Tensor | None
    kink: Rectify | None
    """The leaky ReLU of the logits; None for products of queries and keys."""
    folded: TwoSided | None
    """From `[H · channels]` to the logits `[H]`; None if they are `[H]` already (GAT)."""
    factor: float
    """What the logits are divided by."""
    on_logit: Tensor | None
    """`[edges and loops, …]`: what edge features add before the kink."""
    on_message: Tensor | None
    heads: int
    channels: int
    concat: bool

    @property
    def reads(self) -> tuple[int, ...]:
        """The numbers of the values that it reads."""
        return (self.source,)

    def wide(self, of_heads: Interval) -> Interval:
        """Numbers of heads `[rows, H]` for each of their channels."""
        return Interval(*(part.repeat_interleave(self.channels, dim=1) for part in (of_heads.lo, of_heads.hi)))

    def joined(self, rows: Interval) -> Interval:
        """Heads side by side, or their mean."""
        if self.concat:
            return rows
        shape = (-1, self.heads, self.channels)
        pushed = rows.outward(self.heads + 2)
        return Interval(*(part.view(shape).sum(dim=1) / self.heads for part in (pushed.lo, pushed.hi)))


def attention_of(layer: Any, source: int, output: int, call: int) -> Attention:
    """The operation of a lowered layer with attention, in float64."""
    found = _transformer(layer) if isinstance(layer, TransformerLayer) else _gat(layer)
    conv = layer.conv
    sizes = {"heads": conv.heads, "channels": conv.out_channels, "concat": conv.concat}
    return Attention(source, output, call, layer, **found, **sizes)


def _gat(layer: AttentionLayer) -> dict[str, Any]:
    """GAT: leaky(a · s_u + a' · t_v + e); GATv2: a · leaky(s_u + t_v + e)."""
    conv = layer.conv
    sender, receiver = projections(conv)
    slope = torch.tensor(conv.negative_slope, dtype=torch.double, device=sender.weight.device)
    found: dict[str, Any] = {"sent": Map.of(sender.weight, sender.bias), "left": None, "folded": None, "factor": 1.0}
    if isinstance(conv, GATv2Conv):
        found |= {"right": Map.of(receiver.weight, receiver.bias), "folded": TwoSided.of(_by_head(conv.att))}
    else:
        found["left"] = Map.product(_by_head(conv.att_src), sender.weight)
        found["right"] = Map.product(_by_head(conv.att_dst), receiver.weight)
    found["own"] = None if residual_of(conv) is None else Map.of(residual_of(conv).weight)
    found["bias"] = None if conv.bias is None else conv.bias.detach().double()
    found["kink"] = Rectify(-1, -1, slope, torch.ones_like(slope))
    return found | {"on_logit": _parts(layer.edge_part, layer.loop_part), "on_message": None}


def _transformer(layer: TransformerLayer) -> dict[str, Any]:
    """(Q x_v) · (K x_u + e) / √channels."""
    conv = layer.conv
    ones = torch.ones(1, conv.heads, conv.out_channels, dtype=torch.double, device=conv.lin_key.weight.device)
    part = _parts(layer.edge_part, None)
    skip = conv.lin_skip if conv.root_weight else None
    return {
        "sent": Map.of(conv.lin_value.weight, conv.lin_value.bias),
        "left": Map.of(conv.lin_key.weight, conv.lin_key.bias),
        "right": Map.of(conv.lin_query.weight, conv.lin_query.bias),
        "own": None if skip is None else Map.of(skip.weight),
        "bias": None if skip is None or skip.bias is None else skip.bias.detach().double(),
        "kink": None,
        "folded": TwoSided.of(_by_head(ones)),
        "factor": math.sqrt(conv.out_channels),
        "on_logit": part,
        "on_message": part,
    }


def _by_head(vectors: Tensor) -> Tensor:
    """`[H, H · channels]`: the vector of each head beside zeros for the others, from `[1, H, channels]`."""
    vectors = vectors.detach().double()
    return torch.block_diag(*vectors[0].unsqueeze(1).unbind(0)) if vectors.size(1) > 1 else vectors[0]


def _parts(of_edges: Tensor | None, of_loops: Tensor | None) -> Tensor | None:
    """What edge features add, one row for each column and each added loop."""
    if of_edges is None:
        return None
    rows = of_edges if of_loops is None else torch.cat([of_edges, of_loops])
    return rows.detach().double().flatten(1)
