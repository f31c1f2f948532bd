"""Occlusion without running anything twice: the difference that a missing message makes, carried through the remaining layers.

Dropping one message changes one node; the change spreads one hop further with every later call. All missing messages (slots)
travel together as pairs (slot, node) with the change of the node's features; what did not change is read from the activations
of the whole graph. A slot is an edge, or a node's own term; layerwise it is missing in one call, at input level in all of them.

The path 0 → 1 → 2 with edges e0, e1, the features (1, 10, 100) and two calls that add to each node what it receives. The nodes
have (1, 11, 110) after the first call and (1, 12, 121) after the second; the target is node 2. Layerwise there are three slots:

    slot   missing           change after call 0   change after call 1               drop of the target
    0      e0 in call 0      node 1: −1            node 2: −1, because e1 brings it   1
    1      e1 in call 0      node 2: −10           node 2: −10, by its own term       10
    2      e1 in call 1                            node 2: −11                        11

In slot 0 node 1 itself changes in call 1 as well, but that is too far from the target to matter, so the pair is dropped; for
the same reason "e0 in call 1" is not a slot.

This file has what stays the same for all of that: the slots, the numbering of pairs, the geometry of one set of targets
(`Differences`) and the way of changes from node to node (`Traversal`). `perturbation_forward.py` carries the changes in
numbers, `trust/forward_bounds.py` in intervals; `perturbation_output.py` reads off the drops.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.graph.computation_graph import InEdges
from edgewise.program.ir import MessageStep, Ref
from edgewise.program.kernels import arrays, kernels_for
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.lowering import Lowering
from edgewise.program.pair_numbers import Numbering, Pairs, SortedNumbering
from edgewise.question.target import Target

_LARGEST_TABLE = 2**22
"""Slots × nodes up to which pairs are numbered by a table: small enough to stay in the cache."""


@dataclass(frozen=True, eq=False)
class MissingMessages:
    """Slots: what is missing (an edge's column, or a node's own term), and in which call (−1: in every call)."""

    item: Tensor
    """`[slots]`: a column of the graph, or a node if `of_self`."""
    call: Tensor
    """`[slots]`: the call in which it is missing, or −1."""
    of_self: bool

    def __len__(self) -> int:
        return len(self.item)

    def split(self, size: int) -> Iterator["MissingMessages"]:
        """In blocks of at most `size`."""
        for item, call in zip(self.item.split(size), self.call.split(size), strict=True):
            yield MissingMessages(item, call, self.of_self)

    def in_call(self, call: int) -> Tensor:
        """`[slots]`: whether each is missing in this call."""
        return (self.call == call) | (self.call < 0)


@dataclass(frozen=True, eq=False)
class Drops:
    """value − value without, where it is not zero. One entry for each (target, slot), `[entries]` each."""

    position: Tensor
    """The position of the target."""
    slot: Tensor
    """The missing message, as a position in the block of `MissingMessages`."""
    score: Tensor
    """Positive: the message supports the target."""


class Differences:
    """The targets of one lowering, and how far each node is from them: what all blocks of slots read."""

    def __init__(self, lowering: Lowering, targets: Tensor, target: Target) -> None:
        self.lowering, self.targets, self.target = lowering, targets, target  # targets: [T] nodes
        self.program, self.known = lowering.program, lowering.known
        graph = lowering.in_edges
        receiver = torch.repeat_interleave(torch.arange(graph.num_nodes, device=targets.device), graph.start.diff())
        self.sender = torch.empty_like(graph.sender)  # [E], by column
        self.receiver = torch.empty_like(graph.sender)  # [E], by column
        self.sender[graph.edge], self.receiver[graph.edge] = graph.sender, receiver
        self.out_edges = InEdges.of(torch.stack([self.receiver, self.sender]), graph.num_nodes)  # grouped by sender
        self.distance = _distance(graph, targets, self.program.num_calls)  # [N]
        self.value = target.value(target.truth)  # [T]
        self.steps = [step for step in self.program.steps if isinstance(step, MessageStep)]
        self.segments = self.program.segments
        self.columns_only = self._columns_only()
        self.live = _live_after(self)
        self._numberings: dict[int, Numbering] = {}
        self.most_pairs = 0
        """How many pairs a block of slots had at most, since this was last set to 0."""
        self.kept: dict[Any, Any] = {}
        """What blocks of slots found out about the calls, for the next ones."""

    def size(self, kind: int) -> int:
        """How many nodes a kind has."""
        kinds = self.program.kinds
        return self.lowering.in_edges.num_nodes if kinds is None else kinds.size(kind)

    def row(self, node: Tensor) -> Tensor:
        """The row of each node among those of its kind."""
        return node if self.program.kinds is None else self.program.kinds.place[node]

    def node(self, row: Tensor, kind: int) -> Tensor:
        """The node of each row of a kind."""
        return row if self.program.kinds is None else self.program.kinds.nodes[kind][row]

    def slots(self, level: str, *, of_self: bool) -> MissingMessages:
        """Everything that can be missing and still change a target; `level` is "input" or "layer".

        What arrives at a node in call c of L reaches a target if that is fewer than L − c edges away. Messages with
        one receiver stand side by side: what they change is near to each other, too.
        """
        calls, edge = self.program.num_calls, self.lowering.in_edges.edge
        where = self.distance if of_self else self.distance[self.receiver[edge]]  # [N] or [E]

        def near(hops: int) -> Tensor:
            found = (where < hops).nonzero().view(-1)
            return found if of_self else edge[found]

        if level == "input":
            item = near(calls)
            return MissingMessages(item, torch.full_like(item, -1), of_self)
        parts = [near(calls - call) for call in range(calls)]
        numbers = [torch.full_like(part, call) for call, part in enumerate(parts)]
        return MissingMessages(torch.cat(parts), torch.cat(numbers), of_self)

    def numbering(self, which: int, num_slots: int) -> Numbering:
        """One of two tables that numbers pairs, empty; used again from block to block."""
        known = self._numberings.get(which)
        if known is None or known.num_slots < num_slots:
            size, device = self.lowering.in_edges.num_nodes, self.targets.device
            is_large = device.type == "cpu" and num_slots * size > _LARGEST_TABLE
            known = SortedNumbering(num_slots, size) if is_large else Numbering(num_slots, size, device)
            self._numberings[which] = known
        known.forget()
        return known

    def _columns_only(self) -> bool:
        """Whether the explained numbers are (signed) columns of what the last layer sums up."""
        affine = isinstance(self.steps[-1].layer, AffineLayer) and not self.segments[-1] and self.program.is_chain
        return affine and self.target.of == "logit" and self.program.output == self.steps[-1].output


class Traversal:
    """Changes on their way through the calls: which pairs (slot, node) there are. What a change is, a subclass knows."""

    def __init__(self, differences: Differences, num_slots: int) -> None:
        self.all = differences
        self.num_nodes = differences.lowering.in_edges.num_nodes
        self.numbering = differences.numbering(0, num_slots)
        self.pairs = Pairs(differences.targets[:0], self.num_nodes)

    def silent(self, call: int) -> Tensor:
        """`[slots]`: the edge that is not like any other in this call (it is missing, or its weight is varied), or −1."""
        raise NotImplementedError

    def near(self, node: Tensor, call: int) -> Tensor:
        """Whether what a node receives in this call can still reach a target."""
        return self.all.distance[node] < self.all.program.num_calls - call

    def spread(self, pairs: Pairs, call: int) -> tuple[Tensor, Tensor, Tensor]:
        """Out-edges of changed nodes that still matter: the pair that sends, the column, and the key of the pair that receives.

        In the example, before call 1: of the pairs (slot 0, node 1) and (slot 1, node 2) only the first has an out-edge, e1.
        The result is the pair number 0, the column 1 and the key 0 · 3 + 2 = 2, `[out-edges]` each.
        """
        out, silent = self.all.out_edges, self.silent(call)
        kernels = kernels_for(len(pairs), pairs.key)
        if kernels is not None:
            geometry = (out.start, out.edge, out.sender, self.all.distance)
            reach = self.all.program.num_calls - call
            found = kernels.spread(pairs.key.numpy(), self.num_nodes, *arrays(*geometry), reach, silent.numpy())
            source, edge, key = (torch.from_numpy(array) for array in found)
            return source, edge, key
        source, place = out.of_nodes(pairs.node)  # [out-edges of changed nodes] each
        edge, receiver, slot = out.edge[place], out.sender[place], pairs.slot[source]
        kept = (self.near(receiver, call) & (edge != silent[slot])).nonzero().view(-1)
        return source[kept], edge[kept], (slot * self.num_nodes + receiver)[kept]

    def moved_pairs(self) -> tuple[Tensor, Tensor]:
        """The present pairs that are numbered again, and their numbers: `[kept]` each."""
        number = self.numbering.find(self.pairs.key)
        kept = (number >= 0).nonzero().view(-1)
        return kept, number[kept]

    def targets_by_node(self) -> InEdges:
        """Targets grouped by node, as positions; a node may be asked for twice.

        For the targets (2, 0, 2) of three nodes: starts (0, 1, 1, 3), positions (1, 0, 2).
        """
        targets = self.all.targets
        order = targets.argsort(stable=True)
        start = torch.zeros(self.num_nodes + 1, dtype=torch.long, device=order.device)
        start[1:] = torch.bincount(targets, minlength=self.num_nodes).cumsum(0)
        return InEdges(start, order, order, self.num_nodes)

    def at_targets(self) -> tuple[Tensor, Tensor]:
        """The pairs whose node is a target, and the target's position: `[n]` each."""
        groups = self.targets_by_node()
        pair, place = groups.of_nodes(self.pairs.node)
        return pair, groups.edge[place]


def _distance(in_edges: InEdges, targets: Tensor, calls: int) -> Tensor:
    """`[N]`: fewest edges from each node to the nearest target; `calls` if that is too far to matter.

    >>> path = InEdges.of(torch.tensor([[0, 1], [1, 2]]), 3)             # 0 → 1 → 2
    >>> _distance(path, torch.tensor([2]), 2)                            # node 0 cannot be changed in time
    tensor([2, 1, 0])
    """
    distance = torch.full((in_edges.num_nodes,), calls, device=targets.device)
    frontier = torch.unique(targets)
    distance[frontier] = 0
    for hop in range(1, calls):
        _, place = in_edges.of_nodes(frontier)
        sender = in_edges.sender[place]
        distance[sender] = distance[sender].clamp(max=hop)
        frontier = (distance == hop).nonzero().view(-1)
    return distance


def _live_after(differences: Differences) -> list[set[int]]:
    """Per call: the values that are read after it and its segment, by later steps or as the output."""
    program, calls = differences.program, differences.program.num_calls
    live: list[set[int]] = [set() for _ in range(calls)]
    for step in program.steps:
        at = step.call - 1 if isinstance(step, MessageStep) else step.calls_done - 1
        for source in step.sources:
            if isinstance(source, Ref):
                for call in range(at + 1 if isinstance(step, MessageStep) else at):
                    live[call].add(source.value)
    for call in range(calls):
        live[call].add(program.output)
    return live
