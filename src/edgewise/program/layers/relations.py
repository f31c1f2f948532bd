"""RGCNConv and FastRGCNConv: an affine layer for each relation, side by side.

    z_v = Σ_r B_r Σ_{e of r} ω_e c_e x_u + R x_v + b

An own term of these layers is not known (`model/messages.py`), so R x_v is a step of its own that s does not scale.
"""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import FastRGCNConv, RGCNConv

from edgewise.model.data_flow import Call
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.layers.affine_convs import by_owner, fixed, mean_share
from edgewise.program.layers.base import OfColumns, SideBySide, Unsupported


def lower_rgcn(conv: RGCNConv, calls: list[Call], data: Data) -> list[Any]:
    """A call for each relation, each with a matrix of its own; a relation without edges makes a call, too."""
    if len(calls) != conv.num_relations:
        raise Unsupported(f"{calls[0].name} makes {len(calls)} calls for {conv.num_relations} relations")
    matrices = _matrices(conv, calls[0])
    layers = []
    for number, (call, matrix) in enumerate(zip(calls, matrices, strict=True)):
        coefficient, loop = by_owner(call, _share(conv, call, data), data)
        if loop is not None:
            raise Unsupported(f"{call.name} adds loops")
        layers.append(OfColumns(AffineLayer(coefficient, matrix, bias=_first(conv.bias, number)), number))
    return [SideBySide(tuple(layers), _root(conv))]


def lower_fast_rgcn(conv: FastRGCNConv, calls: list[Call], data: Data) -> list[Any]:
    """One call on all columns, with a matrix for the relation of each."""
    (call,) = calls
    relation = call.arguments.get("edge_type")
    if not isinstance(relation, Tensor) or relation.dim() != 1 or relation.is_floating_point():
        raise Unsupported(f"{call.name} reads no relation of each column")
    matrices = _matrices(conv, call)
    num_edges = data.edge_index.size(1)
    if bool((call.slots >= num_edges).any()):
        raise Unsupported(f"{call.name} adds loops")
    of_column = torch.full((num_edges,), -1, device=relation.device)
    of_column[call.slots] = relation.long()
    coefficient, _ = by_owner(call, _fast_share(conv, call, data, relation), data)
    return [
        SideBySide(
            tuple(
                OfColumns(AffineLayer(coefficient, matrix, bias=_first(conv.bias, number)), 0, of_column == number)
                for number, matrix in enumerate(matrices)
            ),
            _root(conv),
        )
    ]


def _matrices(conv: RGCNConv, call: Call) -> list[Tensor]:
    """`[out, in]` for each relation; bases are combined, blocks stand on the diagonal."""
    x = call.arguments.get("x")
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise Unsupported(f"{call.name} reads node numbers, or a pair of features")
    weight = conv.weight.detach()
    if conv.num_bases is not None:
        weight = (conv.comp.detach() @ weight.flatten(1)).view(
            conv.num_relations, conv.in_channels_l, conv.out_channels
        )
    if conv.num_blocks is not None:
        return [torch.block_diag(*blocks).t().contiguous() for blocks in weight]
    return [matrix.t().contiguous() for matrix in weight]


def _share(conv: RGCNConv, call: Call, data: Data) -> Tensor | None:
    """`[messages]`: the share of a mean over those of the same relation; None: 1."""
    if conv.aggr in ("add", "sum"):
        return None
    if conv.aggr == "mean":
        return mean_share(call, data)
    raise Unsupported(f"{type(conv).__name__} with aggr={conv.aggr!r}")


def _fast_share(conv: FastRGCNConv, call: Call, data: Data, relation: Tensor) -> Tensor | None:
    """The same where all relations are in one call: the mean is over the messages of one relation."""
    if conv.aggr in ("add", "sum"):
        return None
    if conv.aggr != "mean":
        raise Unsupported(f"{type(conv).__name__} with aggr={conv.aggr!r}")
    receiver = data.edge_index[0 if call.flow == "target_to_source" else 1][call.slots]
    key = relation.long() * data.num_nodes + receiver
    _, place, count = key.unique(return_inverse=True, return_counts=True)
    return 1 / count.to(call.dtype)[place]


def _root(conv: RGCNConv) -> Tensor | None:
    return None if conv.root is None else conv.root.detach().t().contiguous()


def _first(bias: Tensor | None, number: int) -> Tensor | None:
    """The bias goes with the first relation: it is added once."""
    return fixed(bias) if number == 0 else None
