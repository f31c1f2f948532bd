"""Graphs that differ from a given one in one respect: to find out what a model reads of it."""

import copy

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.model.call import GraphForward, ModelCall
from edgewise.model.shadow import EDGE, NODE
from edgewise.pyg_internals import plain

_TRIES = 8


def with_unequal_rows(call: ModelCall, data: Data, seed: int) -> Data:
    """The graph with other features where those of all nodes are equal, so that it matters where they come from."""
    x = data.x
    if isinstance(call.forward, GraphForward) or not x.is_floating_point() or bool((x != x[:1]).any()):
        return data
    data = copy.copy(data)
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    data.x = x + noise.to(x)
    return data


def with_other_edges(call: ModelCall, data: Data, seed: int) -> tuple[Data, bool]:
    """The graph with columns that start elsewhere, and attributes of other columns; and whether there is another such graph.

    Every node keeps the number of columns that begin and end at it, of each type and in each graph of a batch.
    """
    group = _groups(call, data)
    ends = plain(data.edge_index)
    codes = _codes(ends, group, data.num_nodes)
    generator = torch.Generator().manual_seed(seed)
    best, most = ends, 0
    for _ in range(_TRIES):
        senders = ends[0][_shuffle(group, generator)]
        other = torch.stack([senders, ends[1]])
        changed = int((_codes(other, group, data.num_nodes) != codes).sum())
        if changed > most:
            best, most = other, changed
        if 2 * changed > ends.size(1):
            break
    moved = copy.copy(data)
    moved.edge_index = best.contiguous()
    _shuffle_attributes(call, data, moved, _shuffle(group, generator))
    return moved, most > 0


def _codes(ends: Tensor, group: Tensor, num_nodes: int) -> Tensor:
    """One number for each column, sorted: two graphs with the same numbers are the same."""
    return ((group * num_nodes + ends[0]) * num_nodes + ends[1]).sort().values


def _groups(call: ModelCall, data: Data) -> Tensor:
    """`[edges]`: columns that may swap what they start from."""
    group = torch.zeros_like(data.edge_index[0])
    if isinstance(call.forward, GraphForward):
        for number, columns in enumerate(call.forward.column_groups(data)):
            group[columns] = number
    batch = data.get("batch")
    if isinstance(batch, Tensor) and len(batch) == data.num_nodes:
        group = group * (int(batch.max()) + 1) + batch[data.edge_index[0]]
    return plain(group)


def _shuffle(group: Tensor, generator: torch.Generator) -> Tensor:
    """A permutation of the columns within their groups."""
    order = torch.randperm(len(group), generator=generator).to(group.device)
    found = torch.empty_like(order)
    found[group.argsort(stable=True)] = order[group[order].argsort(stable=True)]
    return found


def _shuffle_attributes(call: ModelCall, data: Data, moved: Data, order: Tensor) -> None:
    """Hand every column the attributes of another one."""
    if isinstance(call.forward, GraphForward):
        moved.edge_number = data.edge_number[order]
        return
    for key, value in _attributes(data, EDGE):
        moved[key] = value.index_select(data.__cat_dim__(key, value) % value.dim(), order)


def _attributes(data: Data, kind: str) -> list[tuple[str, Tensor]]:
    """The attributes of columns, or of nodes, that models compute with."""
    found = [(key, plain(value)) for key, value in data.to_dict().items() if isinstance(value, Tensor) and value.dim()]
    if kind == EDGE:
        return [one for one in found if one[0] != "edge_index" and "index" not in one[0] and data.is_edge_attr(one[0])]
    return [one for one in found if data.is_node_attr(one[0]) and one[0] not in ("batch", "ptr", "y")]


def with_swapped_rows(data: Data, rows: Tensor) -> Data:
    """The graph with the features of some nodes swapped among them; a single node gets others."""
    moved = copy.copy(data)
    for key, value in _attributes(data, NODE):
        moved[key] = swapped(value, rows)
    return moved


def with_another_attribute(data: Data) -> Data:
    """The graph with other attributes of its first column."""
    moved = copy.copy(data)
    for key, value in _attributes(data, EDGE):
        moved[key] = value.clone()
        moved[key].select(data.__cat_dim__(key, value) % value.dim(), 0).add_(1)
    return moved


def swapped(table: Tensor, rows: Tensor) -> Tensor:
    """A table in which some rows are swapped; a single one gets other numbers."""
    table = table.clone()
    if len(rows) > 1:
        table[rows] = table[rows.roll(1)]
    elif table.is_floating_point():
        table[rows] = 1 - 2 * table[rows]
    else:
        table[rows] = table[(rows + 1) % len(table)]
    return table
