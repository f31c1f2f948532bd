"""EMP-neu (Xiong et al., ICML 2023): the exact top k *neuron-level* walks, by max-product.

A neuron-level walk goes through one neuron of each node's state; its relevance is a product of single numbers. The best walk
into a neuron is the best one into the neuron before it times one entry of a block, so k candidates a neuron are enough: the k
largest, and the k smallest for entries that are negative.

Example: `edgewise.examples.triangle_model` has one neuron per state, so its neuron-level walks are its walks. For node 2
and k = 1 the table before call 1 keeps 1 at node 0, 2 at node 1, and at node 2 the largest, 2, and the smallest, 1 (zeros are
dropped). The last call multiplies by 3, 3 and −1: the best is 3 · 2 = 6.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from edgewise.arrays import rank_in_group
from edgewise.errors import ModelError
from edgewise.walk.bounds import Box
from edgewise.walk.network import AnyNetwork
from edgewise.walk.prefixes import Front
from edgewise.walk.search.order import SearchResult, by_size, keys

_NUMBERS_AT_ONCE = 2**24  # entries of blocks in full


class _Table:
    """Neuron-level walks from the features into the states before a call.

    Those at `start[n]:start[n + 1]` end in neuron n = node · width + column. `value` is `[m]`, `nodes` and `columns` are
    `[m, steps + 1]`.
    """

    def __init__(self, neuron: Tensor, value: Tensor, nodes: Tensor, columns: Tensor, num_neurons: int) -> None:
        order = neuron.argsort(stable=True)
        self.value, self.nodes, self.columns = value[order], nodes[order], columns[order]
        self.start = torch.zeros(num_neurons + 1, dtype=torch.long, device=neuron.device)
        self.start[1:] = torch.bincount(neuron, minlength=num_neurons).cumsum(0)


def _extreme(neuron: Tensor, value: Tensor, k: int) -> Tensor:
    """The places of the k largest and the k smallest values of each neuron.

    >>> _extreme(torch.tensor([0, 0, 0, 1]), torch.tensor([1.0, -2.0, 3.0, 4.0]), 1)
    tensor([1, 2, 3])
    """
    places = []
    for sign in (1, -1):
        order = by_size(neuron, sign * value)
        places.append(order[(rank_in_group(neuron[order]) < k)])
    return torch.unique(torch.cat(places))


def emp_neu(
    network: AnyNetwork, boxes: list[Box | None], front: Front, owner: Tensor, num_targets: int, k: int, sign: str
) -> SearchResult:
    """The top k neuron-level walks, exactly; their node walks need not be the most relevant ones.

    Args: as for `dag.dag`; `boxes` are not needed.
    """
    needed = _needed(network, front.node)
    table = _first(network, needed[1], k) if network.num_calls > 1 else None
    for call in range(1, network.num_calls - 1):
        assert table is not None
        table = _next(network, call, table, needed[call + 1], k)
    target, value, nodes, columns = _last(network, front, owner, table, k)
    key = keys(value, sign)
    order = by_size(target, key)
    order = order[key[order] > 0]
    rank = rank_in_group(target[order])
    listed = order[rank < k]  # [n]: the walks of the result
    bound = key.new_zeros(num_targets)
    bound.scatter_reduce_(0, target[order[rank >= k]], key[order[rank >= k]], "amax")
    last = key.new_zeros(num_targets).scatter_reduce_(0, target[listed], key[listed], "amin", include_self=False)
    count = torch.bincount(target[listed], minlength=num_targets)
    bound = torch.where(count >= k, last, bound)  # what is not listed is not larger than the last one listed
    exact = torch.ones(num_targets, dtype=torch.bool, device=owner.device)
    return SearchResult(
        target[listed], value[listed], nodes[listed], bound, exact, torch.zeros_like(count), neurons=columns[listed]
    )


def _needed(network: AnyNetwork, ends: Tensor) -> list[Tensor]:
    """`[N]` per call, and for the end: the nodes whose states before the call can reach an explained node."""
    found = [torch.zeros(network.num_nodes, dtype=torch.bool, device=ends.device) for _ in range(network.num_calls + 1)]
    found[-1][ends] = True
    for call in reversed(range(network.num_calls)):
        geometry = network.geometry(call)
        found[call][geometry.sender[found[call + 1][geometry.receiver]]] = True
    return found


def _first(network: AnyNetwork, needed: Tensor, k: int) -> _Table:
    """One step from the features: an entry of the block times one feature."""
    geometry, start = network.geometry(0), network.state(0)
    pairs = needed[geometry.receiver].nonzero().view(-1)
    width, features = network.width(1), start.size(1)
    parts = []
    for part in pairs.split(max(_NUMBERS_AT_ONCE // (width * features), 1)):
        sender, receiver = geometry.sender[part], geometry.receiver[part]
        products = network.first_block(part) * start.index_select(0, sender).unsqueeze(1)  # [p, width, features]
        pair, column, feature = products.nonzero().unbind(1)
        value, neuron = products[pair, column, feature], receiver[pair] * width + column
        kept = _extreme(pair * width + column, value, k)
        nodes = torch.stack([sender[pair[kept]], receiver[pair[kept]]], dim=1)
        parts.append((neuron[kept], value[kept], nodes, torch.stack([feature[kept], column[kept]], dim=1)))
    return _table(parts, network, 1, k)


def _table(parts: Sequence[tuple[Tensor, ...]], network: AnyNetwork, call: int, k: int) -> _Table:
    """The table before a call from the walks of several parts: the k largest and smallest of each neuron."""
    neuron, value, nodes, columns = (torch.cat(column) for column in zip(*parts, strict=True))
    kept = _extreme(neuron, value, k)
    size = network.num_nodes * network.width(call)
    return _Table(neuron[kept], value[kept], nodes[kept], columns[kept], size)


def _step(table: _Table, blocks: Tensor, sender: Tensor, width: int, k: int) -> tuple[Tensor, ...]:
    """One step further: entries of blocks `[n, out, in]` times what is kept at the senders' neurons.

    Returns:
        `[m]` each: the block, the column it leads to, the product, and the place in the table where it comes from.
    """
    pair, column, before = blocks.nonzero().unbind(1)  # [e] each: entries that are not zero
    neuron = sender[pair] * width + before
    count = table.start[neuron + 1] - table.start[neuron]  # [e]: how many are kept at the sender's neuron
    position = torch.repeat_interleave(torch.arange(len(neuron), device=neuron.device), count)
    place = (
        torch.arange(len(position), device=neuron.device) + (table.start[neuron] - (count.cumsum(0) - count))[position]
    )
    value = blocks[pair, column, before][position] * table.value[place]
    pair, column = pair[position], column[position]
    kept = _extreme(pair * blocks.size(1) + column, value, k)
    return pair[kept], column[kept], value[kept], place[kept]


def _next(network: AnyNetwork, call: int, table: _Table, needed: Tensor, k: int) -> _Table:
    """The table before call + 1 from the one before `call`."""
    geometry, inner, outer = network.geometry(call), network.width(call), network.width(call + 1)
    pairs = needed[geometry.receiver].nonzero().view(-1)
    parts = []
    for part in pairs.split(max(_NUMBERS_AT_ONCE // (inner * outer * 2 * k), 1)):
        sender, receiver = geometry.sender[part], geometry.receiver[part]
        pair, column, value, place = _step(table, network.block(call, part), sender, inner, k)
        nodes = torch.cat([table.nodes[place], receiver[pair].view(-1, 1)], dim=1)
        columns = torch.cat([table.columns[place], column.view(-1, 1)], dim=1)
        parts.append((receiver[pair] * outer + column, value, nodes, columns))
    return _table(parts, network, call + 1, k)


def _last(network: AnyNetwork, front: Front, owner: Tensor, table: _Table | None, k: int) -> tuple[Tensor, ...]:
    """The last call, weighed by the gradients of the explained numbers: target, value, nodes and columns of candidates."""
    call = network.num_calls - 1
    parent, pair = network.children(call, front.node)
    geometry, parts = network.geometry(call), []
    if front.around is not None:
        raise ModelError(
            "search='emp_neu' needs a last layer without a residual around it: a residual has no neuron of its own there. "
            "Use search='exact'."
        )
    inner = network.width(call)
    size = max(_NUMBERS_AT_ONCE // (inner * front.summed.size(1) * 2 * k), 1)
    for piece in torch.arange(len(pair), device=pair.device).split(size):
        sender, ends = geometry.sender[pair[piece]], parent[piece]  # [p] each
        if table is None:
            blocks = network.first_block(pair[piece]) * network.state(0).index_select(0, sender).unsqueeze(1)
        else:
            blocks = network.block(call, pair[piece])
        blocks = blocks * front.summed.index_select(0, ends).unsqueeze(2)  # [p, out, inner]
        if table is None:
            row, column, before = blocks.nonzero().unbind(1)
            value = blocks[row, column, before]
            kept = _extreme(row, value, k)
            row, column, before, value = row[kept], column[kept], before[kept], value[kept]
            nodes, columns = sender[row].view(-1, 1), before.view(-1, 1)
        else:
            row, column, value, place = _step(table, blocks, sender, inner, k)
            nodes, columns = table.nodes[place], table.columns[place]
        end = front.node[ends[row]].view(-1, 1)
        parts.append(
            (owner[ends[row]], value, torch.cat([nodes, end], dim=1), torch.cat([columns, column.view(-1, 1)], dim=1))
        )
    target, value, nodes, columns = (torch.cat(column) for column in zip(*parts, strict=True))
    return target, value, nodes, columns
