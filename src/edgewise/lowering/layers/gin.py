"""GINConv: a plain sum plus (1 + ε) times the node, then a small network."""

from typing import Any

from torch_geometric.data import Data
from torch_geometric.nn import GINConv, GINEConv

from edgewise.lowering.layers.affine import AffineLayer
from edgewise.lowering.layers.coefficients import by_owner
from edgewise.lowering.row_wise import RowFunction, read_row_function
from edgewise.lowering.unsupported import Unsupported
from edgewise.model.trace import Call


def inner_network(conv: GINConv | GINEConv, call: Call, data: Data) -> RowFunction:
    """The network inside, which must treat every node by itself."""
    if conv.aggr not in ("add", "sum"):
        raise Unsupported(f"{type(conv).__name__} with aggr={conv.aggr!r}")
    network = read_row_function(conv.nn, call.arguments["x"][0])
    if network is None:
        raise Unsupported(f"the network inside {call.name} mixes nodes")
    return network


def lower_gin(conv: GINConv, calls: list[Call], data: Data) -> list[Any]:
    """Σ x + (1 + ε) x, then the network; its first linear map belongs to the sum, so that features are projected once."""
    network = inner_network(conv, calls[0], data)
    coefficient, _ = by_owner(calls[0], None, data)
    root = 1 + float(conv.eps)
    first = network.split_linear()
    if first is None:
        return [AffineLayer(coefficient, root=root), network]
    matrix, bias, rest = first
    return [AffineLayer(coefficient, matrix=matrix, root=root, bias=bias), rest]
