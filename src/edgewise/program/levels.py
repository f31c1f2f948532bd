"""Trimmed computation graphs of many targets side by side, ordered by distance.

Pairs (target, node) are numbered by their distance from the target: first the targets themselves, then the pairs one hop away,
and so on; edges follow their receivers. What a layer needs is then always the beginning of the same arrays: after c of L calls
only the pairs within L − c hops count, and call c needs the edges that end there.

The path 0 → 1 → 2 with edges e0, e1, the target 2 and L = 2 calls:

    pair   node   hops   its edge          after 0 calls: features of all nodes, no pairs
    0      2      0      e1, from pair 1   after 1 call:  pairs 0 and 1, so call 0 needs e1 and e0
    1      1      1      e0, from node 0   after 2 calls: pair 0 alone,  so call 1 needs e1

Node 0 has no pair: it only sends in call 0, which reads the features of the graph. `Levels` holds these arrays, `expansion.py`
makes them, and a `Hop` is the part of them that one call reads.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.graph.computation_graph import InEdges
from edgewise.graph.node_kinds import NodeKinds
from edgewise.program.hop import CallPart, Hop


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
    kinds: NodeKinds | None = None
    """Of a typed graph: pairs of a kind are numbered apart, in the same order, so prefixes stay prefixes."""
    expected: int = 0
    """Edges that all passes will go through (`expecting`); 0: nobody said."""
    _hops: dict[Any, Hop] = field(default_factory=dict)
    _head: Tensor | None = None
    _ends: dict[int, int] | None = None
    _apart: dict[int, "KindPairs"] = field(default_factory=dict)

    def to(self, device: torch.device) -> "Levels":
        """The same on another device; for levels whose parts were not asked for yet."""
        tensors = (self.node, self.owner, self.start, self.edge_id, self.sender, self.tail)
        node, owner, start, edge_id, sender, tail = (part.to(device) for part in tensors)
        head = None if self._head is None else self._head.to(device)
        sizes = (self.pair_end, self.num_nodes)
        return Levels(
            self.num_calls,
            self.num_targets,
            node,
            owner,
            start,
            edge_id,
            sender,
            tail,
            *sizes,
            _head=head,
            _ends=self._ends,
        )

    @contextmanager
    def expecting(self, passes: int) -> Iterator[None]:
        """Inside, so many passes will be made: what is done by compiled loops is chosen by the work of all of them."""
        try:
            self._expect(passes * sum(self.edges_of(call) for call in range(self.num_calls)))
            yield
        finally:
            self._expect(0)

    def _expect(self, edges: int) -> None:
        self.expected = edges
        for hop in self._hops.values():
            hop.expected = edges

    def pairs_after(self, calls: int, kind: int = 0) -> int:
        """How many pairs (of a kind) are needed after some calls: those within L − calls hops, at most L − 1."""
        if self.kinds is not None:
            return self.apart(kind).within(self._pairs_after(calls))
        return self._pairs_after(calls)

    def _pairs_after(self, calls: int) -> int:
        return self.num_nodes if self.whole else self.pair_end[min(self.num_calls - calls, self.num_calls - 1)]

    def apart(self, kind: int) -> "KindPairs":
        """The pairs of one kind of nodes."""
        if kind not in self._apart:
            assert self.kinds is not None
            pairs = (self.kinds.of_node[self.node] == kind).nonzero().view(-1)
            self._apart[kind] = KindPairs(pairs, self.kinds.place[self.node[pairs]], len(self.node))
        return self._apart[kind]

    def nodes_of(self, kind: int) -> Tensor:
        """`[pairs of the kind]`: the row of each pair's node in a table of all nodes of the kind."""
        return self.node if self.kinds is None else self.apart(kind).row

    def of_pairs(self, weight: Tensor, kind: int) -> Tensor:
        """Numbers of all pairs `[S]` as those of the pairs of a kind."""
        return weight if self.kinds is None else weight.index_select(0, self.apart(kind).place)

    def edges_of(self, call: int) -> int:
        """How many edges a call needs."""
        return self.edge_id.numel() if self.whole else self._edge_end[self._pairs_after(call + 1)]

    @property
    def _edge_end(self) -> dict[int, int]:
        """How many edges the first so many pairs have, for the numbers of pairs in `pair_end`."""
        if self._ends is None:
            ends = self.start[torch.tensor(self.pair_end, device=self.start.device)].tolist()
            self._ends = dict(zip(self.pair_end, ends, strict=True))
        return self._ends

    def hop(
        self, call: int, *, from_nodes: bool, part: CallPart | None = None, own_from_nodes: bool | None = None
    ) -> Hop:
        """The geometry of a call whose senders are nodes of the graph (features), or pairs (what earlier calls made).

        `part`: of a call among others, only its columns and kinds. `own_from_nodes`: the same for the table of receivers,
        where it is another one.
        """
        if part is not None:
            by_node = from_nodes if own_from_nodes is None else own_from_nodes
            return self._hop_of_part(call, part, from_nodes=from_nodes, own_from_nodes=by_node)
        key = (call, from_nodes)
        if key not in self._hops:
            heads, edges = self._pairs_after(call + 1), self.edges_of(call)
            other = self._hops.get((call, not from_nodes))  # the same edges and heads, other rows
            start, edge_id, nodes, head = (
                (self.start[: heads + 1], self.edge_id[:edges], self.node[:heads], self.head[:edges])
                if other is None
                else (other.start, other.edge_id, other.node, other.head)
            )
            tail = self.sender[:edges] if from_nodes or self.whole else self.tail[:edges]  # nodes, or pairs
            size = self.num_nodes if from_nodes or self.whole else self._pairs_after(call)
            own = nodes if from_nodes and not self.whole else None
            hop = Hop(start, tail, edge_id, own, nodes, size, self.node, {"head": head})
            hop.expected = self.expected
            self._hops[key] = hop
        return self._hops[key]

    def _hop_of_part(self, call: int, part: CallPart, *, from_nodes: bool, own_from_nodes: bool) -> Hop:
        """The same edges, heads and tails, but only those of a part; rows are counted by kind."""
        key = (call, from_nodes, own_from_nodes, part)
        if key in self._hops:
            return self._hops[key]
        near = self.hop(call, from_nodes=True)
        twin = next((hop for (c, *_, of), hop in self._hops.items() if c == call and of is part), None)
        place = part.columns[near.edge_id].nonzero().view(-1) if twin is None else twin.place
        assert place is not None
        heads = self.pairs_after(call + 1, part.receivers)
        head_place = None if self.kinds is None else self.apart(part.receivers).place[:heads]
        if twin is None:
            inside = torch.zeros(len(near.edge_id) + 1, dtype=torch.long, device=place.device)
            inside[1:] = part.columns[near.edge_id].cumsum(0)
            start = inside[near.start]  # [all heads + 1]: heads of other kinds have no edges here
            start = start if head_place is None else torch.cat([start[head_place], start[-1:]])
            edge_id = near.edge_id[place]
        else:
            start, edge_id = twin.start, twin.edge_id
        rows = self.nodes_of(part.senders)
        if from_nodes or self.whole:
            tail, size = self.sender[place], self.num_nodes if self.kinds is None else self.kinds.size(part.senders)
            tail = tail if self.kinds is None else self.kinds.place[tail]
        else:
            tail, size = self.tail[place], self.pairs_after(call, part.senders)
            tail = tail if self.kinds is None else self.apart(part.senders).number[tail]
        nodes = self.nodes_of(part.receivers)[:heads]
        own = nodes if own_from_nodes and not self.whole else None
        hop = Hop(start, tail, edge_id, own, nodes, size, rows)
        hop.place, hop.head_place, hop.expected = place, head_place, self.expected
        self._hops[key] = hop
        return hop

    def gather(self, rows: Tensor, calls: int, kind: int = 0) -> Tensor:
        """Rows of nodes (of a kind) `[N, …]` as rows of the pairs that are needed after some calls."""
        return rows if self.whole else rows.index_select(0, self.nodes_of(kind)[: self.pairs_after(calls, kind)])

    @property
    def head(self) -> Tensor:
        """`[M]`: the pair that receives."""
        if self._head is None:
            pairs = torch.arange(len(self.start) - 1, device=self.start.device)
            self._head = torch.repeat_interleave(pairs, self.start.diff(), output_size=len(self.edge_id))
        return self._head


@dataclass(eq=False)
class KindPairs:
    """The pairs of one kind of nodes among all pairs, in order."""

    place: Tensor
    """`[n]`: where they stand among all pairs, rising."""
    row: Tensor
    """`[n]`: the row of each pair's node in a table of all nodes of the kind."""
    num_pairs: int
    _ends: dict[int, int] = field(default_factory=dict)

    @cached_property
    def number(self) -> Tensor:
        """`[all pairs]`: the number of a pair among those of its kind; of other pairs it says nothing."""
        found = torch.zeros(self.num_pairs, dtype=torch.long, device=self.place.device)
        found[self.place] = torch.arange(len(self.place), device=self.place.device)
        return found

    def within(self, end: int) -> int:
        """How many of the first so many pairs are of this kind."""
        if end not in self._ends:
            self._ends[end] = int(torch.searchsorted(self.place, end))
        return self._ends[end]


class DeepLevels(Levels):
    """Levels in which the senders of the first call are pairs, too: those whose features a target reads."""

    def _pairs_after(self, calls: int) -> int:
        """Those within L − calls hops; all of them before the first call."""
        return self.pair_end[self.num_calls - calls]


def deepened(levels: Levels) -> DeepLevels:
    """The same levels, with numbers for the nodes that only send in call 0.

    >>> from edgewise.program.expansion import expand
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
