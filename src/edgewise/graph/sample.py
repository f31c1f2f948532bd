"""Batches of a loader that samples neighbourhoods (`NeighborLoader`): which numbers nodes and columns had in the whole graph.

Such a batch is a graph of its own, and is explained as one. `n_id` `[N]` has the number of each of its nodes in the graph that
it was sampled from, `e_id` `[E]` that of each column, and the first `batch_size` nodes are the seeds: the ones it was made for.
"""

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData


def sampled_numbers(data: Any) -> tuple[Tensor | None, Tensor | None]:
    """`n_id` `[N]` and `e_id` `[E]` of a batch, on the CPU; None for what is absent or not a number for each.

    >>> from torch_geometric.data import Data
    >>> batch = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[1, 2], [0, 0]]), n_id=torch.tensor([70, 12, 5]))
    >>> sampled_numbers(batch)
    (tensor([70, 12,  5]), None)
    """
    edge_index = data.get("edge_index")
    columns = edge_index.size(1) if isinstance(edge_index, Tensor) else 0
    nodes = data.num_nodes if data.get("n_id") is not None else None
    return _numbers(data.get("n_id"), nodes), _numbers(data.get("e_id"), columns)


def _numbers(given: Any, count: int | None) -> Tensor | None:
    if not isinstance(given, Tensor) or given.dim() != 1 or len(given) != count or given.dtype not in _WHOLE:
        return None
    return given.detach().cpu().long().clone()


_WHOLE = (torch.int64, torch.int32)


def seeds(data: Any) -> range | None:
    """The nodes that a batch was sampled for; None if it is no such batch.

    >>> from torch_geometric.data import Data
    >>> seeds(Data(x=torch.ones(3, 1), n_id=torch.tensor([70, 12, 5]), batch_size=2))
    range(0, 2)
    """
    size = data.get("batch_size")
    if data.get("n_id") is None or not isinstance(size, int) or isinstance(size, bool) or size < 1:
        return None
    return range(size)


def seed_type(data: HeteroData) -> str | None:
    """The node type that a typed batch was sampled for; None if there is none, or more than one."""
    found = [name for name in data.node_types if seeds(data[name]) is not None]
    return found[0] if len(found) == 1 else None


def typed_numbers(data: HeteroData, keys: list[Any], name: str) -> Tensor | None:
    """`n_id` (or `e_id`) of some types one after the other; None if no type has it. Types without it keep their own numbers."""
    if not any(isinstance(data[key].get(name), Tensor) for key in keys):
        return None
    parts = []
    for key in keys:
        count = data[key].edge_index.size(1) if isinstance(key, tuple) else int(data[key].num_nodes)
        own = _numbers(data[key].get(name), count)
        parts.append(torch.arange(count) if own is None else own)
    return torch.cat(parts)
