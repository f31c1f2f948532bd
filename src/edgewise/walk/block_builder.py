"""From layers to blocks: affine layers by their factors, anything else by derivatives at private copies of the senders."""

import torch
from torch import Tensor

from edgewise.errors import SettingError
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.layers.attention import AttentionLayer
from edgewise.program.layers.base import Layer
from edgewise.program.layers.gine import EdgeReluLayer
from edgewise.program.levels import Hop
from edgewise.walk.blocks import Blocks
from edgewise.walk.geometry import Geometry
from edgewise.walk.lrp import Rule, raised


def hears_itself(layer: Layer, attention: str) -> bool:
    """Whether the layer's own terms let a walk stay on a node."""
    if isinstance(layer, AffineLayer):
        return layer.loop is not None or layer.root is not None
    if isinstance(layer, AttentionLayer) and attention == "fixed":
        return layer.loop_edge is not None or layer.conv.res is not None
    return True


def blocks_of(
    layer: Layer, geometry: Geometry, table: Tensor, hop: Hop, attention: str, rule: Rule, gamma: float
) -> Blocks:
    """The blocks of a call, without what happens at nodes; `table` is what it reads."""
    width = table.size(1)
    if isinstance(layer, AffineLayer):
        return _affine(layer, geometry, table, gamma)
    if isinstance(layer, AttentionLayer) and attention == "fixed":
        return _fixed_attention(layer, geometry, table, hop, gamma)
    if not rule.is_gradient:
        raise SettingError(
            f"rule={rule.name!r} is not defined for {type(layer).__name__.removesuffix('Layer')} layers. It is for GCN, "
            f"SAGE, GIN and GraphConv, and for GAT with attention='fixed'; for others use rule='gradient'."
        )
    if isinstance(layer, EdgeReluLayer):
        return Blocks(geometry, _patterns(layer, geometry, table, hop), width=width)
    return Blocks(geometry, None, dense=by_copies(layer, geometry, table, hop), width=width)


def _affine(layer: AffineLayer, geometry: Geometry, table: Tensor, gamma: float) -> Blocks:
    root = layer.root if isinstance(layer.root, Tensor) else None
    own = None if layer.loop is None else layer.loop.double()
    if isinstance(layer.root, float):
        own = torch.zeros(geometry.num_nodes, dtype=torch.double, device=table.device) if own is None else own
        own = own + layer.root
    coefficient = None if layer.coefficient is None else layer.coefficient.double()
    scale = geometry.summed(coefficient, own, torch.zeros(0, dtype=torch.double, device=table.device))
    matrix = raised(_double(layer.matrix), gamma)
    return Blocks(geometry, scale.unsqueeze(1), matrix, raised(_double(root), gamma), width=table.size(1))


def _fixed_attention(layer: AttentionLayer, geometry: Geometry, table: Tensor, hop: Hop, gamma: float) -> Blocks:
    conv = layer.conv
    with torch.no_grad():
        found, of_loop = layer.attention(table, hop)
    channels = conv.out_channels
    attention = torch.empty_like(found).index_copy_(0, hop.edge_id, found).double()
    wide = attention.repeat_interleave(channels, dim=1)
    own = None if of_loop is None else of_loop.double().repeat_interleave(channels, dim=1)
    if own is not None and not geometry.merged:
        wide, own = _to_their_loops(layer, wide, own)
    scale = geometry.summed(wide, own, wide)
    post = None
    if not conv.concat:
        post = torch.eye(channels, dtype=torch.double, device=table.device).repeat(1, conv.heads) / conv.heads
    root = None if conv.res is None else _double(conv.res.weight.detach())
    return Blocks(
        geometry, scale, raised(layer.sender_matrix.double(), gamma), raised(root, gamma), post, width=table.size(1)
    )


def _to_their_loops(layer: AttentionLayer, of_edges: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """An explicit loop owns the v→v message, whatever the layer put in its place."""
    assert layer.loop_edge is not None
    has = layer.loop_edge >= 0
    of_edges, own = of_edges.clone(), own.clone()
    of_edges[layer.loop_edge[has]] = own[has]
    own[has] = 0
    return of_edges, own


def _patterns(layer: EdgeReluLayer, geometry: Geometry, table: Tensor, hop: Hop) -> Tensor:
    """GINE: which channels of each message are alive."""
    alive = (table.index_select(0, hop.tail) + layer.edge_features.index_select(0, hop.edge_id)) > 0
    of_edges = torch.empty_like(alive).index_copy_(0, hop.edge_id, alive).double()
    own = layer.root.double().expand(geometry.num_nodes, table.size(1))
    return geometry.summed(of_edges, own, of_edges)


def by_copies(layer: Layer, geometry: Geometry, table: Tensor, hop: Hop, along: Tensor | None = None) -> Tensor:
    """`[pairs, out, in]` by derivatives: every receiver gets its own copies of those it hears, and of itself.

    With `along` (`[N, in]`) the blocks are multiplied with it at once: `[pairs, out]`.
    """
    edges, nodes = len(hop.tail), geometry.num_nodes
    everyone = torch.arange(nodes, device=table.device)
    source = torch.cat([hop.tail, everyone])
    private = Hop(
        hop.start, torch.arange(edges, device=table.device), hop.edge_id,
        edges + everyone, everyone, edges + nodes,
    )  # fmt: skip
    own_place = geometry.own_pair
    if not geometry.merged and isinstance(layer, AttentionLayer) and layer.loop_edge is not None:
        has = layer.loop_edge >= 0
        own_place = own_place.clone()
        own_place[has] = geometry.edge_pair[layer.loop_edge[has]]
    place = torch.cat([geometry.edge_pair[hop.edge_id], own_place])
    with torch.enable_grad():
        rows = table.detach().index_select(0, source).requires_grad_()
        output = layer.forward(rows, private, rows.new_ones(edges), None)
        columns = []
        for column in output.unbind(1):
            (found,) = torch.autograd.grad(column.sum(), rows, retain_graph=True)
            found = found.double()
            if along is not None:
                found = (found * along.double().index_select(0, source)).sum(dim=1)
            columns.append(found.new_zeros(len(geometry), *found.shape[1:]).index_add_(0, place, found))
    return torch.stack(columns, dim=1)


def _double(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.double()
