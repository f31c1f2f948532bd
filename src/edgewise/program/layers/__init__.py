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

from edgewise.model.trace import Call
from edgewise.program.layers.affine_convs import lower_gcn, lower_gin, lower_graph_conv, lower_sage, lower_sgc
from edgewise.program.layers.attention import lower_attention
from edgewise.program.layers.base import Unsupported
from edgewise.program.layers.gine import lower_gine

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
