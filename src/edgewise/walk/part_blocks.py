"""The blocks of calls side by side: each call has its own on the pairs that it joins, and a step takes their sum.

A state is what a node hands on: the values of its kind, side by side, in one row of the width of the widest kind. A call reads
one of them (its columns `into` the row) and what it sums up stands in columns of its own behind it. Two relations 0 → 1 with
the matrices 2 and 3 that read the same value and are added share their columns: the block of the pair (0, 1) is 2 + 3.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import SettingError
from edgewise.program.hop import Hop
from edgewise.program.ir import MessageStep
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.layers.attention import AttentionLayer
from edgewise.program.layers.base import Tables
from edgewise.pyg_internals import residual_of
from edgewise.walk.geometry import Geometry
from edgewise.walk.lrp import Rule, raised


@dataclass(frozen=True, eq=False)
class PartBlocks:
    """The blocks of some pairs, `[out, in]` each: post · diag(scale) · matrix, or `dense`; what is None is the identity."""

    place: Tensor
    """`[P]`: the number of a pair among those of this part, −1 if it is none."""
    summed: slice
    """The columns of what a node sums up."""
    into: slice
    """The columns of the sender's state."""
    scale: Tensor | None = None
    """`[pairs, 1]` or `[pairs, channels]`."""
    matrix: Tensor | None = None
    post: Tensor | None = None
    dense: Tensor | None = None
    """`[pairs, out, in]`, or, of the first call, `[pairs, out]`: block · features."""
    sent: Tensor | None = None
    """`[rows, channels]`: of the first call, features through the matrix, a row for each node of the senders' kind."""

    def among(self, pair: Tensor) -> tuple[Tensor, Tensor]:
        """`[n]` each: which of some pairs are of this part, and their numbers in it."""
        number = self.place[pair]
        at = (number >= 0).nonzero().view(-1)
        return at, number[at]

    def onward(self, gradient: Tensor, parent: Tensor, number: Tensor) -> Tensor:
        """gradient[parent] · block, `[n, in]`, for gradients `[P, …]` of what is summed up."""
        mine = gradient[:, self.summed]
        if self.dense is not None:
            return torch.einsum("no,noi->ni", mine.index_select(0, parent), self.dense.index_select(0, number))
        assert self.scale is not None
        mine = mine if self.post is None else mine @ self.post
        scale = self.scale.index_select(0, number)
        if scale.size(1) == 1:
            return (mine if self.matrix is None else mine @ self.matrix).index_select(0, parent) * scale
        found = mine.index_select(0, parent) * scale
        return found if self.matrix is None else found @ self.matrix

    def forth(self, rows: Tensor, number: Tensor) -> Tensor:
        """block · rows, `[n, out]`, for a state `[n, …]` of each pair."""
        mine = rows[:, self.into]
        if self.dense is not None:
            return torch.einsum("noi,ni->no", self.dense.index_select(0, number), mine)
        return self._scaled(mine if self.matrix is None else mine @ self.matrix.t(), number)

    def arrivals(self, number: Tensor, row: Tensor) -> Tensor:
        """Of the first call: block · features, `[n, out]`; `row` is that of each pair's sender."""
        if self.dense is not None:
            return self.dense.index_select(0, number)
        assert self.sent is not None
        return self._scaled(self.sent.index_select(0, row), number)

    def _scaled(self, rows: Tensor, number: Tensor) -> Tensor:
        assert self.scale is not None
        found = rows * self.scale.index_select(0, number)
        return found if self.post is None else found @ self.post.t()

    def matrices(self, number: Tensor) -> Tensor:
        """`[n, out, in]`: some blocks in full."""
        if self.dense is not None:
            return self.dense.index_select(0, number)
        assert self.scale is not None
        scale = self.scale.index_select(0, number).unsqueeze(2)
        width = self.into.stop - self.into.start
        inner = torch.eye(width, dtype=scale.dtype, device=scale.device) if self.matrix is None else self.matrix
        return inner * scale if self.post is None else self.post @ (inner * scale)


@dataclass(frozen=True, eq=False)
class CallPlace:
    """Where the blocks of one call go: its pairs, and its columns in the rows before and behind it."""

    geometry: Geometry
    nodes: Tensor | None
    """The nodes of the receivers' kind, by row; None: all."""
    summed: slice
    into: slice
    """The columns of what its senders send."""
    own: slice | None
    """The columns of the receivers' own rows, if they have any in the state."""

    def of_columns(self, column: Tensor) -> tuple[Tensor, Tensor]:
        """`[P]` the numbers of the pairs of some columns, and `[columns]` the number of each column's pair."""
        return self._numbered(self.geometry.edge_pair[column])

    def of_staying(self, loop: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The same for the pairs in which receivers stay; where pairs are not merged, a `loop` in the graph stands for it."""
        pair = self.geometry.own_pair if self.nodes is None else self.geometry.own_pair[self.nodes]
        if loop is not None and not self.geometry.merged:
            pair = torch.where(loop >= 0, self.geometry.edge_pair[loop.clamp(min=0)], pair)
        return self._numbered(pair)

    def _numbered(self, pair: Tensor) -> tuple[Tensor, Tensor]:
        unique, number = pair.unique(return_inverse=True)
        place = torch.full((len(self.geometry),), -1, device=pair.device)
        place[unique] = torch.arange(len(unique), device=pair.device)
        return place, number


def _added(number: Tensor, rows: Tensor) -> Tensor:
    """Rows with the same number, added up (parallel columns)."""
    size = int(number.max()) + 1 if len(number) else 0
    return rows.new_zeros(size, *rows.shape[1:]).index_add_(0, number, rows)


def blocks_of_call(
    step: MessageStep, at: CallPlace, table: Any, hop: Hop, attention: str, rule: Rule
) -> list[PartBlocks]:
    """The blocks of one call: on its edges, and where its receivers stay (added loops, root weights)."""
    layer, gamma = step.layer, rule.gamma(step.call)
    if isinstance(layer, AffineLayer):
        return _affine(layer, at, hop, gamma)
    if isinstance(layer, AttentionLayer) and attention == "fixed":
        return _fixed_attention(layer, at, table, hop, gamma)
    if not rule.is_gradient:
        raise _no_rule(layer, rule)
    return _by_copies(layer, at, table, hop)


def _no_rule(layer: Any, rule: Rule) -> SettingError:
    return SettingError(
        f"rule={rule.name!r} is not defined for {type(layer).__name__.removesuffix('Layer')} layers, only for GCN, "
        f"SAGE, GIN and GraphConv, and for GAT with attention='fixed'. Use rule='gradient'."
    )


def _affine(layer: AffineLayer, at: CallPlace, hop: Hop, gamma: float) -> list[PartBlocks]:
    """One matrix and a number for each pair; loops and roots are blocks where a node stays."""
    matrix = None if layer.matrix is None else raised(layer.matrix.double(), gamma)
    coefficient = torch.ones(len(hop.edge_id), dtype=torch.double, device=hop.edge_id.device)
    if layer.coefficient is not None:
        coefficient = layer.coefficient.double()[hop.edge_id]
    place, number = at.of_columns(hop.edge_id)
    found = [PartBlocks(place, at.summed, at.into, _added(number, coefficient.view(-1, 1)), matrix)]
    if layer.loop is None and layer.root is None:
        return found
    place, number = at.of_staying()
    one = torch.zeros(len(number), 1, dtype=torch.double, device=place.device)
    if layer.loop is not None or isinstance(layer.root, float):
        stays = one if layer.loop is None else layer.loop.double().view(-1, 1)
        stays = stays + layer.root if isinstance(layer.root, float) else stays
        found.append(PartBlocks(place, at.summed, at.into, _added(number, stays), matrix))
    if isinstance(layer.root, Tensor):
        root = raised(layer.root.double(), gamma)
        found.append(PartBlocks(place, at.summed, at.into, _added(number, one + 1), root))
    return found


def _fixed_attention(layer: AttentionLayer, at: CallPlace, table: Any, hop: Hop, gamma: float) -> list[PartBlocks]:
    """Attention as it is: a number for each pair and channel."""
    conv, channels = layer.conv, layer.conv.out_channels
    with torch.no_grad():
        of_edges, of_loop = layer.attention(table, hop)  # [edges, heads], [heads of the hop, heads] or None
    matrix, post = raised(layer.sender_matrix.double(), gamma), None
    if not conv.concat:
        post = torch.eye(channels, dtype=torch.double, device=hop.tail.device).repeat(1, conv.heads) / conv.heads
    place, number = at.of_columns(hop.edge_id)
    scale = _added(number, of_edges.double().repeat_interleave(channels, dim=1))
    found = [PartBlocks(place, at.summed, at.into, scale, matrix, post)]
    if of_loop is not None:
        place, number = at.of_staying(layer.loop_edge)
        scale = _added(number, of_loop.double().repeat_interleave(channels, dim=1))
        found.append(PartBlocks(place, at.summed, at.into, scale, matrix, post))
    if residual_of(conv) is not None and at.own is not None:
        place, number = at.of_staying()
        one = torch.ones(len(number), 1, dtype=torch.double, device=place.device)
        root = raised(residual_of(conv).weight.detach().double(), gamma)
        found.append(PartBlocks(place, at.summed, at.own, _added(number, one), root))
    return found


def _by_copies(layer: Any, at: CallPlace, table: Any, hop: Hop) -> list[PartBlocks]:
    """By derivatives: every receiver gets private copies of the rows that it reads (`block_builder.by_copies`)."""
    edges, heads = len(hop.tail), hop.num_heads
    sent, own = table if isinstance(table, Tables) else (table, table)
    everyone = torch.arange(heads, device=hop.tail.device)
    private = replace(
        hop, tail=torch.arange(edges, device=hop.tail.device), own=None, table_size=edges, _cache={"head": hop.head}
    )
    with torch.enable_grad():
        rows = sent.detach().index_select(0, hop.tail).requires_grad_()
        mine = own.detach().requires_grad_()
        if isinstance(table, Tables):
            output = layer.forward(Tables(rows, mine), private, rows.new_ones(edges), None)
        else:
            private = replace(private, own=edges + everyone, table_size=edges + heads)
            output = layer.forward(torch.cat([rows, mine]), private, rows.new_ones(edges), None)
        columns = [
            torch.autograd.grad(c.sum(), [rows, mine], retain_graph=True, allow_unused=True) for c in output.unbind(1)
        ]
    of_edges = torch.stack([torch.zeros_like(rows) if a is None else a for a, _ in columns], dim=1).double()
    of_own = torch.stack([torch.zeros_like(mine) if b is None else b for _, b in columns], dim=1).double()
    place, number = at.of_columns(hop.edge_id)
    found = [PartBlocks(place, at.summed, at.into, dense=_added(number, of_edges))]
    if at.own is not None:
        place, number = at.of_staying(getattr(layer, "loop_edge", None))
        found.append(PartBlocks(place, at.summed, at.own, dense=_added(number, of_own)))
    return found


def first_of(part: PartBlocks, tangent: Tensor, row: Tensor) -> PartBlocks:
    """Blocks of the first call times the change of what it reads: `tangent` `[rows, in]`, `row` `[P]` that of each sender."""
    if part.dense is not None:
        pair = (part.place >= 0).nonzero().view(-1)
        number = part.place[pair]
        rows = tangent.new_zeros(len(part.dense), tangent.size(1))
        rows[number] = tangent.index_select(0, row[pair])
        return replace(part, dense=torch.einsum("noi,ni->no", part.dense, rows))
    return replace(part, matrix=None, sent=tangent if part.matrix is None else tangent @ part.matrix.t())


def raised_sum(step: MessageStep, tables: list[Tensor], hop: Hop, attention: str, rule: Rule) -> Tensor:
    """`[rows, out]`: q^γ of a call for every receiver, with the bias."""
    layer, gamma = step.layer, rule.gamma(step.call)
    double = [table.double() for table in tables]
    ones = torch.ones(len(hop.tail), dtype=torch.double, device=hop.tail.device)
    if isinstance(layer, AffineLayer):
        root = raised(layer.root.double(), gamma) if isinstance(layer.root, Tensor) else layer.root
        matrix, bias = (raised(None if of is None else of.double(), gamma) for of in (layer.matrix, layer.bias))
        coefficient, loop = (None if of is None else of.double() for of in (layer.coefficient, layer.loop))
        return AffineLayer(coefficient, matrix, loop, root, bias).forward(double[0], hop, ones, None)
    if not isinstance(layer, AttentionLayer) or attention != "fixed":
        raise _no_rule(layer, rule)
    with torch.no_grad():
        of_edges, of_loop = layer.attention(_joined(tables), hop)
    return _raised_attention(layer, double, hop, (of_edges.double(), of_loop), gamma)


def _raised_attention(
    layer: AttentionLayer, tables: list[Tensor], hop: Hop, attention: tuple[Tensor, Tensor | None], gamma: float
) -> Tensor:
    """The same of attention that is held as it is."""
    conv, (of_edges, of_loop) = layer.conv, attention
    matrix = raised(layer.sender_matrix.double(), gamma)
    assert matrix is not None
    sent = (tables[0] @ matrix.t()).view(-1, conv.heads, conv.out_channels)
    messages = sent.index_select(0, hop.tail) * of_edges.unsqueeze(2)
    total = messages.new_zeros(hop.num_heads, *messages.shape[1:]).index_add_(0, hop.head, messages)
    if of_loop is not None:
        total = total + hop.own_rows(sent) * of_loop.double().unsqueeze(2)
    inner = getattr(conv, "lin_l", None)
    if inner is not None and inner.bias is not None:  # attention sums to one, where anything is received
        share = of_edges.new_zeros(hop.num_heads, conv.heads).index_add_(0, hop.head, of_edges)
        share = share if of_loop is None else share + of_loop.double()
        bias = raised(inner.bias.detach().double(), gamma)
        assert bias is not None
        total = total + share.unsqueeze(2) * bias.view(1, conv.heads, conv.out_channels)
    found = total.flatten(1) if conv.concat else total.mean(dim=1)
    if residual_of(conv) is not None:
        root = raised(residual_of(conv).weight.detach().double(), gamma)
        assert root is not None
        found = found + hop.own_rows(tables[-1]) @ root.t()
    bias = None if conv.bias is None else raised(conv.bias.detach().double(), gamma)
    return found if bias is None else found + bias


def _joined(tables: list[Tensor]) -> Any:
    return tables[0] if len(tables) == 1 else Tables(*tables)
