"""Known layers, a small file each, and the table of them."""

from collections.abc import Callable
from typing import Any

from torch_geometric.data import Data
from torch_geometric.nn import (
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphConv,
    MessagePassing,
    SAGEConv,
    SGConv,
)

from edgewise.lowering.layers.attention import lower_attention
from edgewise.lowering.layers.gcn import lower_gcn, lower_sgc
from edgewise.lowering.layers.gin import lower_gin
from edgewise.lowering.layers.gine import lower_gine
from edgewise.lowering.layers.sage import lower_graph_conv, lower_sage
from edgewise.lowering.unsupported import Unsupported
from edgewise.model.trace import Call

_KNOWN: dict[type, Callable[..., list[Any]]] = {
    GCNConv: lower_gcn,
    SGConv: lower_sgc,
    SAGEConv: lower_sage,
    GraphConv: lower_graph_conv,
    GINConv: lower_gin,
    GINEConv: lower_gine,
    GATConv: lower_attention,
    GATv2Conv: lower_attention,
}


def lower_layer(module: MessagePassing, calls: list[Call], data: Data) -> list[Any]:
    """A layer as a list of `Layer`s and row-wise functions; only the very classes of PyG, a subclass may do anything."""
    if type(module) not in _KNOWN:
        raise Unsupported(f"{type(module).__name__} is not among the lowered layers")
    return _KNOWN[type(module)](module, calls, data)
