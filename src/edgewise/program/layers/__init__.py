"""Known layers, and the table of them.

Start with `base.py` (what a layer can do) and `affine.py` (most layers). A module that is not in the table is left to the model
itself, or to walks (`module.py`).
"""

from collections.abc import Callable
from typing import Any

from torch_geometric.data import Data
from torch_geometric.nn import (
    FastRGCNConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphConv,
    MessagePassing,
    RGCNConv,
    SAGEConv,
    SGConv,
    TransformerConv,
)

from edgewise.model.data_flow import Call
from edgewise.program.layers.affine_convs import lower_gcn, lower_gin, lower_graph_conv, lower_sage, lower_sgc
from edgewise.program.layers.attention import lower_attention
from edgewise.program.layers.base import Unsupported
from edgewise.program.layers.gine import lower_gine
from edgewise.program.layers.relations import lower_fast_rgcn, lower_rgcn
from edgewise.program.layers.transformer import lower_transformer

_KNOWN: dict[type, Callable[..., list[Any]]] = {
    GCNConv: lower_gcn,
    SGConv: lower_sgc,
    SAGEConv: lower_sage,
    GraphConv: lower_graph_conv,
    GINConv: lower_gin,
    GINEConv: lower_gine,
    GATConv: lower_attention,
    GATv2Conv: lower_attention,
    TransformerConv: lower_transformer,
    RGCNConv: lower_rgcn,
    FastRGCNConv: lower_fast_rgcn,
}

SIDE_BY_SIDE = (RGCNConv, FastRGCNConv)
"""Layers that are several layers on parts of the columns, whatever calls they make."""


def lower_layer(module: MessagePassing, calls: list[Call], data: Data) -> list[Any]:
    """A module as a list of `Layer`s and row-wise functions, in the order in which they run.

    `calls` are the message-passing calls that were recorded inside the module (SGC makes several). Only the very classes of PyG
    are known, because a subclass may do anything; `Unsupported` says what is not.
    """
    if type(module) not in _KNOWN:
        raise Unsupported(f"{type(module).__name__} is not among the lowered layers")
    return _KNOWN[type(module)](module, calls, data)
