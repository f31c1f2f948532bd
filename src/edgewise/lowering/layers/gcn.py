"""GCNConv and SGConv: normalised sums, a node hears itself through an added loop."""

from functools import partial
from typing import Any

from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SGConv

from edgewise.lowering.layers.affine import AffineLayer
from edgewise.lowering.layers.coefficients import by_owner, fixed
from edgewise.lowering.unsupported import Unsupported
from edgewise.model.trace import Call


def lower_gcn(conv: GCNConv, calls: list[Call], data: Data) -> list[Any]:
    """B Σ c x + b."""
    if conv.aggr not in ("add", "sum"):
        raise Unsupported(f"GCNConv with aggr={conv.aggr!r}")
    coefficient, loop = by_owner(calls[0], calls[0].arguments.get("edge_weight"), data)
    return [AffineLayer(coefficient, matrix=conv.lin.weight.detach(), loop=loop, bias=fixed(conv.bias))]


def lower_sgc(conv: SGConv, calls: list[Call], data: Data) -> list[Any]:
    """K sums, then one matrix."""
    if conv.aggr not in ("add", "sum"):
        raise Unsupported(f"SGConv with aggr={conv.aggr!r}")
    owned = [by_owner(call, call.arguments.get("edge_weight"), data) for call in calls]
    sums = [AffineLayer(coefficient, loop=loop) for coefficient, loop in owned]
    return [*sums, partial(functional.linear, weight=conv.lin.weight.detach(), bias=fixed(conv.lin.bias))]
