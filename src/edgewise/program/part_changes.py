"""Occlusion where calls stand side by side: each works on its own columns, between nodes of its own kinds.

The same way as in `perturbation_forward.py`, depth by depth, with the pairs (slot, node) of every kind of nodes apart:

1. every call of the depth turns the changes of its senders (and the message that is missing) into changes of its receivers;
2. the pairs of a kind are then those that any of its calls changed, and those whose earlier values are still read;
3. through the row-wise steps behind the calls, kind by kind: run on old rows + change, minus what they made of the old rows.

Two relations 0 → 1 and 0 ⇒ 1 with the matrices 2 and 3, x = (1, 10): node 1 receives 2 + 3. Without the first column it
changes by −2, without the second by −3; the pairs are (slot 0, node 1) and (slot 1, node 1) after the only call.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.graph.computation_graph import InEdges
from edgewise.program.domains import RowNumbers, interpret
from edgewise.program.hop import Hop
from edgewise.program.ir import MessageStep, Ref, Rows, RowStep
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.layers.base import Tables
from edgewise.program.perturbation import Differences, Drops, MissingMessages


@dataclass(frozen=True, eq=False)
class _CallEdges:
    """The columns of one call, between rows of its senders' and receivers' kinds."""

    out: InEdges
    """Grouped by sender; the other ends are receivers."""
    into: InEdges
    """Grouped by receiver."""


def _call_edges(differences: Differences, step: MessageStep) -> _CallEdges:
    kept = differences.kept
    if ("edges", step.output) not in kept:
        assert step.part is not None
        columns = step.part.columns.nonzero().view(-1)
        ends = torch.stack([differences.row(end[columns]) for end in (differences.sender, differences.receiver)])
        sizes = [differences.size(kind) for kind in (step.part.senders, step.part.receivers)]
        sides = [InEdges.of(way, size) for way, size in ((ends.flip(0), sizes[0]), (ends, sizes[1]))]
        out, into = (InEdges(one.start, columns[one.edge], one.sender, one.num_nodes) for one in sides)
        kept["edges", step.output] = _CallEdges(out, into)
    found: _CallEdges = kept["edges", step.output]
    return found


def _find(key: Tensor, wanted: Tensor) -> Tensor:
    """Where each wanted key stands among `key`, which is sorted; −1 if it is not there."""
    if len(key) == 0:
        return torch.full_like(wanted, -1)
    place = torch.searchsorted(key, wanted).clamp(max=len(key) - 1)
    return torch.where(key[place] == wanted, place, -1)


def _summed(keys: list[Tensor], rows: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Every key once, sorted, with the sum of its rows."""
    key, place = torch.cat(keys).unique(return_inverse=True)
    every = torch.cat(rows)
    return key, every.new_zeros(len(key), every.size(1)).index_add_(0, place, every)


class PartChange:
    """A block of occlusions: for each kind, which (slot, row) pairs changed so far, and by how much.

    `key[kind]` is `[pairs]`: slot · rows of the kind + row, ascending. `change[value]` has a row for each pair of the value's
    kind; a value that is not there has not changed.
    """

    def __init__(self, differences: Differences, slots: MissingMessages) -> None:
        self.all, self.slots, self.program = differences, slots, differences.program
        self.kind_of = {step.output: step.kind for step in self.program.steps}
        self.key: dict[int, Tensor] = {}
        self.change: dict[int, Tensor] = {}

    def drops(self) -> Drops:
        """What every target loses by each of these missing messages."""
        for depth, segments in enumerate(self.program.segments_by_kind):
            made: dict[int, list[tuple[int, Tensor, Tensor]]] = {}
            for step in self.program.calls_of(depth):
                made.setdefault(step.kind, []).append((step.output, *self._through_call(step)))
            for kind in {*self.key, *made, *segments}:
                self._arrive(depth, kind, made.get(kind, []), segments.get(kind, []))
        return self._read_off()

    def _read_off(self) -> Drops:
        """Old number − new number, where the output of a target changed."""
        output, everything = self.program.output, self.all
        kind = self.kind_of[output]
        key, size = self.key.get(kind, everything.targets[:0]), everything.size(kind)
        groups = InEdges.of(
            torch.stack([torch.arange(len(everything.targets), device=key.device), everything.row(everything.targets)]),
            size,
        )
        pair, place = groups.of_nodes(key % size)
        position = groups.sender[place]
        if len(position) == 0:
            return Drops(position, position, everything.value[:0])
        rows = everything.known[output].index_select(0, (key % size)[pair]) + self.change[output].index_select(0, pair)
        drop = everything.value[position] - everything.target.select(position).value(rows)
        kept = (drop != 0).nonzero().view(-1)
        return Drops(position[kept], (key // size)[pair][kept], drop[kept])

    # --- through a call -----------------------------------------------------------------------------------------------

    def _near(self, row: Tensor, kind: int, call: int) -> Tensor:
        """Whether what a node receives in this call can still reach a target."""
        return self.all.distance[self.all.node(row, kind)] < self.program.num_calls - call

    def _through_call(self, step: MessageStep) -> tuple[Tensor, Tensor]:
        """The keys of the receivers that a call changes, and their changes, `[n]` and `[n, out]`."""
        if isinstance(step.layer, AffineLayer):
            return self._carried(step, step.layer)
        key = torch.cat([self._missing(step)[1], self._reached(step)[2], *self._own_keys(step)]).unique()
        return key, self._run_again(step, key)

    def _missing(self, step: MessageStep) -> tuple[Tensor, Tensor]:
        """`[n]` each: the slots whose message (or own term) is missing in this call, and the keys of their receivers."""
        assert step.part is not None
        item, kinds = self.slots.item, self.program.kinds
        if self.slots.of_self:
            mine = torch.ones_like(item, dtype=torch.bool) if kinds is None else kinds.of_node[item] == step.kind
            node = item
        else:
            mine, node = step.part.columns[item], self.all.receiver[item]
        mine = mine & self.slots.in_call(step.call) & (self.all.distance[node] < self.program.num_calls - step.call)
        slot = mine.nonzero().view(-1)
        return slot, slot * self.all.size(step.kind) + self.all.row(node[slot])

    def _reached(self, step: MessageStep) -> tuple[Tensor, Tensor, Tensor]:
        """`[n]` each: the changed sender's pair, the column, and the key of the receiver, where that still matters."""
        assert step.part is not None
        nothing = self.slots.item[:0]
        if not isinstance(step.source, Ref) or step.source.value not in self.change:
            return nothing, nothing, nothing
        key, size = self.key[step.part.senders], self.all.size(step.part.senders)
        edges = _call_edges(self.all, step)
        source, place = edges.out.of_nodes(key % size)
        column, receiver, slot = edges.out.edge[place], edges.out.sender[place], (key // size)[source]
        kept = self._near(receiver, step.kind, step.call)
        if not self.slots.of_self:
            kept &= ~((column == self.slots.item[slot]) & self.slots.in_call(step.call)[slot])
        at = kept.nonzero().view(-1)
        return source[at], column[at], slot[at] * self.all.size(step.kind) + receiver[at]

    def _own_keys(self, step: MessageStep) -> list[Tensor]:
        """Pairs of receivers whose own rows changed, and are read by the call."""
        own = step.sources[-1]
        if not isinstance(own, Ref) or own.value not in self.change or self.kind_of[own.value] != step.kind:
            return []
        key = self.key[step.kind]
        return [key[self._near(key % self.all.size(step.kind), step.kind, step.call)]]

    def _carried(self, step: MessageStep, layer: AffineLayer) -> tuple[Tensor, Tensor]:
        """An affine layer: a sender that changed by δ changes its receivers by coefficient · B δ."""
        table, (slot, key) = self._table(step), self._missing(step)
        item = self.slots.item[slot]
        gone = (
            layer.own_term(table, self.all.row(item))
            if self.slots.of_self
            else layer.message(table, item, self.all.row(self.all.sender[item]))
        )
        if gone is None:  # the own term is a row-wise step behind the call: the pairs are needed there
            gone = self.all.known[step.output].new_zeros(len(key), self.all.known[step.output].size(1))
        keys, rows = [key], [-gone]
        if isinstance(step.source, Ref) and step.source.value in self.change:
            moved = self.change[step.source.value]
            source, column, reached = self._reached(step)
            keys.append(reached)
            rows.append(layer.weighted(column, layer.difference(moved).index_select(0, source)))
            if layer.loop is not None or layer.root is not None:
                before, size = self.key[step.kind], self.all.size(step.kind)
                kept = self._own_kept(step.call, step.kind) & self._near(before % size, step.kind, step.call)
                at = kept.nonzero().view(-1)
                own = layer.own_difference(moved.index_select(0, at), (before % size)[at])
                assert own is not None
                keys.append(before[at])
                rows.append(own)
        return _summed(keys, rows)

    def _own_kept(self, call: int, kind: int, key: Tensor | None = None) -> Tensor:
        """`[pairs]`: whether the node of each pair of a kind keeps its own term in this call."""
        key = self.key[kind] if key is None else key
        if not self.slots.of_self:
            return torch.ones(len(key), dtype=torch.bool, device=key.device)
        slot, row = key // self.all.size(kind), key % self.all.size(kind)
        return ~((self.slots.item[slot] == self.all.node(row, kind)) & self.slots.in_call(call)[slot])

    def _table(self, step: MessageStep) -> Any:
        """What a call reads when nothing is missing, or what its layer prepared of it."""
        if step.is_prepared:
            return self.all.lowering.prepared[step.output]
        tables = [self.all.known[s.value] if isinstance(s, Ref) else s.tensor for s in step.sources]
        return tables[0] if step.receiver is None else Tables(*tables)

    def _run_again(self, step: MessageStep, key: Tensor) -> Tensor:
        """Any other layer (attention, say): run again for the receivers of these keys, with all that they receive.

        A table has all rows as they were, and below them the changed ones.
        """
        assert step.part is not None
        edges, size = _call_edges(self.all, step).into, self.all.size(step.kind)
        head, place = edges.of_nodes(key % size)
        column, tail, slot = edges.edge[place], edges.sender[place], (key // size)[head]
        start = torch.zeros(len(key) + 1, dtype=torch.long, device=key.device)
        start[1:] = torch.bincount(head, minlength=len(key)).cumsum(0)
        table, own = self._table(step), key % size
        if not step.is_prepared:
            sent, tail = self._changed_rows(step.source, step.part.senders, slot, tail)
            received, own = self._changed_rows(step.sources[-1], step.kind, key // size, own)
            table = sent if step.receiver is None else Tables(sent, received)
        weight = torch.ones(len(column), dtype=self.all.value.dtype, device=key.device)
        if not self.slots.of_self:
            weight[(column == self.slots.item[slot]) & self.slots.in_call(step.call)[slot]] = 0
        hop = Hop(start, tail, column, own, key % size, len(weight))
        kept = self._own_kept(step.call, step.kind, key).to(weight.dtype)
        return step.layer.forward(table, hop, weight, kept) - self.all.known[step.output].index_select(0, key % size)

    def _changed_rows(self, source: Any, kind: int, slot: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        """A table with the changed rows of all slots behind it, and where rows of some slots now stand in it."""
        rows = source.tensor if isinstance(source, Rows) else self.all.known[source.value]
        if isinstance(source, Rows) or source.value not in self.change:
            return rows, row
        key, size = self.key[kind], self.all.size(kind)
        place = _find(key, slot * size + row)
        changed = rows.index_select(0, key % size) + self.change[source.value]
        return torch.cat([rows, changed]), torch.where(place >= 0, len(rows) + place, row)

    # --- behind the calls ---------------------------------------------------------------------------------------------

    def _arrive(self, depth: int, kind: int, made: list[tuple[int, Tensor, Tensor]], segment: list[RowStep]) -> None:
        """The pairs of a kind after a depth: changes of what its calls made, and of what is still read, on common rows."""
        live, size = self.all.live[depth], self.all.size(kind)
        read = {source.value for step in segment for source in step.sources if isinstance(source, Ref)}
        old = {v: c for v, c in self.change.items() if self.kind_of[v] == kind}
        before = self.key.get(kind, self.slots.item[:0])
        near = self._near(before % size, kind, depth).nonzero().view(-1)
        parts = [(v, before[near], c.index_select(0, near)) for v, c in old.items() if v in live | read]
        parts += [part for part in made if part[0] in live | read]
        key = torch.cat([before[:0], *(key for _, key, _ in parts)]).unique()
        change: dict[int, Tensor] = {}
        for value, keys, rows in parts:
            change[value] = rows.new_zeros(len(key), *rows.shape[1:])
            change[value][_find(key, keys)] = rows
        change.update(self._through_rows(segment, kind, key, change, live))
        change = {value: rows for value, rows in change.items() if value in live}
        moved = torch.zeros(len(key), dtype=torch.bool, device=key.device)
        for rows in change.values():
            moved |= (rows != 0).flatten(1).any(dim=1)
        kept = moved.nonzero().view(-1)
        self.key[kind] = key[kept]
        self.change = {v: c for v, c in self.change.items() if v not in old}
        self.change.update({value: rows.index_select(0, kept) for value, rows in change.items()})

    def _through_rows(
        self, segment: list[RowStep], kind: int, key: Tensor, change: dict[int, Tensor], live: set[int]
    ) -> dict[int, Tensor]:
        """f(old + change) − f(old) of the values that are read later, for the rows of the pairs."""
        row = key % self.all.size(kind)
        outputs = {step.output for step in segment}
        read = {s.value for step in segment for s in step.sources if isinstance(s, Ref)} - outputs
        now = {value: self.all.known[value].index_select(0, row) for value in read}
        now.update({value: now[value] + change[value] for value in read if value in change})
        domain = RowNumbers(
            lambda source: source.tensor.index_select(0, row), lambda call: self._own_kept(call, kind, key)
        )
        now = interpret(segment, domain, now)
        return {value: now[value] - self.all.known[value].index_select(0, row) for value in outputs & live}
