"""Levels of some targets, hop by hop: `expand` finds their pairs and edges, in the order that `levels.py` explains.

Three twins do the same: numpy where there is little to do, compiled loops, and torch on a GPU.
"""

from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from edgewise.graph.computation_graph import InEdges
from edgewise.program.kernels import arrays, kernels_for
from edgewise.program.levels import Levels


def expand(in_edges: InEdges, targets: Tensor, num_calls: int, table: Tensor, *, together: bool = False) -> Levels:
    """The levels of some targets. `table` (targets × nodes, all −1) says which number a pair has; it is left as it was.

    `together`: the targets, each once, share their copies, as if they were one: a pair is then a node.

    >>> path = InEdges.of(torch.tensor([[0, 1], [1, 2]]), 3)                    # 0 → 1 → 2
    >>> levels = expand(path, torch.tensor([2]), 2, torch.full((3,), -1, dtype=torch.int32))
    >>> levels.node.tolist(), levels.pair_end                                   # one pair within 0 hops, two within 1
    ([2, 1], [1, 2])
    >>> levels.edge_id.tolist(), levels.sender.tolist(), levels.tail.tolist()   # e0 comes from a node that has no pair
    ([1, 0], [1, 0], [1])
    """
    if not targets.is_cuda and not kernels_for(targets.numel() * in_edges.num_nodes // 16, targets):
        return _expand_small(in_edges, targets, num_calls, table, together=together)
    size, device = in_edges.num_nodes, targets.device
    frontier = targets if together else torch.arange(len(targets), device=device) * size + targets  # target · N + node
    table[frontier] = torch.arange(len(targets), device=device, dtype=table.dtype)
    keys, ends, hops = [frontier], [len(frontier)], []  # per hop: its keys, pairs so far, its edges
    grow = _grow if targets.is_cuda else _grow_compiled
    for hop in range(num_calls):
        last = hop == num_calls - 1  # its senders are read from the features: they need no number
        hops.append(grow(in_edges, frontier, table, ends[-1], number_senders=not last))
        frontier = hops[-1][-1]
        if not last:
            keys.append(frontier)
            ends.append(ends[-1] + len(frontier))
    key = torch.cat(keys)
    table[key] = -1
    count, edges, senders, tails = (
        torch.cat(parts) for parts in list(zip(*hops, strict=True))[:4]
    )  # [pairs], then [M]
    start = torch.zeros(len(key) + 1, dtype=torch.long, device=device)
    start[1:] = count.cumsum(0)
    return Levels(num_calls, len(targets), key % size, key // size, start, edges, senders, tails, ends, size)


_Grown: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def _grow(in_edges: InEdges, frontier: Tensor, table: Tensor, first: int, *, number_senders: bool) -> _Grown:
    """One hop: in-edges of each node of the frontier (how many, columns, senders, their numbers), and the new frontier.

    `first` is the number of the next new pair.
    """
    node = frontier % in_edges.num_nodes  # [frontier]
    position, place = in_edges.of_nodes(node)  # [in-edges] each
    sender = in_edges.sender[place]
    count = in_edges.start[node + 1] - in_edges.start[node]  # [frontier]
    if not number_senders:
        return count, in_edges.edge[place], sender, sender[:0], sender[:0]
    key = (frontier - node)[position] + sender  # [in-edges]: the same target, the sender
    new = _number_new(table, key, first)
    return count, in_edges.edge[place], sender, table[key].long(), new


def _grow_compiled(in_edges: InEdges, frontier: Tensor, table: Tensor, first: int, *, number_senders: bool) -> _Grown:
    """The same as a compiled loop."""
    kernels = kernels_for(1 << 30, frontier)
    geometry = arrays(frontier, in_edges.start, in_edges.edge, in_edges.sender)
    grown = kernels.grow(*geometry, in_edges.num_nodes, table.numpy(), first, number_senders)
    count, edges, senders, tails, new = (torch.from_numpy(array) for array in grown)
    return count, edges, senders, tails, new


def _expand_small(in_edges: InEdges, targets: Tensor, num_calls: int, table: Tensor, *, together: bool) -> Levels:
    """The same in numpy, whose calls cost a fifth of torch's where there is little to do."""
    start, edge, sender, numbers = arrays(in_edges.start, in_edges.edge, in_edges.sender, table)
    size = in_edges.num_nodes
    order, node = np.arange(targets.numel()), targets.numpy()
    alone = together or len(order) == 1  # then a key is a node
    owner = order  # of the frontier, as is `node`
    numbers[node if alone else owner * size + node] = order
    owners, nodes, heads, edges, senders, tails, ends = [owner], [node], [], [], [], [], [len(node)]
    first = 0  # the number of the frontier's first pair
    for hop in range(num_calls):
        begin = start[node]
        count = start[node + 1] - begin
        position = np.arange(len(node)).repeat(count)  # [in-edges of the frontier]
        place = np.arange(len(position)) + (begin - count.cumsum() + count)[position]
        heads.append(position + first)
        edges.append(edge[place])
        senders.append(sender[place])
        if hop == num_calls - 1:  # these senders are read from the features: they need no number
            break
        first = ends[-1]
        key = senders[-1] if alone else owner[position] * size + senders[-1]
        fresh = key[numbers[key] < 0]
        ticket = np.arange(len(fresh), dtype=numbers.dtype)
        numbers[fresh] = ticket  # of several equal keys, the one that is written last finds its ticket there
        new = fresh[numbers[fresh] == ticket]
        numbers[new] = np.arange(first, first + len(new), dtype=numbers.dtype)
        tails.append(numbers[key])
        if alone:
            node = new
        else:
            owner, node = np.divmod(new, size)
            owners.append(owner)
        nodes.append(node)
        ends.append(first + len(new))
    pair_node, head = np.concatenate(nodes), np.concatenate(heads)
    pair_owner = np.zeros(len(pair_node), dtype=np.int64) if alone else np.concatenate(owners)
    numbers[pair_node if alone else pair_owner * size + pair_node] = -1
    ends_of_pairs = np.zeros(len(pair_node) + 1, dtype=np.int64)
    np.cumsum(np.bincount(head, minlength=len(pair_node)), out=ends_of_pairs[1:])
    tail = np.concatenate([*tails, head[:0]]).astype(np.int64)
    whole = (pair_node, pair_owner, ends_of_pairs, np.concatenate(edges), np.concatenate(senders), tail, head)
    node_, owner_, start_, edge_, sender_, tail_, head_ = (torch.from_numpy(part) for part in whole)
    edge_ends = dict(zip(ends, ends_of_pairs[ends].tolist(), strict=True))
    pairs = (node_, owner_, start_, edge_, sender_, tail_)
    return Levels(num_calls, targets.numel(), *pairs, ends, size, _head=head_, _ends=edge_ends)


def _number_new(table: Tensor, key: Tensor, first: int) -> Tensor:
    """The keys that have no number yet, each once; they get the next numbers.

    A table instead of sorting: every candidate writes its ticket into the table, and of several equal ones the one that was
    written last finds its own ticket there.

    >>> table = torch.tensor([-1, 0, -1], dtype=torch.int32)                    # key 1 has the number 0
    >>> _number_new(table, torch.tensor([2, 1, 0, 0]), 1), table
    (tensor([2, 0]), tensor([2, 0, 1], dtype=torch.int32))
    """
    candidate = key[table[key] < 0]
    ticket = torch.arange(len(candidate), device=key.device, dtype=table.dtype)
    table[candidate] = ticket
    new = candidate[table[candidate] == ticket]
    table[new] = torch.arange(first, first + len(new), device=key.device, dtype=table.dtype)
    return new
