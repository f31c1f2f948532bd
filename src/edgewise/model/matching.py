"""Which edge owns which message: matched by the `edge_index` that the layer really used, never by position or count."""

import torch
from torch import Tensor

from edgewise.errors import ModelError
from edgewise.shapes import Slots


def _occurrence(keys: Tensor) -> Tensor:
    """How many equal keys stand before each one: parallel edges in order of occurrence."""
    order = keys.argsort(stable=True)
    ordered = keys[order]
    first = torch.searchsorted(ordered, ordered)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(keys), device=keys.device) - first
    return rank


def match_messages(used: Tensor, given: Tensor, num_nodes: int, layer: str) -> Slots:
    """The column of `given` that owns each message of `used`, or `edges + node` for a self edge that the layer added.

    The v→v message belongs to an explicit loop if there is one; a layer that keeps fewer loops than there are
    (GCN, GAT) keeps the last ones.

    >>> import torch
    >>> given = torch.tensor([[0, 1, 1], [1, 0, 1]])            # 0→1, 1→0 and an explicit loop on 1
    >>> used = torch.tensor([[0, 1, 0, 1], [1, 0, 0, 1]])       # what a GCN makes of it: loops last
    >>> match_messages(used, given, 2, "conv")
    tensor([0, 1, 3, 2])
    """
    num_edges = given.size(1)
    if used.shape == given.shape and torch.equal(used, given):
        return torch.arange(num_edges, device=given.device)
    wanted, keys = used[0] * num_nodes + used[1], given[0] * num_nodes + given[1]
    order = keys.argsort(stable=True)
    ordered = keys[order]
    first = torch.searchsorted(ordered, wanted)
    available = torch.searchsorted(ordered, wanted, right=True) - first
    rank = _occurrence(wanted)
    is_loop = used[0] == used[1]
    sent = torch.bincount(used[1][is_loop], minlength=num_nodes)[used[1]]
    rank = torch.where(is_loop, rank + (available - sent).clamp(min=0), rank)
    found = rank < available
    _refuse_strangers(used, found | is_loop, layer)
    slots = num_edges + used[1]
    slots[found] = order[(first + rank)[found]]
    return slots


def _refuse_strangers(used: Tensor, known: Tensor, layer: str) -> None:
    if bool(known.all()):
        return
    source, receiver = used[:, ~known][:, 0].tolist()
    raise ModelError(
        f"Layer {layer} sent {int((~known).sum())} messages that match no column of data.edge_index, the first from node "
        f"{source} to node {receiver}. Edgewise weights the edges of the given graph: call every layer with (a subset of) "
        f"the edge_index of data, without pooling or rewiring in between."
    )
