"""Occlusion without running anything twice: the difference that a missing message makes, carried through the remaining layers.

Dropping one message changes one node; the change spreads one hop further with every later call. All missing messages (slots)
travel together as pairs (slot, node) with the change of the node's features; what did not change is read from the activations
of the whole graph. A slot is an edge, or a node's own term; layerwise it is missing in one call, at input level in all of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.graph.computation_graph import InEdges
from edgewise.program.ir import MessageStep, Ref
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.lowering import Lowering
from edgewise.question.target import Target

# --- Pairs (slot, node): what a missing message (the slot) has changed so far ------------------------------------------


@dataclass(frozen=True, eq=False)
class Pairs:
    """Numbered pairs; `key` is slot · N + node."""

    key: Tensor
    num_nodes: int
    grouped: bool = False
    """Whether they are ordered by slot."""

    @property
    def slot(self) -> Tensor:
        """The missing message of each pair."""
        return self.key // self.num_nodes

    @property
    def node(self) -> Tensor:
        """The changed node of each pair."""
        return self.key % self.num_nodes

    def __len__(self) -> int:
        return len(self.key)


class Numbering:
    """Gives pairs numbers by a table over slots × nodes, without sorting."""

    def __init__(self, num_slots: int, num_nodes: int, device: torch.device) -> None:
        self._table = torch.full((num_slots * num_nodes,), -1, dtype=torch.int32, device=device)
        self._used: list[Tensor] = []
        self.num_slots, self.num_nodes = num_slots, num_nodes

    def forget(self) -> None:
        """No key has a number any more."""
        for used in self._used:
            self._table[used] = -1
        self._used = []

    def number(self, *keys: Tensor) -> Pairs:
        """Every key once, numbered from 0; earlier numbers are forgotten."""
        self.forget()
        key = torch.cat(keys)
        ticket = torch.arange(len(key), device=key.device, dtype=torch.int32)
        self._table[key] = ticket
        unique = key[self._table[key] == ticket]
        self._table[unique] = torch.arange(len(unique), device=key.device, dtype=torch.int32)
        self._used = [unique]
        return Pairs(unique, self.num_nodes)

    def find(self, key: Tensor) -> Tensor:
        """The number of each key, −1 if it has none."""
        return self._table[key].long()


# --- The whole ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Slots:
    """Missing messages: what (an edge's column, or a node), and in which call (−1: in every call)."""

    item: Tensor
    call: Tensor
    of_self: bool

    def __len__(self) -> int:
        return len(self.item)

    def split(self, size: int) -> Iterator["Slots"]:
        """In blocks."""
        for item, call in zip(self.item.split(size), self.call.split(size), strict=True):
            yield Slots(item, call, self.of_self)


@dataclass(frozen=True, eq=False)
class Drops:
    """value − value without, where it is not zero: for the target at `position`."""

    position: Tensor
    slot: Tensor
    score: Tensor


class Differences:
    """The targets of one lowering, and how far each node is from them."""

    def __init__(self, lowering: Lowering, targets: Tensor, target: Target) -> None:
        self.lowering, self.targets, self.target = lowering, targets, target
        self.program, self.known = lowering.program, lowering.known
        graph = lowering.in_edges
        receiver = torch.repeat_interleave(torch.arange(graph.num_nodes, device=targets.device), graph.start.diff())
        self.sender = torch.empty_like(graph.sender)
        self.receiver = torch.empty_like(graph.sender)
        self.sender[graph.edge], self.receiver[graph.edge] = graph.sender, receiver
        self.out_edges = InEdges.of(torch.stack([self.receiver, self.sender]), graph.num_nodes)
        self.distance = _distance(graph, targets, self.program.num_calls)
        self.value = target.value(target.truth)
        self.steps = [step for step in self.program.steps if isinstance(step, MessageStep)]
        self.segments = self.program.segments()
        self.columns_only = self._columns_only()
        self.live = _live_after(self)
        self._numberings: dict[int, Numbering] = {}

    def slots(self, level: str, *, of_self: bool) -> Slots:
        """Everything that can be missing and still change a target."""
        calls = self.program.num_calls
        where = self.distance if of_self else self.distance[self.receiver]
        if level == "input":
            item = (where < calls).nonzero().view(-1)
            return Slots(item, torch.full_like(item, -1), of_self)
        parts = [(where < calls - call).nonzero().view(-1) for call in range(calls)]
        numbers = [torch.full_like(part, call) for call, part in enumerate(parts)]
        return Slots(torch.cat(parts), torch.cat(numbers), of_self)

    def numbering(self, which: int, num_slots: int) -> Numbering:
        """One of two tables that numbers pairs, empty; used again from block to block."""
        known = self._numberings.get(which)
        if known is None or known.num_slots < num_slots:
            known = Numbering(num_slots, self.lowering.in_edges.num_nodes, self.targets.device)
            self._numberings[which] = known
        known.forget()
        return known

    def _columns_only(self) -> bool:
        """Whether the explained numbers are (signed) columns of what the last layer sums up."""
        affine = isinstance(self.steps[-1].layer, AffineLayer) and not self.segments[-1]
        return affine and self.target.of == "logit" and self.program.output == self.steps[-1].output


def _distance(in_edges: InEdges, targets: Tensor, calls: int) -> Tensor:
    """Fewest edges from each node to the nearest target; `calls` if that is too far to matter."""
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
    """Per call: the values that are read later."""
    program, calls = differences.program, differences.program.num_calls
    live: list[set[int]] = [set() for _ in range(calls)]
    for step in program.steps:
        at = step.call - 1 if isinstance(step, MessageStep) else step.calls_done - 1
        sources = [step.source] if isinstance(step, MessageStep) else step.sources
        for source in sources:
            if isinstance(source, Ref):
                for call in range(at + 1 if isinstance(step, MessageStep) else at):
                    live[call].add(source.value)
    for call in range(calls):
        live[call].add(program.output)
    return live
