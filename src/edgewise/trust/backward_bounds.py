"""The same bounds from the other end: gradients of one target carried back to one edge.

Carrying slopes forwards (`spreading.py`) serves all targets at once, but what is uncertain early (the rectifiers of the edge's
receiver, most of all) spreads over all columns of all later calls. Carried backwards, the later calls are almost exact. It
costs a pass for each (slot, target), so only those that are still open come here.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from edgewise.program.perturbation import Numbering
from edgewise.trust.forward_bounds import Bent, Heard, Spread, find, weights_of
from edgewise.trust.interval_operations import Affine, Join, Messages, Operation, Rectify, Sum
from edgewise.trust.intervals import Interval


@dataclass(frozen=True, eq=False)
class _Gradient:
    """Of one value: rows for some pairs (question, node)."""

    key: Tensor
    rows: Interval


class Return:
    """Questions (slot, target), whose `bounds` of ∂z/∂ω_e are the result."""

    def __init__(self, spread: Spread, slot: Tensor, position: Tensor) -> None:
        self._spread, self._slot = spread, slot
        self._at_one, self._graph = spread.at_one, spread.graph
        self._size = self._at_one.num_nodes
        self._numbering = Numbering(len(slot), self._size, slot.device)
        self._open: dict[int, list[_Gradient]] = {}
        zero = torch.zeros(len(slot), dtype=torch.double, device=slot.device)
        self.bounds = Interval.point(zero)
        key = torch.arange(len(slot), device=slot.device) * self._size + self._graph.targets[position]
        self._add(self._at_one.plan.output, key, Interval.point(weights_of(self._at_one, position)))
        for operation in reversed(self._at_one.plan.operations):
            if operation.output in self._open:
                self._back(operation, self._merged(operation.output))

    def _add(self, value: int, key: Tensor, rows: Interval) -> None:
        if value not in self._at_one.plan.constants:
            self._open.setdefault(value, []).append(_Gradient(key, rows))

    def _merged(self, value: int) -> _Gradient:
        """Everything that reached a value, one row for each pair."""
        parts = self._open.pop(value)
        if len(parts) == 1:
            return parts[0]
        pairs = self._numbering.number(*(part.key for part in parts))
        place = self._numbering.find(torch.cat([part.key for part in parts]))
        rows = Interval.stack([part.rows for part in parts]).outward(len(parts)).sums(place, len(pairs))
        return _Gradient(pairs.key, rows)

    def _forward_key(self, key: Tensor) -> Tensor:
        """The pair (slot, node) of a pair (question, node)."""
        return self._slot[key // self._size] * self._size + key % self._size

    def _back(self, operation: Operation, gradient: _Gradient) -> None:
        rows = gradient.rows
        if isinstance(operation, Messages):
            self._through_messages(operation, gradient, self._spread.heard[operation.call])
        elif isinstance(operation, Rectify):
            self._through_rectifier(operation, gradient, self._spread.bent.get(operation.output))
        elif isinstance(operation, Sum):
            self._add(operation.reads[0], gradient.key, rows)
            self._add(operation.reads[1], gradient.key, rows if operation.sign > 0 else -rows)
        elif isinstance(operation, Join):
            widths = [self._at_one.value[value].lo.size(1) for value in operation.reads]
            for value, lo, hi in zip(operation.reads, rows.lo.split(widths, 1), rows.hi.split(widths, 1), strict=True):
                self._add(value, gradient.key, Interval(lo, hi))
        else:
            assert isinstance(operation, Affine)
            self._add(operation.source, gradient.key, operation.backward(rows))

    def _through_rectifier(self, operation: Rectify, gradient: _Gradient, bent: Bent | None) -> None:
        """Pairs that had not moved there lead to no edge."""
        if bent is None:
            return
        place = find(bent.key, self._forward_key(gradient.key))
        kept = (place >= 0).nonzero().view(-1)
        on, off = bent.on[place[kept]], bent.off[place[kept]]
        rows = gradient.rows.rows(kept).between(*operation.derivative(on, off))
        self._add(operation.source, gradient.key[kept], rows)

    # --- through a call -----------------------------------------------------------------------------------------------

    def _through_messages(self, step: Messages, gradient: _Gradient, heard: Heard) -> None:
        self._meet(step, gradient, heard)
        if step.source in self._at_one.plan.constants or len(heard.before) == 0:
            return
        onward = gradient.rows if step.matrix is None else gradient.rows.linear(step.matrix.t())
        keys, parts = self._to_senders(step, gradient.key, onward, heard)
        node = gradient.key % self._size
        mine = self._to_self(step, gradient.rows, onward, node)
        if mine is not None:
            kept = (find(heard.before, self._forward_key(gradient.key)) >= 0).nonzero().view(-1)
            keys, parts = torch.cat([keys, gradient.key[kept]]), Interval.stack([parts, mine.rows(kept)])
        pairs = self._numbering.number(keys)
        rows = parts.outward(self._most_out).sums(self._numbering.find(keys), len(pairs))
        self._add(step.source, pairs.key, rows)

    @property
    def _most_out(self) -> int:
        return int(self._graph.out_edges.start.diff().max()) + 2

    def _meet(self, step: Messages, gradient: _Gradient, heard: Heard) -> None:
        """Where the gradient arrives at the receiver of the edge: times the edge's message, it is a part of ∂z/∂ω_e."""
        edge = self._spread.slots.edge[self._slot]
        question = torch.arange(len(self._slot), device=edge.device)
        place = find(gradient.key, question * self._size + self._graph.receiver[edge])
        which = find(heard.slot, self._slot)
        met = ((place >= 0) & (which >= 0)).nonzero().view(-1)
        part = gradient.rows.rows(place[met]).dot(heard.message.rows(which[met]))
        total = self.bounds.rows(met) + part
        self.bounds = Interval(self.bounds.lo.index_copy(0, met, total.lo), self.bounds.hi.index_copy(0, met, total.hi))

    def _to_senders(self, step: Messages, key: Tensor, onward: Interval, heard: Heard) -> tuple[Tensor, Interval]:
        """Along the in-edges, to senders that had moved; the slot's own edge carries its own weight."""
        graph, slots = self._graph.lowering.in_edges, self._spread.slots
        source, place = graph.of_nodes(key % self._size)
        to = (key // self._size)[source] * self._size + graph.sender[place]
        kept = (find(heard.before, self._forward_key(to)) >= 0).nonzero().view(-1)
        source, edge, to = source[kept], graph.edge[place[kept]], to[kept]
        slot = self._slot[to // self._size]
        own = (edge == slots.edge[slot]) & slots.active(step.call)[slot]
        one = torch.ones((), dtype=torch.double, device=edge.device)
        low, high = (torch.where(own, part[slot], one).view(-1, 1) for part in (slots.low, slots.high))
        return to, onward.rows(source).times(step.coefficients(edge)).between(low, high)

    def _to_self(self, step: Messages, rows: Interval, onward: Interval, node: Tensor) -> Interval | None:
        back = step if step.root is None else replace(step, root=step.root.t())
        return back.own(onward, rows, node)
