"""Coefficients of messages, read off what a layer handed to `propagate`, by the edge that owns each message."""

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.lowering.unsupported import Unsupported
from edgewise.model.trace import Call


def by_owner(call: Call, per_message: Tensor | None, data: Data) -> tuple[Tensor | None, Tensor | None]:
    """`[E]` for edges and `[N]` for added self-loops; None where all are 1, or no loop was added."""
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
    """Refuse a call that left edges out (other than loops, which some layers replace)."""
    source, receiver = data.edge_index
    wanted = int((source != receiver).sum())
    edges = call.slots[call.slots < data.edge_index.size(1)]
    if int((source[edges] != receiver[edges]).sum()) != wanted:
        raise Unsupported(f"{call.name} is called with some of the edges only")


def mean_share(call: Call, data: Data) -> Tensor:
    """`[messages]`: 1 / number of messages that the receiver hears."""
    ends = data.edge_index[0 if call.module.flow == "target_to_source" else 1]
    receiver = torch.cat([ends, torch.arange(data.num_nodes, device=ends.device)])[call.slots]
    count = torch.bincount(receiver, minlength=data.num_nodes).clamp(min=1)
    return (1 / count.to(call.dtype))[receiver]


def fixed(parameter: Tensor | None) -> Tensor | None:
    """A parameter that is not differentiated."""
    return None if parameter is None else parameter.detach()
