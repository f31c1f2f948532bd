"""GCN, SGC, GIN, SAGE and GraphConv as `AffineLayer`s.

A layer's own normalisation (degrees, means, edge weights) is not computed again: the coefficients are read off what the layer
passed to `propagate` in the recorded pass, by the edge that owns each message (`by_owner`). Every `lower_…` takes the module,
its recorded calls and the graph, and returns the steps that stand for it.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GINConv, GINEConv, GraphConv, SAGEConv, SGConv

from edgewise.model.data_flow import Call
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.layers.base import Unsupported
from edgewise.program.row_function import RowFunction, read_row_function


def by_owner(call: Call, per_message: Tensor | None, data: Data) -> tuple[Tensor | None, Tensor | None]:
    """`[E]` for edges and `[N]` for added self-loops; None where all are 1, or no loop was added.

    `per_message` has a number for each message, in the order in which the layer sent them; `call.slots` says which edge (or,
    from E on, which node's loop) owns each. GCN on the path 0 → 1 → 2 with loops sends five messages with the slots
    (0, 1, 2, 3, 4): the first two numbers are those of the edges, the others those of the loops.
    """
    num_edges = data.edge_index.size(1)
    adds_loops = bool((call.slots >= num_edges).any())
    whole = not adds_loops and call.slots.numel() == num_edges
    if per_message is None and whole:
        return None, None
    values = torch.ones_like(call.slots, dtype=call.dtype) if per_message is None else per_message.detach().view(-1)
    owned = values.new_zeros(num_edges + data.num_nodes)  # an edge that sent nothing (a loop that GCN dropped) has 0
    owned[call.slots] = values
    return owned[:num_edges], owned[num_edges:] if adds_loops else None


def check_every_edge(call: Call, data: Data) -> None:
    """Raise `Unsupported` for a call that left edges out (other than loops, which some layers replace)."""
    source, receiver = data.edge_index
    wanted = int((source != receiver).sum())
    edges = call.slots[call.slots < data.edge_index.size(1)]
    if int((source[edges] != receiver[edges]).sum()) != wanted:
        raise Unsupported(f"{call.name} is called with some of the edges only")


def mean_share(call: Call, data: Data) -> Tensor:
    """`[messages]`: 1 / number of messages that the receiver gets."""
    ends = data.edge_index[0 if call.flow == "target_to_source" else 1]
    receiver = torch.cat([ends, torch.arange(data.num_nodes, device=ends.device)])[call.slots]
    count = torch.bincount(receiver, minlength=data.num_nodes).clamp(min=1)
    return (1 / count.to(call.dtype))[receiver]


def fixed(parameter: Tensor | None) -> Tensor | None:
    """A copy of a parameter without its gradient; None stays None.

    A copy, because arrays are made of it, and torch marks memory that numpy shares as fixed in size for good.
    """
    return None if parameter is None else parameter.detach().clone()


# --- GCNConv and SGConv: normalised sums, the node itself through an added loop ----------------------------------------


def lower_gcn(conv: GCNConv, calls: list[Call], data: Data) -> list[Any]:
    """B Σ c x + b, with c = 1 / √(degree of u · degree of v)."""
    if conv.aggr not in ("add", "sum"):
        raise Unsupported(f"GCNConv with aggr={conv.aggr!r}")
    coefficient, loop = by_owner(calls[0], calls[0].arguments.get("edge_weight"), data)
    return [AffineLayer(coefficient, matrix=fixed(conv.lin.weight), loop=loop, bias=fixed(conv.bias))]


def lower_sgc(conv: SGConv, calls: list[Call], data: Data) -> list[Any]:
    """K normalised sums (calls), then one matrix."""
    if conv.aggr not in ("add", "sum"):
        raise Unsupported(f"SGConv with aggr={conv.aggr!r}")
    owned = [by_owner(call, call.arguments.get("edge_weight"), data) for call in calls]
    sums = [AffineLayer(coefficient, loop=loop) for coefficient, loop in owned]
    return [*sums, RowFunction.of(functional.linear, weight=conv.lin.weight.detach(), bias=fixed(conv.lin.bias))]


# --- GINConv: a plain sum plus (1 + ε) times the node, then a small network --------------------------------------------


def inner_network(conv: GINConv | GINEConv, call: Call, data: Data) -> RowFunction:
    """The network inside a GIN, as row-wise operations; it must treat every node by itself."""
    if conv.aggr not in ("add", "sum"):
        raise Unsupported(f"{type(conv).__name__} with aggr={conv.aggr!r}")
    network = read_row_function(conv.nn, call.arguments["x"][0])
    if network is None:
        raise Unsupported(f"the network inside {call.name} mixes nodes")
    return network


def lower_gin(conv: GINConv, calls: list[Call], data: Data) -> list[Any]:
    """Σ x_u + (1 + ε) x_v, then the network.

    A first linear map of the network becomes the matrix of the sum: B (Σ x_u + (1 + ε) x_v) + b. Features that are the same for
    all targets are then projected once.
    """
    network = inner_network(conv, calls[0], data)
    coefficient, _ = by_owner(calls[0], None, data)
    root = 1 + float(conv.eps)
    first = network.split_linear()
    if first is None:
        return [AffineLayer(coefficient, root=root), network]
    matrix, bias, rest = first
    return [AffineLayer(coefficient, matrix=matrix, root=root, bias=bias), rest]


# --- SAGEConv and GraphConv: a sum or a mean through one matrix, the node itself through another -----------------------


def _per_message(conv: Any, call: Call, data: Data) -> Any:
    """`[messages]`: edge weight, times the share of a mean; None: all 1."""
    weight = call.arguments.get("edge_weight")
    if conv.aggr in ("add", "sum"):
        return weight
    if conv.aggr == "mean":
        share = mean_share(call, data)
        return share if weight is None else share * weight
    raise Unsupported(f"{type(conv).__name__} with aggr={conv.aggr!r}")


def lower_sage(conv: SAGEConv, calls: list[Call], data: Data) -> list[Any]:
    """Senders through `lin_l`, the node itself through `lin_r`; with `normalize=True` rows are scaled to length 1."""
    if conv.project:
        raise Unsupported("SAGEConv with project=True")
    coefficient, _ = by_owner(calls[0], _per_message(conv, calls[0], data), data)
    root = fixed(conv.lin_r.weight) if conv.root_weight else None
    layer = AffineLayer(coefficient, matrix=fixed(conv.lin_l.weight), root=root, bias=fixed(conv.lin_l.bias))
    return [layer, RowFunction.of(functional.normalize, p=2.0, dim=-1)] if conv.normalize else [layer]


def lower_graph_conv(conv: GraphConv, calls: list[Call], data: Data) -> list[Any]:
    """Senders through `lin_rel`, the node itself through `lin_root`."""
    coefficient, _ = by_owner(calls[0], _per_message(conv, calls[0], data), data)
    return [
        AffineLayer(
            coefficient,
            matrix=fixed(conv.lin_rel.weight),
            root=fixed(conv.lin_root.weight),
            bias=fixed(conv.lin_rel.bias),
        )
    ]
