"""GINConv: a plain sum plus (1 + ε) times the node, then a small network."""

from typing import Any

from torch_geometric.data import Data
from torch_geometric.nn import GINConv, GINEConv

from edgewise.lowering.layers.affine import AffineLayer
from edgewise.lowering.layers.coefficients import by_owner
from edgewise.lowering.row_wise import works_row_by_row
from edgewise.lowering.unsupported import Unsupported
from edgewise.model.trace import Call


def check_network(conv: GINConv | GINEConv, call: Call, data: Data) -> None:
    """The network inside must treat every node by itself."""
    if conv.aggr not in ("add", "sum"):
        raise Unsupported(f"{type(conv).__name__} with aggr={conv.aggr!r}")
    if not works_row_by_row(conv.nn, call.message_width, data.x):
        raise Unsupported(f"the network inside {call.name} mixes nodes")


def lower_gin(conv: GINConv, calls: list[Call], data: Data) -> list[Any]:
    """Σ x + (1 + ε) x, then the network."""
    check_network(conv, calls[0], data)
    coefficient, _ = by_owner(calls[0], None, data)
    return [AffineLayer(coefficient, root=1 + float(conv.eps)), conv.nn]
