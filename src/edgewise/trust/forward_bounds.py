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

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.program.intervals import Interval
from edgewise.program.perturbation import Pairs, Traversal
from edgewise.trust.interval_operations import Affine, Join, Messages, Operation, Rectify, Sum
from edgewise.trust.interval_program import AtOne

# --- What is carried from call to call, and what is left for the backward bounds ---------------------------------------


@dataclass(frozen=True, eq=False)
class VariedEdges:
    """The slots of a block: edges, and between which numbers their weights lie. All `[slots]`."""

    edge: Tensor
    """The column of `edge_index`."""
    call: Tensor
    """The call in which the weight is varied; −1 for all of them."""
    low: Tensor
    high: Tensor

    def __len__(self) -> int:
        return len(self.edge)

    def active(self, call: int) -> Tensor:
        """`[slots]`: whether a slot's weight is varied in a call."""
        return (self.call == call) | (self.call < 0)


@dataclass(frozen=True, eq=False)
class Slopes:
    """Bounds of ∂z/∂ω_e, for the (slot, target) pairs where they are not both 0. All `[n]`."""

    position: Tensor
    """The target, a position in the question's index."""
    slot: Tensor
    bounds: Interval


@dataclass(frozen=True, eq=False)
class Received:
    """What a call leaves for the backward bounds: which pairs had moved before it, and the messages of the slots' own edges."""

    before: Tensor
    """`[pairs]`: keys slot · N + node of the pairs that had moved."""
    slot: Tensor
    """`[n]`: the slots whose own edge sends a message in this call."""
    message: Interval
    """`[n, width]`: those messages."""


@dataclass(frozen=True, eq=False)
class Bent:
    """What a rectifier leaves for the backward bounds: where it is surely on, or surely off, for all weights of the slot."""

    key: Tensor
    """`[pairs]`: slot · N + node."""
    on: Tensor
    """`[pairs, width]`."""
    off: Tensor
    """`[pairs, width]`."""


@dataclass(frozen=True, eq=False)
class Moved:
    """For each pair, `[pairs, width]`: what a value may differ by from that at weight 1, and its derivative by the weight."""

    change: Interval
    slope: Interval

    def rows(self, index: Tensor) -> "Moved":
        """Some of the pairs."""
        return Moved(self.change.rows(index), self.slope.rows(index))

    def scaled(self, factor: Tensor) -> "Moved":
        """Both times exact numbers; `outward` must have been called before."""
        return Moved(self.change.scaled(factor), self.slope.scaled(factor))

    def outward(self, terms: int) -> "Moved":
        """Both a little wider."""
        return Moved(self.change.outward(terms), self.slope.outward(terms))

    def placed(self, place: Tensor, size: int) -> "Moved":
        """The rows at the given places among `size` rows; the others are zero."""
        return Moved(self.change.placed(place, size), self.slope.placed(place, size))

    def __add__(self, other: "Moved") -> "Moved":
        return Moved(self.change + other.change, self.slope + other.slope)

    def __neg__(self) -> "Moved":
        return Moved(-self.change, -self.slope)


def find(keys: Tensor, wanted: Tensor) -> Tensor:
    """The place of each wanted key among `keys`; −1 if it is not among them.

    >>> find(torch.tensor([7, 3, 5]), torch.tensor([5, 4, 7]))
    tensor([ 2, -1,  0])
    """
    if len(keys) == 0:
        return torch.full_like(wanted, -1)
    ordered, order = keys.sort()
    place = torch.searchsorted(ordered, wanted).clamp(max=len(keys) - 1)
    return torch.where(ordered[place] == wanted, order[place], -1)


# --- The forward pass --------------------------------------------------------------------------------------------------


class Spread(Traversal):
    """A block of slots, carried through all operations; `slopes` is the result, `peak` the largest number of rows on the way.

    >>> from edgewise.examples import path_model
    >>> from edgewise.question import pose
    >>> from edgewise.trust.certificate import follow, spreads
    >>> how = {"task": "node", "mode": "regression", "of": "logit", "forward": None, "device": None}
    >>> question = pose(*path_model([2.0, 3.0]), 2, target=0, **how)                 # z = 2 ω₀ · 3 ω₁
    >>> (block,) = spreads(follow(question), "input", [(0.5, 1.0)], memory=2**20)
    >>> block.slots.edge[block.slopes.slot], block.slopes.bounds.lo.round()         # ∂z/∂ω₀ and ∂z/∂ω₁
    (tensor([0, 1]), tensor([6., 6.], dtype=torch.float64))
    """

    def __init__(self, at_one: AtOne, slots: VariedEdges) -> None:
        super().__init__(at_one.graph, len(slots))
        self.at_one, self.slots, self.graph = at_one, slots, at_one.graph
        self._moved: dict[int, Moved] = {}
        self.received: dict[int, Received] = {}
        self.bent: dict[int, Bent] = {}
        self.peak = 0
        last_read = {v: at for at, operation in enumerate(at_one.plan.operations) for v in operation.reads}
        last_read[at_one.plan.output] = len(at_one.plan.operations)
        for at, operation in enumerate(at_one.plan.operations):
            live = {value for value, last in last_read.items() if last > at}
            if isinstance(operation, Messages):
                self._through_messages(operation, live)
            else:
                self._through_rows(operation)
            self._moved = {value: moved for value, moved in self._moved.items() if value in live}
            if isinstance(operation, Rectify):
                self._drop_unmoved()
        self.slopes = self._read_off()

    # --- through a call -----------------------------------------------------------------------------------------------

    def _through_messages(self, step: Messages, live: set[int]) -> None:
        """Carry all pairs through a call.

        A node receives three kinds of change: from senders that moved (along edges with weight 1), from the slot's own edge,
        and from itself if it moved (self-loop, root weight). They are summed pair by pair; pairs that can no longer reach a
        target are dropped.
        """
        before = self.pairs if step.source in self._moved else Pairs(self.pairs.key[:0], self.num_nodes)
        moved = self._moved.get(step.source) or self._nothing(step.source, 0)
        sent = Moved(step.sent(moved.change), step.sent(moved.slope))  # [pairs before, width]
        source, edge, received = self.spread(before, step.call)
        stays = self.near(before.node, step.call).nonzero().view(-1)
        arrives = self.near(self.graph.receiver[self.slots.edge], step.call)
        slot = (arrives & self.slots.active(step.call)).nonzero().view(-1)
        own_key = slot * self.num_nodes + self.graph.receiver[self.slots.edge[slot]]
        kept = self.pairs.key[self.near(self.pairs.node, step.call)]
        new = self.numbering.number(kept, received, own_key)
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

    def silent(self, call: int) -> Tensor:
        """`[slots]`: the edge whose weight is varied in this call, or −1."""
        return torch.where(self.slots.active(call), self.slots.edge, -1)

    def _own(self, step: Messages, slot: Tensor, sent: Moved, before: Pairs) -> Moved:
        """The edge's own message m(ω): ω · m(ω) − m(1), and its derivative m(ω) + ω · m′(ω)."""
        edge = self.slots.edge[slot]
        low, high = (part[slot].view(-1, 1) for part in (self.slots.low, self.slots.high))
        coefficient, sender = step.coefficients(edge), self.graph.sender[edge]
        at_one = self.at_one.sent[step.call].rows(sender).times(coefficient)
        message, change, slope = at_one, -at_one.between(1 - high, 1 - low), at_one
        place = find(before.key, slot * self.num_nodes + sender)
        hit = (place >= 0).nonzero().view(-1)
        if len(hit):
            moved = sent.rows(place[hit]).outward(1).scaled(coefficient[hit])
            message = at_one.put(hit, at_one.rows(hit) + moved.change)
            change = change.put(hit, change.rows(hit) + moved.change.between(low[hit], high[hit]))
            slope = slope.put(hit, message.rows(hit) + moved.slope.between(low[hit], high[hit]))
        self.received[step.call] = Received(before.key, slot, message)
        return Moved(change, slope)

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
        if not any(value in self._moved for value in operation.reads):
            return
        sources = [self._moved.get(value) or self._nothing(value, len(self.pairs)) for value in operation.reads]
        if isinstance(operation, Rectify):
            found = self._rectified(operation, sources[0])
        elif isinstance(operation, Sum):
            found = sources[0] + (sources[1] if operation.sign > 0 else -sources[1])
        elif isinstance(operation, Join):
            found = Moved(Interval.join([s.change for s in sources]), Interval.join([s.slope for s in sources]))
        else:
            assert isinstance(operation, Affine)
            change, slope = (operation.linear(p, self.pairs.node) for p in (sources[0].change, sources[0].slope))
            found = Moved(change, slope)
        self._moved[operation.output] = found

    def _nothing(self, value: int, size: int) -> Moved:
        """No change and no slope of a value, for `size` pairs."""
        known = self.at_one.value[value].lo
        zero = Interval.point(known.new_zeros(size, known.size(1)))
        return Moved(zero, zero)

    def _rectified(self, operation: Rectify, moved: Moved) -> Moved:
        """A change is multiplied by a slope between those on the way; where the rectifier stays on or off it is exact."""
        change, known = moved.change, self.at_one.value[operation.source].rows(self.pairs.node)
        now = Interval(known.lo + change.lo, known.hi + change.hi).outward(1)
        after, before = operation(now), operation(known)
        bent = Interval(after.lo - before.hi, after.hi - before.lo).outward(1)
        (on, off), (was_on, was_off) = operation.sides(now), operation.sides(known)
        along = change.between(*operation.derivative(on & was_on, off & was_off))
        self.bent[operation.output] = Bent(self.pairs.key, on, off)
        return Moved(along.intersection(bent), moved.slope.between(*operation.derivative(on, off)))

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
        pair, position = self.at_targets()
        output = self.at_one.plan.output
        slope = (self._moved.get(output) or self._nothing(output, len(self.pairs))).slope.rows(pair)
        bounds = slope.dot(Interval.point(weights_of(self.at_one, position)))
        kept = ((bounds.lo != 0) | (bounds.hi != 0)).nonzero().view(-1)
        return Slopes(position[kept], self.pairs.slot[pair][kept], bounds.rows(kept))


def weights_of(at_one: AtOne, position: Tensor) -> Tensor:
    """`[targets, columns]`: the explained number as a sum over the columns of the output, ±1 in one of them."""
    target = at_one.graph.target
    column, sign = target.column[position], torch.ones(len(position), dtype=torch.double, device=position.device)
    if target.mode == "binary":  # class 0 is the negated logit
        column, sign = torch.zeros_like(column), torch.where(column == 1, sign, -sign)
    width = at_one.value[at_one.plan.output].lo.size(1)
    return sign.new_zeros(len(position), width).scatter_(1, column.view(-1, 1), sign.view(-1, 1))
