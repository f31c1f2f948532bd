"""SAGEConv and GraphConv: a sum or a mean through one matrix, the node itself through another."""

from functools import partial
from typing import Any

from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv, SAGEConv

from edgewise.lowering.layers.affine import AffineLayer
from edgewise.lowering.layers.coefficients import by_owner, fixed, mean_share
from edgewise.lowering.unsupported import Unsupported
from edgewise.model.trace import Call


def _per_message(conv: Any, call: Call, data: Data) -> Any:
    weight = call.arguments.get("edge_weight")
    if conv.aggr in ("add", "sum"):
        return weight
    if conv.aggr == "mean":
        share = mean_share(call, data)
        return share if weight is None else share * weight
    raise Unsupported(f"{type(conv).__name__} with aggr={conv.aggr!r}")


def lower_sage(conv: SAGEConv, calls: list[Call], data: Data) -> list[Any]:
    """Senders through `lin_l`, the node itself through `lin_r`."""
    if conv.project:
        raise Unsupported("SAGEConv with project=True")
    coefficient, _ = by_owner(calls[0], _per_message(conv, calls[0], data), data)
    root = conv.lin_r.weight.detach() if conv.root_weight else None
    layer = AffineLayer(coefficient, matrix=conv.lin_l.weight.detach(), root=root, bias=fixed(conv.lin_l.bias))
    return [layer, partial(functional.normalize, p=2.0, dim=-1)] if conv.normalize else [layer]


def lower_graph_conv(conv: GraphConv, calls: list[Call], data: Data) -> list[Any]:
    """Senders through `lin_rel`, the node itself through `lin_root`."""
    coefficient, _ = by_owner(calls[0], _per_message(conv, calls[0], data), data)
    return [
        AffineLayer(
            coefficient,
            matrix=conv.lin_rel.weight.detach(),
            root=conv.lin_root.weight.detach(),
            bias=fixed(conv.lin_rel.bias),
        )
    ]
