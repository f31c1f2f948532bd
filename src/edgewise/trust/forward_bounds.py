"""What one edge's weight does to every node downstream, as intervals: all edges of a block, all targets at once.

A slot is an edge and an interval of its weight, [a, b]; every other weight is 1. Pairs (slot, node) carry what the node's
features may differ by from those at weight 1 (`change`), and their derivative by the weight (`slope`). Both go forwards
through the calls, so one pass serves every target; a node that the edge cannot reach is never looked at.

Worked example: the path 0 → 1 → 2 with feature 1 on node 0, h = ReLU(2 · Σ x), z = 3 · Σ h on node 2, so z = 6. The slot is
the edge 0 → 1 with its weight in [½, 1].

    call 0      the edge's message is 2, so node 1 receives 2 ω:       change [−1, 0]   slope [2, 2]   of the pair (slot, 1)
    ReLU        its input 2 + [−1, 0] = [1, 2] stays positive: on      change [−1, 0]   slope [2, 2]
    call 1      node 1 sends 3 · h to node 2:                          change [−3, 0]   slope [6, 6]   of the pair (slot, 2)

So ∂z/∂ω is 6 for all weights in [½, 1]. With a bias of −1½ before the ReLU its input would be [−½, ½], its derivative
anything in [0, 1], and the slope [0, 2] after it and [0, 6] at the target.
"""

import torch
from torch import Tensor

from edgewise.program.intervals import Interval
from edgewise.program.pair_numbers import Pairs
from edgewise.program.perturbation import Traversal
from edgewise.trust.attention_bounds import Arrivals, carried
from edgewise.trust.attention_operation import Attention
from edgewise.trust.interval_operations import (
    Affine,
    EdgeMessages,
    Join,
    Messages,
    Moved,
    Pool,
    Rectify,
    Sum,
    rectified,
)
from edgewise.trust.plan_operations import Operation
from edgewise.trust.pools import largest, summed
from edgewise.trust.values_at_one import AtOne
from edgewise.trust.varied_edges import Bent, Halt, PooledPairs, Received, Slopes, VariedEdges, find


class Spread(Traversal):
    """A block of slots, carried through all operations; `slopes` is the result, `peak` the largest number of rows on the way.

    >>> from edgewise.examples import path_model
    >>> from edgewise.question import pose
    >>> from edgewise.trust.interval_model import follow, spreads
    >>> how = {"task": "node", "mode": "regression", "of": "logit", "forward": None, "device": None}
    >>> question = pose(*path_model([2.0, 3.0]), 2, target=0, **how)                 # z = 2 ω₀ · 3 ω₁
    >>> (followed,) = follow(question, memory=2**20)
    >>> (block,) = spreads(followed.at_one, "input", [(0.5, 1.0)], memory=2**20)
    >>> block.slots.edge[block.slopes.slot], block.slopes.bounds.lo.round()         # ∂z/∂ω₀ and ∂z/∂ω₁
    (tensor([0, 1]), tensor([6., 6.], dtype=torch.float64))
    """

    def __init__(self, at_one: AtOne, slots: VariedEdges) -> None:
        super().__init__(at_one.graph, len(slots))
        self.at_one, self.slots, self.graph = at_one, slots, at_one.graph
        self._moved: dict[int, Moved] = {}
        self._pooled: dict[int, Moved] = {}
        """The same of values with a row for each graph: a slot changes one graph, so there is a row for each slot."""
        self.received: dict[int, Received] = {}
        self.bent: dict[int, Bent] = {}
        self.halts: dict[int, Halt] = {}
        self.pools: dict[int, PooledPairs] = {}
        self.peak = 0
        last_read = {v: at for at, operation in enumerate(at_one.plan.operations) for v in operation.reads}
        last_read[at_one.plan.output] = len(at_one.plan.operations)
        for at, operation in enumerate(at_one.plan.operations):
            live = {value for value, last in last_read.items() if last > at}
            self._through(operation, live)
            self._moved = {value: moved for value, moved in self._moved.items() if value in live}
            if isinstance(operation, Rectify):
                self._drop_unmoved()
        self.slopes = self._read_off()

    def _through(self, operation: Operation, live: set[int]) -> None:
        """Carry all pairs through an operation; `live` are the values that are read later."""
        if isinstance(operation, Messages):
            self._through_messages(operation, live)
        elif isinstance(operation, Attention):
            self._through_attention(operation, live)
        elif isinstance(operation, EdgeMessages):
            self._through_edges(operation, live)
        elif isinstance(operation, Pool):
            self._through_pool(operation)
        else:
            self._through_rows(operation)

    @property
    def graph_of_slot(self) -> Tensor:
        """`[slots]`: the graph that each slot is about (graph tasks)."""
        return self.at_one.owner[self.graph.receiver[self.slots.edge]]

    # --- through a call -----------------------------------------------------------------------------------------------

    def _through_messages(self, step: Messages, live: set[int]) -> None:
        """Carry all pairs through a call.

        A node receives three kinds of change: from senders that moved (along edges with weight 1), from the slot's own edge,
        and from itself if it moved (self-loop, root weight). They are summed pair by pair; pairs that can no longer reach a
        target are dropped.
        """
        before, moved = self._before(step.source)
        sent = Moved(step.sent(moved.change), step.sent(moved.slope))  # [pairs before, width]
        source, edge, received = self.spread(before, step.call)
        stays = self.near(before.node, step.call).nonzero().view(-1)
        slot, own_key = self._own_keys(step.call)
        new = self._reached(step.call, received, own_key)
        pushed = sent.outward(self.at_one.most)
        parts = [
            (received, pushed.rows(source).scaled(step.coefficients(edge))),
            (own_key, self._own(step, slot, sent, before).outward(self.at_one.most)),
        ]
        mine = [
            step.own(a.rows(stays), b.rows(stays), before.node[stays])
            for a, b in ((sent.change, moved.change), (sent.slope, moved.slope))
        ]
        if mine[0] is not None and mine[1] is not None:
            parts.append((before.key[stays], Moved(mine[0], mine[1]).outward(self.at_one.most)))
        self._realign(new, live)
        self._moved[step.output] = self._summed(parts, len(new))
        self.peak = max(self.peak, len(new) + len(received))

    def _before(self, value: int) -> tuple[Pairs, Moved]:
        """The pairs in which what a call reads has moved, and by how much: none if it reads constants."""
        if value in self._moved:
            return self.pairs, self._moved[value]
        return Pairs(self.pairs.key[:0], self.num_nodes), self._nothing(value, 0)

    def _own_keys(self, call: int) -> tuple[Tensor, Tensor]:
        """The slots whose own edge is varied in a call, near enough to matter, and the pairs that it ends in."""
        arrives = self.near(self.graph.receiver[self.slots.edge], call)
        slot = (arrives & self.slots.active(call)).nonzero().view(-1)
        return slot, slot * self.num_nodes + self.graph.receiver[self.slots.edge[slot]]

    def _reached(self, call: int, *keys: Tensor) -> Pairs:
        """The pairs after a call: those that were there and are near enough, and those of the given keys."""
        return self.numbering.number(self.pairs.key[self.near(self.pairs.node, call)], *keys)

    def _through_attention(self, step: Attention, live: set[int]) -> None:
        """Carry all pairs through a call with attention: whoever hears something new weighs all that it hears again."""
        at, (before, moved) = self.at_one.attention[step.call], self._before(step.source)
        _, _, received = self.spread(before, step.call)
        _, own_key = self._own_keys(step.call)
        new = self._reached(step.call, received, own_key)
        arrivals = Arrivals.of(at.received, before, new, self.slots, step.call)
        found = carried(at, moved, arrivals)
        self._realign(new, live)
        self._moved[step.output] = found
        self.halts[step.output] = Halt(new.key, found.slope)
        self.peak = max(self.peak, len(new) + len(arrivals.head))

    def _through_edges(self, step: EdgeMessages, live: set[int]) -> None:
        """Carry all pairs through a call with a kink on every edge."""
        before, moved = self._before(step.source)
        source, edge, received = self.spread(before, step.call)
        stays = self.near(before.node, step.call).nonzero().view(-1)
        slot, own_key = self._own_keys(step.call)
        new = self._reached(step.call, received, own_key)
        known = self.at_one.edge_sums(step, before.node[source], edge)
        own_edge = self.slots.edge[slot]
        sender = self.graph.sender[own_edge]
        place = find(before.key, slot * self.num_nodes + sender)
        hit = (place >= 0).nonzero().view(-1)
        sums = self.at_one.edge_sums(step, sender, own_edge)
        varied = self._varied(
            slot, step.kink(sums), hit, rectified(step.kink, sums.rows(hit), moved.rows(place[hit]))[0]
        )[0]
        mine = moved.rows(stays)
        parts = [
            (received, rectified(step.kink, known, moved.rows(source))[0]),
            (own_key, varied),
            (before.key[stays], Moved(step.own(mine.change), step.own(mine.slope))),
        ]
        self._realign(new, live)
        found = self._summed([(key, part.outward(self.at_one.most)) for key, part in parts], len(new))
        self._moved[step.output] = found
        self.halts[step.output] = Halt(new.key, found.slope)
        self.peak = max(self.peak, len(new) + len(received))

    def silent(self, call: int) -> Tensor:
        """`[slots]`: the edge whose weight is varied in this call, or −1."""
        return torch.where(self.slots.active(call), self.slots.edge, -1)

    def _own(self, step: Messages, slot: Tensor, sent: Moved, before: Pairs) -> Moved:
        """The edge's own message m(ω): ω · m(ω) − m(1), and its derivative m(ω) + ω · m′(ω)."""
        edge = self.slots.edge[slot]
        coefficient, sender = step.coefficients(edge), self.graph.sender[edge]
        at_one = self.at_one.sent[step.call].rows(sender).times(coefficient)
        place = find(before.key, slot * self.num_nodes + sender)
        hit = (place >= 0).nonzero().view(-1)
        found, message = self._varied(slot, at_one, hit, sent.rows(place[hit]).outward(1).scaled(coefficient[hit]))
        self.received[step.call] = Received(before.key, slot, message)
        return found

    def _varied(self, slot: Tensor, at_one: Interval, hit: Tensor, moved: Moved) -> tuple[Moved, Interval]:
        """The same from the messages at weight 1, `[slots]`, and what has moved in some of them (`hit`); and the messages."""
        low, high = (part[slot].view(-1, 1) for part in (self.slots.low, self.slots.high))
        message, change, slope = at_one, -at_one.between(1 - high, 1 - low), at_one
        if len(hit):
            message = at_one.put(hit, at_one.rows(hit) + moved.change)
            change = change.put(hit, change.rows(hit) + moved.change.between(low[hit], high[hit]))
            slope = slope.put(hit, message.rows(hit) + moved.slope.between(low[hit], high[hit]))
        return Moved(change, slope), message

    def _summed(self, parts: list[tuple[Tensor, Moved]], size: int) -> Moved:
        """Rows with their keys, added up by the numbered pair of each key."""
        place = torch.cat([self.numbering.find(key) for key, _ in parts])
        change, slope = (
            Interval.stack(column) for column in zip(*((part.change, part.slope) for _, part in parts), strict=True)
        )
        return Moved(change.sums(place, size), slope.sums(place, size))

    def _realign(self, new: Pairs, live: set[int]) -> None:
        """Make the values that are read later rows of the new pairs; drop the others."""
        kept, number = self.moved_pairs()
        self._moved = {
            value: moved.rows(kept).placed(number, len(new)) for value, moved in self._moved.items() if value in live
        }
        self.pairs = new

    # --- between calls ------------------------------------------------------------------------------------------------

    def _through_rows(self, operation: Operation) -> None:
        """Carry all pairs through a row-wise operation; if nothing that it reads has moved, nothing happens."""
        of_graphs = operation.output in self.at_one.plan.of_graphs
        table = self._pooled if of_graphs else self._moved
        if not any(value in table for value in operation.reads):
            return
        size, node = (len(self.slots), self.graph_of_slot) if of_graphs else (len(self.pairs), self.pairs.node)
        sources = [table.get(value) or self._nothing(value, size) for value in operation.reads]
        if isinstance(operation, Rectify):
            known = self.at_one.value[operation.source].rows(node)
            found, on, off = rectified(operation, known, sources[0])
            key = torch.arange(size, device=node.device) if of_graphs else self.pairs.key
            self.bent[operation.output] = Bent(key, on, off)
        elif isinstance(operation, Sum):
            found = sources[0] + (sources[1] if operation.sign > 0 else -sources[1])
        elif isinstance(operation, Join):
            found = Moved(Interval.join([s.change for s in sources]), Interval.join([s.slope for s in sources]))
        else:
            assert isinstance(operation, Affine)
            found = Moved(*(operation.linear(part, node) for part in (sources[0].change, sources[0].slope)))
        table[operation.output] = found

    def _through_pool(self, operation: Pool) -> None:
        """From pairs (slot, node) to slots: a slot changes the one graph that its edge is in."""
        if operation.source not in self._moved:
            return
        moved, share = self._moved[operation.source], None
        if operation.largest:
            known, pooled = (self.at_one.value[value] for value in (operation.source, operation.output))
            found, share = largest(moved, self.pairs, known, pooled, self.at_one.owner, self.graph_of_slot)
        else:
            found = summed(moved, self.pairs, len(self.slots), self.at_one.most_of_a_graph)
        self._pooled[operation.output] = found
        self.pools[operation.output] = PooledPairs(self.pairs.key, share)

    def _nothing(self, value: int, size: int) -> Moved:
        """No change and no slope of a value, for `size` pairs."""
        known = self.at_one.value[value].lo
        zero = Interval.point(known.new_zeros(size, known.size(1)))
        return Moved(zero, zero)

    def _drop_unmoved(self) -> None:
        """Drop the pairs where nothing can have changed after all, because a rectifier stays off."""
        still = torch.zeros(len(self.pairs), dtype=torch.bool, device=self.pairs.key.device)
        for moved in self._moved.values():
            still |= ~(moved.change.is_zero() & moved.slope.is_zero())
        kept = still.nonzero().view(-1)
        self.pairs = Pairs(self.pairs.key[kept], self.num_nodes)
        self._moved = {value: moved.rows(kept) for value, moved in self._moved.items()}

    # --- the end ------------------------------------------------------------------------------------------------------

    def _read_off(self) -> Slopes:
        """The slopes at the targets, as bounds of ∂z/∂ω_e; a node may be a target several times."""
        output = self.at_one.plan.output
        if output in self.at_one.plan.of_graphs:
            slot, position = torch.arange(len(self.slots), device=self.slots.edge.device), self.graph_of_slot
            slope = (self._pooled.get(output) or self._nothing(output, len(slot))).slope
        else:
            pair, position = self.at_targets()
            slot = self.pairs.slot[pair]
            slope = (self._moved.get(output) or self._nothing(output, len(self.pairs))).slope.rows(pair)
        bounds = slope.dot(Interval.point(weights_of(self.at_one, position)))
        kept = ((bounds.lo != 0) | (bounds.hi != 0)).nonzero().view(-1)
        return Slopes(position[kept], slot[kept], bounds.rows(kept))


def weights_of(at_one: AtOne, position: Tensor) -> Tensor:
    """`[targets, columns]`: the explained number as a sum over the columns of the output, ±1 in one of them."""
    target = at_one.graph.target
    column, sign = target.column[position], torch.ones(len(position), dtype=torch.double, device=position.device)
    if target.mode == "binary":  # class 0 is the negated logit
        column, sign = torch.zeros_like(column), torch.where(column == 1, sign, -sign)
    width = at_one.value[at_one.plan.output].lo.size(1)
    return sign.new_zeros(len(position), width).scatter_(1, column.view(-1, 1), sign.view(-1, 1))
