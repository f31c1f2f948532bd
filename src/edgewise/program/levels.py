"""Trimmed computation graphs of many targets side by side, ordered by distance.

Pairs (target, node) are numbered by their distance from the target: first the targets themselves, then the pairs one hop away,
and so on; edges follow their receivers. What a layer needs is then always the beginning of the same arrays: after c of L calls
only the pairs within L − c hops count, and call c needs the edges that end there.

The path 0 → 1 → 2 with edges e0, e1, the target 2 and L = 2 calls:

    pair   node   hops   its edge          after 0 calls: features of all nodes, no pairs
    0      2      0      e1, from pair 1   after 1 call:  pairs 0 and 1, so call 0 needs e1 and e0
    1      1      1      e0, from node 0   after 2 calls: pair 0 alone,  so call 1 needs e1

Node 0 has no pair: it only sends in call 0, which reads the features of the graph. `Levels` holds these arrays, `expand` makes
them, and a `Hop` is the part of them that one call reads.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.graph.computation_graph import InEdges
from edgewise.program.hop import Hop
from edgewise.program.kernels import arrays, kernels_for


@dataclass(eq=False)
class Levels:
    """Pairs and edges by distance, and how many of them, from the first on, each call needs. M edges in all."""

    num_calls: int
    num_targets: int
    node: Tensor
    """`[pairs]`: the node; all within L − 1 hops of the target."""
    owner: Tensor
    """`[pairs]`: the position of the target."""
    start: Tensor
    """`[pairs + 1]`: where the edges of each pair begin."""
    edge_id: Tensor
    """`[M]`: the column of each edge."""
    sender: Tensor
    """`[M]`: the node that sends."""
    tail: Tensor
    """The pair that sends, for the edges whose receiver is within L − 2 hops: the others send in call 0 only."""
    pair_end: list[int]
    """`pair_end[h]`: how many pairs are within h hops."""
    num_nodes: int
    whole: bool = False
    """Whether every call runs on the whole graph: graph tasks."""
    _hops: dict[tuple[int, bool], Hop] = field(default_factory=dict)
    _head: Tensor | None = None
    _ends: dict[int, int] | None = None

    def pairs_after(self, calls: int) -> int:
        """How many pairs are needed after some calls: those within L − calls hops, at most L − 1."""
        return self.num_nodes if self.whole else self.pair_end[min(self.num_calls - calls, self.num_calls - 1)]

    def edges_of(self, call: int) -> int:
        """How many edges a call needs."""
        return self.edge_id.numel() if self.whole else self._edge_end[self.pairs_after(call + 1)]

    @property
    def _edge_end(self) -> dict[int, int]:
        """How many edges the first so many pairs have, for the numbers of pairs in `pair_end`."""
        if self._ends is None:
            ends = self.start[torch.tensor(self.pair_end, device=self.start.device)].tolist()
            self._ends = dict(zip(self.pair_end, ends, strict=True))
        return self._ends

    def hop(self, call: int, *, from_nodes: bool) -> Hop:
        """The geometry of a call whose senders are nodes of the graph (features), or pairs (what earlier calls made)."""
        key = (call, from_nodes)
        if key not in self._hops:
            heads, edges = self.pairs_after(call + 1), self.edges_of(call)
            other = self._hops.get((call, not from_nodes))  # the same edges and heads, other rows
            start, edge_id, nodes, head = (
                (self.start[: heads + 1], self.edge_id[:edges], self.node[:heads], self.head[:edges])
                if other is None
                else (other.start, other.edge_id, other.node, other.head)
            )
            tail = self.sender[:edges] if from_nodes or self.whole else self.tail[:edges]  # nodes, or pairs
            size = self.num_nodes if from_nodes or self.whole else self.pairs_after(call)
            own = nodes if from_nodes and not self.whole else None
            self._hops[key] = Hop(start, tail, edge_id, own, nodes, size, self.node, {"head": head})
        return self._hops[key]

    def gather(self, rows: Tensor, calls: int) -> Tensor:
        """Rows of nodes `[N, …]` as rows of the pairs that are needed after some calls."""
        return rows if self.whole else rows.index_select(0, self.node[: self.pairs_after(calls)])

    @property
    def head(self) -> Tensor:
        """`[M]`: the pair that receives."""
        if self._head is None:
            pairs = torch.arange(len(self.start) - 1, device=self.start.device)
            self._head = torch.repeat_interleave(pairs, self.start.diff(), output_size=len(self.edge_id))
        return self._head


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
    if not targets.is_cuda and not kernels_for(targets.numel() * in_edges.num_nodes, targets):
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
    owner = np.zeros_like(order) if together else order  # of the frontier, as is `node`
    numbers[owner * size + node] = order
    owners, nodes, heads, edges, senders, tails, ends = [owner], [node], [], [], [], [], [len(node)]
    first = 0  # the number of the frontier's first pair
    for hop in range(num_calls):
        begin = start[node]
        count = start[node + 1] - begin
        position = np.repeat(np.arange(len(node)), count)  # [in-edges of the frontier]
        place = np.arange(len(position)) + (begin - count.cumsum() + count)[position]
        heads.append(position + first)
        edges.append(edge[place])
        senders.append(sender[place])
        if hop == num_calls - 1:  # these senders are read from the features: they need no number
            break
        first = ends[-1]
        key = owner[position] * size + senders[-1]
        fresh = key[numbers[key] < 0]
        ticket = np.arange(len(fresh), dtype=numbers.dtype)
        numbers[fresh] = ticket  # of several equal keys, the one that is written last finds its ticket there
        new = fresh[numbers[fresh] == ticket]
        numbers[new] = np.arange(first, first + len(new), dtype=numbers.dtype)
        tails.append(numbers[key])
        owner, node = np.divmod(new, size)
        owners.append(owner)
        nodes.append(node)
        ends.append(first + len(new))
    pair_owner, pair_node, head = np.concatenate(owners), np.concatenate(nodes), np.concatenate(heads)
    numbers[pair_owner * size + pair_node] = -1
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


class DeepLevels(Levels):
    """Levels in which the senders of the first call are pairs, too: those whose features a target reads."""

    def pairs_after(self, calls: int) -> int:
        """Those within L − calls hops; all of them before the first call."""
        return self.pair_end[self.num_calls - calls]


def deepened(levels: Levels) -> DeepLevels:
    """The same levels, with numbers for the nodes that only send in call 0.

    >>> path = InEdges.of(torch.tensor([[0, 1], [1, 2]]), 3)                    # 0 → 1 → 2
    >>> levels = expand(path, torch.tensor([2]), 2, torch.full((3,), -1, dtype=torch.int32))
    >>> deep = deepened(levels)
    >>> deep.node.tolist(), deep.pair_end, deep.tail.tolist()                   # node 0 is pair 2, and sends on e0
    ([2, 1, 0], [1, 2, 3], [1, 2])
    """
    size, pairs, known = levels.num_nodes, len(levels.node), len(levels.tail)
    key = levels.owner[levels.head[known:]] * size + levels.sender[known:]
    every, place = torch.cat([levels.owner * size + levels.node, key]).unique(return_inverse=True)
    number = torch.full_like(every, -1)
    number[place[:pairs]] = torch.arange(pairs, device=key.device)
    new = (number < 0).nonzero().view(-1)
    number[new] = pairs + torch.arange(len(new), device=key.device)
    return DeepLevels(
        levels.num_calls,
        levels.num_targets,
        torch.cat([levels.node, every[new] % size]),
        torch.cat([levels.owner, every[new] // size]),
        torch.cat([levels.start, levels.start[-1:].expand(len(new))]),
        levels.edge_id,
        levels.sender,
        torch.cat([levels.tail, number[place[pairs:]]]),
        [*levels.pair_end, pairs + len(new)],
        size,
    )


def whole_levels(data: Data, in_edges: InEdges, num_calls: int, owner: Tensor, num_targets: int) -> Levels:
    """Every node and edge at every call (graph tasks): a pair is a node, `owner` `[N]` is its graph."""
    node = torch.arange(data.num_nodes, device=data.edge_index.device)
    return Levels(
        num_calls, num_targets, node, owner, in_edges.start, in_edges.edge, in_edges.sender, in_edges.sender,
        [data.num_nodes], data.num_nodes, whole=True,
    )  # fmt: skip
