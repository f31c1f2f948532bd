"""Tighter bounds of ∂z/∂ω_e, from the other end: the gradient of one target carried back to one edge.

Carrying slopes forwards (`forward_bounds.py`) serves all targets at once, but what is uncertain early (above all the
rectifiers of the edge's receiver) spreads over all columns of all later calls. Carried backwards, the later calls are almost
exact. It costs a pass for each (slot, target), so it is done only for those whose sign is still open.

Worked example: the path 0 → 1 → 2 with feature 1 on node 0, h = ReLU(2 ω − 1½) on node 1, g = (h, h) on node 2, and
z = 2 g₁ − g₂. The slot is the edge 0 → 1 with its weight ω in [½, 1], so the ReLU's input is [−½, ½] and its derivative
anything in [0, 1].

    forward     slope of h: [0, 1] · 2 = [0, 2]; of g: ([0, 2], [0, 2]); of z: 2 · [0, 2] − [0, 2] = [−2, 4], which is open
    backward    gradient of z by g: (2, −1); by h after the ReLU: 2 − 1 = 1, exactly; before it: [0, 1];
                times the edge's message 2: ∂z/∂ω is in [0, 2], so it keeps its sign

The forward pass forgets that g₁ and g₂ depend on the same ReLU; backwards their gradients meet before the ReLU is reached.

Calls with attention, or with a kink on every edge, are not gone back through: there the gradient meets the slopes that the
forward pass found.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from edgewise.graph.computation_graph import InEdges
from edgewise.program.intervals import Interval
from edgewise.program.pair_numbers import Numbering
from edgewise.trust.attention_operation import Attention
from edgewise.trust.forward_bounds import Spread, weights_of
from edgewise.trust.interval_operations import Affine, EdgeMessages, Join, Messages, Pool, Rectify, Sum
from edgewise.trust.plan_operations import Operation
from edgewise.trust.varied_edges import Bent, Halt, PooledPairs, Received, find


@dataclass(frozen=True, eq=False)
class _Gradient:
    """Bounds of the gradient of z by one value, for some pairs (case, node); a case is a (slot, target) that is asked about."""

    key: Tensor
    """`[pairs]`: case · N + node; by a value of graphs it is the case alone, which has one graph."""
    rows: Interval
    """`[pairs, width]`."""


class Return:
    """One backward pass for several cases (slot, target); `bounds` `[cases]` of ∂z/∂ω_e are the result.

    It goes through the operations in reverse and adds, in every call where the slot's edge is varied, the gradient at the
    edge's receiver times the edge's message. Only pairs that the forward pass found to have moved are followed: the
    gradient by any other value does not lead to the edge.
    """

    def __init__(self, spread: Spread, slot: Tensor, position: Tensor) -> None:
        self._spread, self._slot = spread, slot
        self._at_one, self._graph = spread.at_one, spread.graph
        self._size = self._at_one.num_nodes
        self._numbering = Numbering(len(slot), self._size, slot.device)
        self._open: dict[int, list[_Gradient]] = {}
        zero = torch.zeros(len(slot), dtype=torch.double, device=slot.device)
        self.bounds = Interval.point(zero)
        self._of_graphs, output = self._at_one.plan.of_graphs, self._at_one.plan.output
        key = torch.arange(len(slot), device=slot.device)
        key = key if output in self._of_graphs else key * self._size + self._graph.targets[position]
        self._add(output, key, Interval.point(weights_of(self._at_one, position)))
        for operation in reversed(self._at_one.plan.operations):
            if operation.output in self._open:
                self._back(operation, self._merged(operation.output))

    def _add(self, value: int, key: Tensor, rows: Interval) -> None:
        """A part of the gradient by a value; values that no edge weight changes are left out."""
        if value not in self._at_one.plan.constants:
            self._open.setdefault(value, []).append(_Gradient(key, rows))

    def _merged(self, value: int) -> _Gradient:
        """The gradient by a value: all its parts added up, one row for each pair."""
        parts = self._open.pop(value)
        if len(parts) == 1:
            return parts[0]
        pairs = self._numbering.number(*(part.key for part in parts))
        place = self._numbering.find(torch.cat([part.key for part in parts]))
        rows = Interval.stack([part.rows for part in parts]).outward(len(parts)).sums(place, len(pairs))
        return _Gradient(pairs.key, rows)

    def _forward_key(self, key: Tensor) -> Tensor:
        """The key of the forward pass, slot · N + node, for a key case · N + node."""
        return self._slot[key // self._size] * self._size + key % self._size

    def _back(self, operation: Operation, gradient: _Gradient) -> None:
        """From the gradient by an operation's output to those by its inputs."""
        rows, spread, of_graphs = gradient.rows, self._spread, operation.output in self._of_graphs
        if isinstance(operation, Messages):
            self._through_messages(operation, gradient, spread.received[operation.call])
        elif isinstance(operation, (Attention, EdgeMessages)):
            self._end(gradient, spread.halts[operation.output])
        elif isinstance(operation, Pool):
            self._through_pool(operation, gradient, spread.pools.get(operation.output))
        elif isinstance(operation, Rectify):
            slot_or_pair = self._slot[gradient.key] if of_graphs else self._forward_key(gradient.key)
            self._through_rectifier(operation, gradient, slot_or_pair, spread.bent.get(operation.output))
        elif isinstance(operation, Sum):
            self._add(operation.reads[0], gradient.key, rows)
            self._add(operation.reads[1], gradient.key, rows if operation.sign > 0 else -rows)
        elif isinstance(operation, Join):
            widths = [self._at_one.value[value].lo.size(1) for value in operation.reads]
            for value, lo, hi in zip(operation.reads, rows.lo.split(widths, 1), rows.hi.split(widths, 1), strict=True):
                self._add(value, gradient.key, Interval(lo, hi))
        else:
            assert isinstance(operation, Affine)
            key = gradient.key
            node = spread.graph_of_slot[self._slot[key]] if of_graphs else key % self._size
            self._add(operation.source, key, operation.backward(rows, node))

    def _end(self, gradient: _Gradient, halt: Halt) -> None:
        """Where the way back ends: the gradient by what a call made, times the slopes of that."""
        place = find(halt.key, self._forward_key(gradient.key))
        kept = (place >= 0).nonzero().view(-1)
        case = gradient.key[kept] // self._size
        part = gradient.rows.rows(kept).dot(halt.slope.rows(place[kept]))
        most = int(torch.bincount(case, minlength=1).max()) + 1
        column = Interval(part.lo.view(-1, 1), part.hi.view(-1, 1)).outward(most).sums(case, len(self._slot))
        self.bounds = self.bounds + Interval(column.lo.view(-1), column.hi.view(-1))

    def _through_pool(self, operation: Pool, gradient: _Gradient, pooled: PooledPairs | None) -> None:
        """From a graph to those of its nodes that had moved; of a maximum, to those that may be the largest."""
        if pooled is None:
            return
        slot, count = pooled.key // self._size, len(self._spread.slots)
        order = slot.argsort(stable=True)
        start = torch.zeros(count + 1, dtype=torch.long, device=slot.device)
        start[1:] = torch.bincount(slot, minlength=count).cumsum(0)
        which, place = InEdges(start, order, order, count).of_nodes(self._slot[gradient.key])
        pair, rows = order[place], gradient.rows.rows(which)
        if pooled.share is not None:
            rows = rows.between(pooled.share[0][pair], pooled.share[1][pair])
        self._add(operation.source, gradient.key[which] * self._size + pooled.key[pair] % self._size, rows)

    def _through_rectifier(self, operation: Rectify, gradient: _Gradient, moved: Tensor, bent: Bent | None) -> None:
        """Times the bounds of the derivative; pairs that had not moved there are dropped (`moved` are their forward keys)."""
        if bent is None:
            return
        place = find(bent.key, moved)
        kept = (place >= 0).nonzero().view(-1)
        on, off = bent.on[place[kept]], bent.off[place[kept]]
        rows = gradient.rows.rows(kept).between(*operation.derivative(on, off))
        self._add(operation.source, gradient.key[kept], rows)

    # --- through a call -----------------------------------------------------------------------------------------------

    def _through_messages(self, step: Messages, gradient: _Gradient, received: Received) -> None:
        """Through a call: collect what meets the slot's edge, then go on to the senders and to the nodes themselves."""
        self._meet(step, gradient, received)
        if step.source in self._at_one.plan.constants or len(received.before) == 0:
            return
        onward = gradient.rows if step.matrix is None else gradient.rows.linear(step.matrix.t())
        keys, parts = self._to_senders(step, gradient.key, onward, received)
        node = gradient.key % self._size
        mine = self._to_self(step, gradient.rows, onward, node)
        if mine is not None:
            kept = (find(received.before, self._forward_key(gradient.key)) >= 0).nonzero().view(-1)
            keys, parts = torch.cat([keys, gradient.key[kept]]), Interval.stack([parts, mine.rows(kept)])
        pairs = self._numbering.number(keys)
        rows = parts.outward(self._most_out).sums(self._numbering.find(keys), len(pairs))
        self._add(step.source, pairs.key, rows)

    @property
    def _most_out(self) -> int:
        """The most terms that are added up in one sender: its out-edges, its own term and a rounding."""
        return int(self._graph.out_edges.start.diff().max()) + 2

    def _meet(self, step: Messages, gradient: _Gradient, received: Received) -> None:
        """Where the gradient arrives at the receiver of the edge: times the edge's message, it is a part of ∂z/∂ω_e."""
        edge = self._spread.slots.edge[self._slot]
        question = torch.arange(len(self._slot), device=edge.device)
        place = find(gradient.key, question * self._size + self._graph.receiver[edge])
        which = find(received.slot, self._slot)
        met = ((place >= 0) & (which >= 0)).nonzero().view(-1)
        part = gradient.rows.rows(place[met]).dot(received.message.rows(which[met]))
        self.bounds = self.bounds.put(met, self.bounds.rows(met) + part)

    def _to_senders(self, step: Messages, key: Tensor, onward: Interval, received: Received) -> tuple[Tensor, Interval]:
        """Along the in-edges, to senders that had moved; the slot's own edge carries its own weight."""
        graph, slots = self._graph.lowering.in_edges, self._spread.slots
        source, place = graph.of_nodes(key % self._size)
        to = (key // self._size)[source] * self._size + graph.sender[place]
        kept = (find(received.before, self._forward_key(to)) >= 0).nonzero().view(-1)
        source, edge, to = source[kept], graph.edge[place[kept]], to[kept]
        slot = self._slot[to // self._size]
        own = (edge == slots.edge[slot]) & slots.active(step.call)[slot]
        one = torch.ones((), dtype=torch.double, device=edge.device)
        low, high = (torch.where(own, part[slot], one).view(-1, 1) for part in (slots.low, slots.high))
        return to, onward.rows(source).times(step.coefficients(edge)).between(low, high)

    def _to_self(self, step: Messages, rows: Interval, onward: Interval, node: Tensor) -> Interval | None:
        """Through the own terms of a call (self-loop, root weight), transposed; None if it has none."""
        back = step if step.root is None else replace(step, root=step.root.t())
        return back.own(onward, rows, node)
