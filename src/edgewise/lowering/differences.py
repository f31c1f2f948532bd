"""Occlusion without running anything twice: the difference that a missing message makes, carried through the remaining layers.

Dropping one message changes one node; the change spreads one hop further with every later call. All missing messages (slots)
travel together as pairs (slot, node) with the change of the node's features; what did not change is read from the activations
of the whole graph. A slot is an edge, or a node's own term; layerwise it is missing in one call, at input level in all of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from edgewise.graph.computation_graph import InEdges
from edgewise.lowering.compiled import kernels_for
from edgewise.lowering.hop import Hop
from edgewise.lowering.layers.affine import AffineLayer
from edgewise.lowering.lowering import Lowering
from edgewise.lowering.pairs import Numbering, Pairs
from edgewise.lowering.program import MessageStep, Ref, Rows, RowStep, rectifier
from edgewise.target import Target

_Parts: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]


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
        self._columns = self._columns_only()
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

    def drops(self, slots: Slots) -> Drops:
        """What every target loses by each of these."""
        return _Block(self, slots).run()

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


class _Block:
    """Some slots on their way through the calls."""

    def __init__(self, differences: Differences, slots: Slots) -> None:
        self.all, self.slots = differences, slots
        size = differences.lowering.in_edges.num_nodes
        self.numbering = differences.numbering(0, len(slots))
        self.num_nodes = size
        self.pairs = Pairs(slots.item[:0], size)
        self.change: dict[int, Tensor] = {}
        self.live = _live_after(differences)

    def run(self) -> Drops:
        steps, segments = self.all.steps, self.all.segments
        for step, segment in zip(steps, segments, strict=True):
            if step is steps[-1] and self.all._columns:
                return self._last_columns(step)
            change, pairs = self._through_messages(step)
            read = {source.value for row in segment for source in row.sources if isinstance(source, Ref)}
            self._move_to(pairs, read | self.live[step.call])
            self.change[step.output] = change
            if not self._through_rectifier(step, segment):
                self._through_rows(segment)
                self._forget(step.call)
        rows = self.all.known[self.all.program.output].index_select(0, self.pairs.node)
        return self._read_off(rows + self.change[self.all.program.output])

    # --- where the change goes ----------------------------------------------------------------------------------------

    def _near(self, node: Tensor, call: int) -> Tensor:
        return self.all.distance[node] < self.all.program.num_calls - call

    def _missing(self, call: int) -> Tensor:
        """Slots whose message is missing in this call."""
        at = self.slots.item if self.slots.of_self else self.all.receiver[self.slots.item]
        active = (self.slots.call == call) | (self.slots.call < 0)
        return (active & self._near(at, call)).nonzero().view(-1)

    def _silent(self, call: int) -> Tensor:
        """Per slot: the edge that carries nothing in this call, or −1."""
        if self.slots.of_self:
            return torch.full_like(self.slots.item, -1)
        return torch.where((self.slots.call == call) | (self.slots.call < 0), self.slots.item, -1)

    def _silent_self(self, call: int) -> Tensor:
        """Per slot: the node that does not hear itself in this call, or −1."""
        if not self.slots.of_self:
            return torch.full_like(self.slots.item, -1)
        return torch.where((self.slots.call == call) | (self.slots.call < 0), self.slots.item, -1)

    def _spread(self, pairs: Pairs, call: int) -> tuple[Tensor, Tensor, Tensor]:
        """Out-edges of changed nodes that still matter: the pair, the column, and the key of who hears it."""
        out, silent = self.all.out_edges, self._silent(call)
        kernels = kernels_for(len(pairs), pairs.key)
        if kernels is not None:
            arrays = (t.numpy() for t in (out.start, out.edge, out.sender, self.all.distance))
            reach = self.all.program.num_calls - call
            found = kernels.spread(pairs.key.numpy(), self.num_nodes, *arrays, reach, silent.numpy())
            source, edge, heard = (torch.from_numpy(array) for array in found)
            return source, edge, heard
        source, place = out.of_nodes(pairs.node)
        edge, hearer, slot = out.edge[place], out.sender[place], pairs.slot[source]
        kept = (self._near(hearer, call) & (edge != silent[slot])).nonzero().view(-1)
        return source[kept], edge[kept], (slot * self.num_nodes + hearer)[kept]

    def _own_kept(self, pairs: Pairs, call: int) -> Tensor:
        """Whether a pair's node still hears itself in this call."""
        if not self.slots.of_self:
            return torch.ones(len(pairs), dtype=torch.bool, device=pairs.key.device)
        slot = pairs.slot
        missing = (self.slots.item[slot] == pairs.node) & (
            (self.slots.call[slot] == call) | (self.slots.call[slot] < 0)
        )
        return ~missing

    # --- through a call -----------------------------------------------------------------------------------------------

    def _through_messages(self, step: MessageStep) -> tuple[Tensor, Pairs]:
        missing = self._missing(step.call)
        at = self.slots.item[missing] if self.slots.of_self else self.all.receiver[self.slots.item[missing]]
        extra = missing * self.num_nodes + at
        kernels = kernels_for(len(self.pairs), self.pairs.key)
        if kernels is not None and isinstance(step.layer, AffineLayer) and isinstance(step.source, Ref):
            change, pairs = self._carry(kernels, step, step.layer, extra)
        else:
            source, edge, heard = self._spread(self._changed(step), step.call)
            stay = self.pairs.key[self._near(self.pairs.node, step.call)]
            pairs = self.numbering.number(stay, heard, extra)
            if not isinstance(step.layer, AffineLayer):
                return self._again(step, pairs), pairs
            change = self._heard(step, step.layer, pairs, (source, edge, heard))
        self._take_away(step, step.layer, change, missing, extra)
        return change, pairs

    def _rows_to_carry(self, layer: AffineLayer, moved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """For compiled loops: what each changed node sends, what it tells itself (maybe nothing), and coefficients."""
        own = layer.own_difference(moved, self.pairs.node)
        nothing = moved.new_zeros(0, 0)
        coefficient = nothing.view(-1) if layer.coefficient is None else layer.coefficient.to(moved.dtype)
        return layer.difference(moved).contiguous(), nothing if own is None else own.contiguous(), coefficient

    def _carry(self, kernels: Any, step: MessageStep, layer: AffineLayer, extra: Tensor) -> tuple[Tensor, Pairs]:
        assert isinstance(step.source, Ref)
        moved, own, coefficient = self._rows_to_carry(layer, self.change[step.source.value])
        out, reach = self.all.out_edges, self.all.program.num_calls - step.call
        arrays = (out.start, out.edge, out.sender, self.all.distance)
        skips = (self._silent(step.call), self._silent_self(step.call))
        rows = (coefficient, moved, own, extra, self.numbering.forget())
        key, change = kernels.carry(
            self.pairs.key.numpy(), self.num_nodes, *_arrays(arrays), reach, *_arrays(skips), *_arrays(rows)
        )
        return torch.from_numpy(change), self.numbering.remember(torch.from_numpy(key))

    def _changed(self, step: MessageStep) -> Pairs:
        """The pairs whose features this call reads changed: none if it reads constants."""
        return self.pairs if isinstance(step.source, Ref) else Pairs(self.pairs.key[:0], self.num_nodes)

    def _heard(self, step: MessageStep, layer: AffineLayer, pairs: Pairs, spread: tuple[Tensor, ...]) -> Tensor:
        """What the pairs hear of changed nodes, and of themselves."""
        change = torch.zeros_like(self.all.known[step.output][:1]).expand(len(pairs), -1).contiguous()
        if isinstance(step.source, Rows):
            return change
        moved, (source, edge, heard) = self.change[step.source.value], spread
        change.index_add_(
            0, self.numbering.find(heard), layer.weighted(edge, layer.difference(moved).index_select(0, source))
        )
        stays = (self._own_kept(self.pairs, step.call) & self._near(self.pairs.node, step.call)).nonzero().view(-1)
        own = layer.own_difference(moved.index_select(0, stays), self.pairs.node[stays])
        if own is not None:
            change.index_add_(0, self.numbering.find(self.pairs.key[stays]), own)
        return change

    def _take_away(self, step: MessageStep, layer: AffineLayer, change: Tensor, missing: Tensor, key: Tensor) -> None:
        """The missing messages themselves."""
        item, table = self.slots.item[missing], self._table(step)
        term = layer.own_term(table, item) if self.slots.of_self else layer.message(table, item, self.all.sender[item])
        if term is not None:
            change.index_add_(0, self.numbering.find(key), term, alpha=-1)

    def _table(self, step: MessageStep) -> Any:
        return (
            self.all.lowering.prepared[step.call]
            if isinstance(step.source, Rows)
            else self.all.known[step.source.value]
        )

    def _again(self, step: MessageStep, pairs: Pairs) -> Tensor:
        """Any other layer: run it again for the nodes that hear something new, with all that they hear."""
        graph = self.all.lowering.in_edges
        head, place = graph.of_nodes(pairs.node)
        edge, tail = graph.edge[place], graph.sender[place]
        start = torch.zeros(len(pairs) + 1, dtype=torch.long, device=edge.device)
        start[1:] = torch.bincount(head, minlength=len(pairs)).cumsum(0)
        own, table = pairs.node, self._table(step)
        if isinstance(step.source, Ref):
            before = self.all.numbering(1, len(self.slots))
            before.number(self.pairs.key)
            rows = table.index_select(0, self.pairs.node) + self.change[step.source.value]
            changed = before.find(pairs.slot[head] * self.num_nodes + tail)
            tail = torch.where(changed >= 0, self.num_nodes + changed, tail)
            mine = before.find(pairs.key)
            own = torch.where(mine >= 0, self.num_nodes + mine, own)
            table = torch.cat([table, rows])
        slot = pairs.slot[head]
        weight = torch.ones(len(edge), dtype=self.all.value.dtype, device=edge.device)
        if not self.slots.of_self:
            call = self.slots.call[slot]
            weight[(edge == self.slots.item[slot]) & ((call == step.call) | (call < 0))] = 0
        hop = Hop(start, tail, edge, own, pairs.node, self.num_nodes + len(self.pairs))
        kept = self._own_kept(pairs, step.call).to(weight.dtype)
        return step.layer.forward(table, hop, weight, kept) - self.all.known[step.output].index_select(0, pairs.node)

    # --- between calls ------------------------------------------------------------------------------------------------

    def _move_to(self, pairs: Pairs, wanted: set[int]) -> None:
        """Changes of earlier values that are still read, as rows of the new pairs."""
        self.change = {value: change for value, change in self.change.items() if value in wanted}
        for value, change in self.change.items():
            near = self.numbering.find(self.pairs.key)
            kept = (near >= 0).nonzero().view(-1)
            moved = change.new_zeros(len(pairs), *change.shape[1:])
            moved[near[kept]] = change.index_select(0, kept)
            self.change[value] = moved
        self.pairs = pairs

    def _through_rectifier(self, step: MessageStep, segment: list[RowStep]) -> bool:
        """The compiled way through a segment that is a single ReLU; whether it was taken."""
        kernels = kernels_for(len(self.pairs), self.pairs.key)
        slope = rectifier(segment)
        if kernels is None or slope is None or len(self.change) > 1 or step.output in self.live[step.call]:
            return False
        before, change = self.all.known[step.output], self.change.pop(step.output)
        key, rows = kernels.rectify(*_arrays((self.pairs.key,)), self.num_nodes, *_arrays((before, change)), slope)
        self.pairs = Pairs(torch.from_numpy(key), self.num_nodes)
        self.change[segment[-1].output] = torch.from_numpy(rows)
        return True

    def _through_rows(self, segment: list[RowStep]) -> None:
        node = self.pairs.node
        for step in segment:
            rows = []
            for source in step.sources:
                row = (source.tensor if isinstance(source, Rows) else self.all.known[source.value]).index_select(
                    0, node
                )
                if isinstance(source, Ref) and source.value in self.change:
                    row = row + self.change[source.value]
                if source.own_call is not None:
                    row = row * self._own_kept(self.pairs, source.own_call).to(row.dtype).view(-1, 1)
                rows.append(row)
            self.change[step.output] = step.run(rows) - self.all.known[step.output].index_select(0, node)

    def _forget(self, call: int) -> None:
        """Drop values that nobody reads any more, and pairs where nothing changed after all."""
        self.change = {value: change for value, change in self.change.items() if value in self.live[call]}
        moved = torch.zeros(len(self.pairs), dtype=torch.bool, device=self.pairs.key.device)
        for change in self.change.values():
            moved |= (change != 0).any(dim=1)
        kept = moved.nonzero().view(-1)
        self.pairs = Pairs(self.pairs.key[kept], self.num_nodes)
        self.change = {value: change.index_select(0, kept) for value, change in self.change.items()}

    # --- the end ------------------------------------------------------------------------------------------------------

    def _positions(self) -> tuple[Tensor, Tensor]:
        """Targets grouped by node (one may be asked for twice): where each node's group starts, and the positions."""
        order = self.all.targets.argsort(stable=True)
        start = torch.zeros(self.num_nodes + 1, dtype=torch.long, device=order.device)
        start[1:] = torch.bincount(self.all.targets, minlength=self.num_nodes).cumsum(0)
        return start, order

    def _read_off(self, rows: Tensor) -> Drops:
        start, order = self._positions()
        graph = InEdges(start, order, order, self.num_nodes)
        pair, place = graph.of_nodes(self.pairs.node)
        position = order[place]
        drop = self.all.value[position] - self.all.target.select(position).value(rows.index_select(0, pair))
        kept = (drop != 0).nonzero().view(-1)
        return Drops(position[kept], self.pairs.slot[pair][kept], drop[kept])

    def _last_columns(self, step: MessageStep) -> Drops:
        """The last call, one number for each (slot, target): only the target's own column is summed up."""
        target, width = self.all.target, len(self.all.targets)
        binary = target.mode == "binary"
        column = torch.zeros_like(target.column) if binary else target.column
        sign = torch.where(target.column == 1, 1, -1).to(self.all.value) if binary else torch.ones_like(self.all.value)
        kernels = kernels_for(len(self.pairs), self.pairs.key)
        if kernels is not None and isinstance(step.source, Ref):
            return self._last_compiled(kernels, step, column, sign)
        start, order = self._positions()
        entries = []
        for slot, node, weight, rows in self._last_parts(step):
            entry, place = InEdges(start, order, order, self.num_nodes).of_nodes(node)
            position = order[place]
            amount = rows.reshape(-1).index_select(0, entry * rows.size(1) + column[position]) * weight[entry]
            entries.append((slot[entry] * width + position, -amount * sign[position]))
        if not entries:
            return Drops(order[:0], order[:0], self.all.value[:0])
        key, amount = (torch.cat(column) for column in zip(*entries, strict=True))
        if len(self.pairs):  # several ways lead to one target
            key, inverse = key.unique(return_inverse=True)
            amount = amount.new_zeros(len(key)).index_add_(0, inverse, amount)
        kept = amount.nonzero().view(-1)
        return Drops(key[kept] % width, key[kept] // width, amount[kept])

    def _last_compiled(self, kernels: Any, step: MessageStep, column: Tensor, sign: Tensor) -> Drops:
        """The same; a node that is asked for several times (with other classes) is gone through as often."""
        assert isinstance(step.layer, AffineLayer)
        assert isinstance(step.source, Ref)
        moved, own, coefficient = self._rows_to_carry(step.layer, self.change[step.source.value])
        out, skips = self.all.out_edges, (self._silent(step.call), self._silent_self(step.call))
        geometry = (out.start, out.edge, out.sender, *skips, coefficient, moved, own)
        missing = [(slot * self.num_nodes + node, node, -rows) for slot, node, _, rows in self._missing_parts(step)]
        found = []
        for position in self._once_each():
            of_node = torch.full((self.num_nodes,), -1, device=column.device)
            where = of_node.clone()
            targets = self.all.targets[position]
            of_node[targets], where[targets] = column[position], position
            extra, amount = moved.new_zeros(0, dtype=torch.long), moved.new_zeros(0)
            for key, node, rows in missing:
                hit = (of_node[node] >= 0).nonzero().view(-1)
                extra, amount = key[hit], rows[hit].gather(1, of_node[node[hit]].view(-1, 1)).view(-1)
            rest = (of_node, extra, amount, self.numbering.forget())
            key, change = (
                torch.from_numpy(array)
                for array in kernels.carry_to_targets(
                    self.pairs.key.numpy(), self.num_nodes, *_arrays(geometry), *_arrays(rest)
                )
            )
            kept = change.nonzero().view(-1)
            at, slot = where[key[kept] % self.num_nodes], key[kept] // self.num_nodes
            found.append(Drops(at, slot, -change[kept] * sign[at]))
        return Drops(
            *(torch.cat(column) for column in zip(*((d.position, d.slot, d.score) for d in found), strict=True))
        )

    def _once_each(self) -> list[Tensor]:
        """Positions in rounds, no node twice in a round."""
        _, order = self._positions()
        nodes = self.all.targets[order]
        rank = torch.arange(len(order), device=order.device) - torch.searchsorted(nodes, nodes)
        return [order[rank == turn] for turn in range(int(rank.max()) + 1)]

    def _last_parts(self, step: MessageStep) -> Iterator[_Parts]:
        yield from self._missing_parts(step)
        if isinstance(step.source, Ref):
            yield from self._own_parts(step, self.change[step.source.value])
            yield from self._carried_parts(step, self.change[step.source.value])

    # Parts of the last call: (slot, node that hears, coefficient, change of its output).

    def _carried_parts(self, step: MessageStep, moved: Tensor) -> Iterator[_Parts]:
        """What changed senders change."""
        assert isinstance(step.layer, AffineLayer)
        source, edge, heard = self._spread(self.pairs, step.call)
        carried = step.layer.difference(moved).index_select(0, source)
        yield heard // self.num_nodes, heard % self.num_nodes, step.layer.coefficients(edge, carried), carried

    def _own_parts(self, step: MessageStep, moved: Tensor) -> Iterator[_Parts]:
        """What changed nodes change in themselves."""
        assert isinstance(step.layer, AffineLayer)
        kept = self._own_kept(self.pairs, step.call) & self._near(self.pairs.node, step.call)
        stays = kept.nonzero().view(-1)
        own = step.layer.own_difference(moved.index_select(0, stays), self.pairs.node[stays])
        if own is not None:
            yield self.pairs.slot[stays], self.pairs.node[stays], torch.ones_like(own[:, 0]), own

    def _missing_parts(self, step: MessageStep) -> Iterator[_Parts]:
        """The missing message itself."""
        assert isinstance(step.layer, AffineLayer)
        missing = self._missing(step.call)
        item, table = self.slots.item[missing], self._table(step)
        if not self.slots.of_self:
            message = step.layer.message(table, item, self.all.sender[item])
            yield missing, self.all.receiver[item], -torch.ones_like(message[:, 0]), message
        elif (term := step.layer.own_term(table, item)) is not None:
            yield missing, item, -torch.ones_like(term[:, 0]), term


def _arrays(tensors: tuple[Tensor, ...]) -> list[Any]:
    return [tensor.detach().numpy() for tensor in tensors]


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
    live[-1].add(program.output)
    for call in range(calls):
        live[call].add(program.output)
    return live
