"""From layers to blocks: affine layers and fixed attention by their factors, anything else by derivatives.

Which factors of `Blocks` a layer fills in (E edges, N nodes, P pairs):

| layer | scale | matrix | root | post |
|---|---|---|---|---|
| GCN | normalised weights of edges, loops where a node stays, `[P, 1]` | W | - | - |
| SAGE, GraphConv | 1, 1/degree or the edge weight, `[P, 1]` | W of neighbours | W of the root | - |
| GIN | 1 for edges, 1 + ε where a node stays, `[P, 1]` | - | - | - |
| GAT, attention fixed | attention of a channel's head, `[P, channels]` | W of senders | residual | mean of heads |
| GINE | 1 where the message's ReLU is open, + 1 + ε where a node stays, `[P, in]` | - | - | - |
| GAT and TransformerConv in full | `dense`, `[P, out, in]`, by `attention_blocks` | | | |
| others | `dense`, by `by_copies` | | | |

Example: call 1 of `edgewise.examples.triangle_model` (SAGE, sum, W = 3, root −1) on 0 → 1, 1 → 2, 0 → 2. `coefficient` is None:
every column counts 1, so the six pairs of `geometry.py` have scale 0, 1, 0, 1, 1, 0; matrix is [[3]], root is [[−1]].

Example of `by_copies` on the same call: node 2 reads 0, 1 and itself, node 1 reads 0 and itself. The derivative at the shared
row of node 0 would mix what it sends to 1 and to 2. So every edge gets a private copy of its sender's row, and every node one
of its own: the E + N = 6 copies are rows of (0, 1, 0) and (0, 1, 2). One backward pass per output column then gives the
derivative at each copy, and each copy belongs to one pair.
"""

import torch
from torch import Tensor

from edgewise.errors import SettingError
from edgewise.program.hop import Hop
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.layers.attention import AttentionLayer
from edgewise.program.layers.base import Layer
from edgewise.program.layers.gine import EdgeReluLayer
from edgewise.pyg_internals import residual_of
from edgewise.walk.attention_blocks import attention_blocks, has_closed_form
from edgewise.walk.blocks import Blocks
from edgewise.walk.geometry import Geometry
from edgewise.walk.lrp import Rule, raised


def allows_staying(layer: Layer, attention: str) -> bool:
    """Whether a walk can stay on a node in this layer: by an added loop, a root weight or the layer's own residual.

    Layers that are differentiated as a whole (the last line) may use the receiver's own features anywhere.
    """
    if isinstance(layer, AffineLayer):
        return layer.loop is not None or layer.root is not None
    if isinstance(layer, AttentionLayer) and attention == "fixed":
        return layer.loop_edge is not None or residual_of(layer.conv) is not None
    return True


def blocks_of(
    layer: Layer, geometry: Geometry, table: Tensor, hop: Hop, attention: str, rule: Rule, gamma: float
) -> Blocks:
    """The blocks of a call from what it reads to what it sums up, without what happens at nodes in between.

    Args:
        layer: The layer of the call.
        geometry: Its pairs.
        table: `[N, in]`, what the call reads.
        hop: The edges of the call, grouped by receiver.
        attention: `"full"` or `"fixed"`.
        rule: The gradient or an LRP rule; rules are defined for layers with factors only.
        gamma: γ of this call.
    """
    width = table.size(1)
    if isinstance(layer, AffineLayer):
        return _affine(layer, geometry, table, gamma)
    if isinstance(layer, AttentionLayer) and attention == "fixed":
        return _fixed_attention(layer, geometry, table, hop, gamma)
    if not rule.is_gradient:
        raise SettingError(
            f"rule={rule.name!r} is not defined for {type(layer).__name__.removesuffix('Layer')} layers, only for GCN, "
            f"SAGE, GIN and GraphConv, and for GAT with attention='fixed'. Use rule='gradient'."
        )
    if isinstance(layer, EdgeReluLayer):
        return Blocks(geometry, _patterns(layer, geometry, table, hop), width=width)
    dense = (attention_blocks if has_closed_form(layer) else by_copies)(layer, geometry, table, hop)
    return Blocks(geometry, None, dense=dense, width=width)


def _affine(layer: AffineLayer, geometry: Geometry, table: Tensor, gamma: float) -> Blocks:
    """GCN, SAGE, GraphConv, GIN, SGC: one matrix, a number per pair; a root is a matrix or a number (1 + ε of GIN)."""
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
    """GAT with its softmax held as it is: then a head is a number per pair, and the layer is linear in the senders."""
    conv = layer.conv
    with torch.no_grad():
        found, of_loop = layer.attention(table, hop)  # [E, heads] in the order of the hop, [N, heads] or None
    channels = conv.out_channels
    attention = torch.empty_like(found).index_copy_(0, hop.edge_id, found).double()  # [E, heads], by column
    wide = attention.repeat_interleave(channels, dim=1)  # [E, heads · channels]
    own = None if of_loop is None else of_loop.double().repeat_interleave(channels, dim=1)
    if own is not None and not geometry.merged:
        wide, own = _to_their_loops(layer, wide, own)
    scale = geometry.summed(wide, own, wide)
    post = None
    if not conv.concat:
        post = torch.eye(channels, dtype=torch.double, device=table.device).repeat(1, conv.heads) / conv.heads
    root = None if residual_of(conv) is None else _double(residual_of(conv).weight.detach())
    return Blocks(
        geometry, scale, raised(layer.sender_matrix.double(), gamma), raised(root, gamma), post, width=table.size(1)
    )


def _to_their_loops(layer: AttentionLayer, of_edges: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers of columns and of staying, where pairs are not merged: the message v → v belongs to the loop in the graph.

    GAT removes loops from the input and adds its own; if the graph has a loop, its column takes the added loop's number.
    """
    assert layer.loop_edge is not None
    has = layer.loop_edge >= 0
    of_edges, own = of_edges.clone(), own.clone()
    of_edges[layer.loop_edge[has]] = own[has]
    own[has] = 0
    return of_edges, own


def _patterns(layer: EdgeReluLayer, geometry: Geometry, table: Tensor, hop: Hop) -> Tensor:
    """GINE sums relu(x_u + edge features): 1 for each channel of a message that is open, `[P, in]`, plus 1 + ε for staying."""
    alive = (table.index_select(0, hop.tail) + layer.edge_features.index_select(0, hop.edge_id)) > 0  # [E, in]
    of_edges = torch.empty_like(alive).index_copy_(0, hop.edge_id, alive).double()
    own = layer.root.double().expand(geometry.num_nodes, table.size(1))
    return geometry.summed(of_edges, own, of_edges)


def by_copies(layer: Layer, geometry: Geometry, table: Tensor, hop: Hop, along: Tensor | None = None) -> Tensor:
    """`[P, out, in]` by derivatives: every receiver gets private copies of the rows it reads (see the module's example).

    With `along` (`[N, in]`, the change along the features) the blocks are multiplied with it at once: `[P, out]`.
    """
    edges, nodes = len(hop.tail), geometry.num_nodes
    everyone = torch.arange(nodes, device=table.device)
    source = torch.cat([hop.tail, everyone])  # [E + N]: whose row a copy is
    private = Hop(
        hop.start, torch.arange(edges, device=table.device), hop.edge_id,
        edges + everyone, everyone, edges + nodes,
    )  # fmt: skip
    own_place = geometry.own_places(getattr(layer, "loop_edge", None))
    place = torch.cat([geometry.edge_pair[hop.edge_id], own_place])  # [E + N]: the pair of each copy
    changes = None if along is None else along.double().index_select(0, source)
    with torch.enable_grad():
        rows = table.detach().index_select(0, source).requires_grad_()
        output = layer.forward(rows, private, rows.new_ones(edges), None)  # [N, out]
        columns = []  # out times [P, in] (with `along`: [P])
        for column in output.unbind(1):
            (found,) = torch.autograd.grad(column.sum(), rows, retain_graph=True)
            found = found.double()
            if changes is not None:
                found = torch.linalg.vecdot(found, changes)
            columns.append(found.new_zeros(len(geometry), *found.shape[1:]).index_add_(0, place, found))
    return torch.stack(columns, dim=1)


def _double(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.double()
