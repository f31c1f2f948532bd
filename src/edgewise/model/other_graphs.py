"""Graphs that differ from a given one in one respect: to find out what a model reads of it."""

import copy
from typing import TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from edgewise.graph.pair_copies import with_pairs
from edgewise.model.call import GraphForward, ModelCall
from edgewise.model.shadow import EDGE, NODE
from edgewise.pyg_internals import plain

_TRIES = 8
KeptRows: TypeAlias = dict[int, Tensor]
"""Which rows of nodes keep their features, by the number of rows: types with as many nodes keep the same."""
_OF_BATCHES = ("batch", "ptr", "num_graphs", "link_pairs")


def with_unequal_rows(call: ModelCall, data: Data, seed: int) -> Data:
    """The graph with other features where those of all nodes are equal, so that it matters where they come from."""
    x = data.x
    if isinstance(call.forward, GraphForward) or not x.is_floating_point() or bool((x != x[:1]).any()):
        return data
    data = copy.copy(data)
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    data.x = x + noise.to(x)
    return data


def with_all_nodes_asked(call: ModelCall, data: Data) -> Data:
    """The graph with pairs that every node is an end of, where a few pairs were asked about and hide the other nodes."""
    if not hasattr(data, "link_pairs") or isinstance(call.forward, GraphForward):
        return data
    everyone = torch.arange(data.num_nodes)
    return with_pairs(data, torch.stack([everyone, everyone.roll(1)], dim=1))


def doubled(call: ModelCall, data: Data, seed: int) -> Data | None:
    """The graph and a copy of it as one graph, in which columns may swap ends with those of the copy; None if it cannot be.

    The copy has other features, so that it matters where they come from.
    """
    batch = data.get("batch")
    if call.has_types or (isinstance(batch, Tensor) and bool((batch != 0).any())):
        return None
    first = Data.from_dict({key: value for key, value in data.to_dict().items() if key not in _OF_BATCHES})
    second = copy.copy(first)
    for key, value in _attributes(first, NODE):
        second[key] = value.roll(1, 0)
    second.x = shaken(second.x, seed)
    twice = {
        key: value for key, value in Batch.from_data_list([first, second]).to_dict().items() if key not in _OF_BATCHES
    }
    kept = {key: data[key] for key in ("num_graphs", "link_pairs") if key in data}
    both = Data.from_dict({**twice, **kept, "num_nodes": 2 * int(data.num_nodes or 0)})
    if batch is not None:
        both.batch = torch.cat([batch, batch])
        both.ptr = torch.tensor([0, both.num_nodes], device=batch.device)
    return both


def with_shaken_rows(call: ModelCall, data: Data, seed: int, by: float) -> Data:
    """The graph with other features of every node."""
    if isinstance(call.forward, GraphForward):
        return data
    data = copy.copy(data)
    data.x = shaken(data.x, seed, by)
    return data


def shaken(table: Tensor, seed: int, by: float = 1.0) -> Tensor:
    """Other numbers, `by` as much as they are large: what a ReLU hides of the given ones may be seen then."""
    if not table.is_floating_point():
        return table.clone()
    noise = torch.randn(table.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return table + noise.to(table) * by * table.abs().amax().clamp(min=1e-6)


def with_other_edges(call: ModelCall, data: Data, seed: int) -> tuple[Data, float]:
    """The graph with columns that start elsewhere, and attributes of other columns; and the share of them.

    Every node keeps the number of columns that begin and end at it, of each type and in each graph of a batch, and the number
    of its neighbours: no column loops, is there twice or runs back along another one that did not before.
    """
    group = _groups(call, data)
    generator = torch.Generator().manual_seed(seed)
    ends = plain(data.edge_index)
    other = _rewired(ends, group, data.num_nodes, generator)
    moved = copy.copy(data)
    moved.edge_index = other.contiguous()
    _shuffle_attributes(call, data, moved, _shuffle(group, generator))
    changed = (other != ends).any(0).double()
    shares = torch.zeros(int(group.max()) + 1, dtype=torch.double, device=group.device)
    shares.scatter_reduce_(0, group, changed, "mean", include_self=False)
    return moved, float(shares[group].min())


def with_shuffled_edges(call: ModelCall, data: Data, seed: int) -> Data:
    """The same where columns may loop or be there twice; perhaps the graph itself, as of a star."""
    group = _groups(call, data)
    generator = torch.Generator().manual_seed(seed)
    ends = plain(data.edge_index)
    moved = copy.copy(data)
    moved.edge_index = torch.stack([ends[0][_shuffle(group, generator)], ends[1]])
    return moved


def _rewired(ends: Tensor, group: Tensor, num_nodes: int, generator: torch.Generator) -> Tensor:
    """Columns of a group swap where they start, two and two; those that have one back take it along."""
    back, has_back = _columns_back(ends, group, num_nodes)
    ours = (~has_back | (ends[0] < ends[1])).nonzero().view(-1)
    kind = 2 * group + has_back
    first = ends
    for _ in range(_TRIES + 1024 // max(ends.size(1), 1)):
        order = ours[torch.randperm(len(ours), generator=generator).to(ours.device)]
        order = order[kind[order].argsort(stable=True)]
        one, two = order[: len(order) // 2 * 2].view(-1, 2).unbind(1)
        turned = (torch.rand(len(two), generator=generator).to(two.device) < 0.5) & has_back[two]
        two = torch.where(turned, back[two], two)
        proposed = ends.clone()
        proposed[0, one], proposed[0, two] = ends[0, two], ends[0, one]
        both = torch.cat([one, two])
        counts = _how_often(torch.cat([_codes(ends, group, num_nodes), _codes(proposed, group, num_nodes)[both]]))
        alone = (counts[both] == 1 + has_back[both].long()) & (ends[0, both] != ends[1, both])
        alone &= (counts[ends.size(1) :] == 1) & (proposed[0, both] != proposed[1, both])
        free = alone[: len(one)] & alone[len(one) :] & (kind[one] == kind[two]) & (ends[0, one] != ends[0, two])
        taken = torch.cat([one[free], two[free]])
        ends = ends.clone()
        ends[0, taken] = proposed[0, taken]
        pairs = taken[has_back[taken]]
        ends[:, back[pairs]] = ends[:, pairs].flip(0)
        if 2 * int((ends != first).any(0).sum()) > ends.size(1):
            break
    return ends


def _columns_back(ends: Tensor, group: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Which column runs the other way, and whether one does."""
    there, wanted = ((group * num_nodes + one) * num_nodes + two for one, two in (ends, ends.flip(0)))
    ordered, order = there.sort()
    place = torch.searchsorted(ordered, wanted).clamp(max=max(len(ordered) - 1, 0))
    return order[place], (ordered[place] == wanted) & (ends[0] != ends[1])


def _how_often(codes: Tensor) -> Tensor:
    """How often each number is there."""
    _, place, counts = codes.unique(return_inverse=True, return_counts=True)
    return counts[place]


def _codes(ends: Tensor, group: Tensor, num_nodes: int) -> Tensor:
    """One number for each column: two with the same one run between the same nodes, either way."""
    return (group * num_nodes + ends.amin(0)) * num_nodes + ends.amax(0)


def _groups(call: ModelCall, data: Data) -> Tensor:
    """`[edges]`: columns that may swap what they start from."""
    group = torch.zeros_like(data.edge_index[0])
    for number, columns in enumerate(call.column_groups(data)):
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


def nodes_of_kinds(call: ModelCall, data: Data) -> tuple[Tensor, ...]:
    """The nodes of each type, ascending; of a graph without types, all nodes."""
    typed = call.typed_tensors(data)
    everyone = torch.arange(int(data.num_nodes or 0), device=data.edge_index.device)
    return (everyone,) if typed is None else typed.kinds.nodes


def with_few_rows_kept(call: ModelCall, data: Data, kept: KeptRows) -> Data:
    """The graph with the features of all other nodes swapped, among those of each type."""
    moved = copy.copy(data)
    for nodes in nodes_of_kinds(call, data):
        others = nodes[~kept[len(nodes)]]
        if call.has_types:  # the features of the union are numbers of nodes
            moved.edge_index, moved.x = data.edge_index.clone(), moved.x.clone()
            moved.x[others] = data.x[others.roll(1)]
        elif len(others):
            moved = with_swapped_rows(data, others)
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
