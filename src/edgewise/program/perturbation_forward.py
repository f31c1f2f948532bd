"""A block of missing messages on their way through the calls: which nodes each one changes, and by how much.

The worked example is in `perturbation.py`: on the path 0 → 1 → 2, slot 0 (e0 missing in call 0) changes node 1 by −1 after
call 0 and node 2 by −1 after call 1. Every call goes the same way:

1. which pairs (slot, node) change: those whose message is missing here, those that receive from a changed node, and changed
   nodes themselves; always only nodes from which a target can still be reached (`near`);
2. by how much: affine layers carry the change itself (they are linear), any other layer is run again for the changed nodes;
3. through the row-wise steps behind the call: run on old rows + change, minus what they made of the old rows;
4. forget values that no later step reads, and pairs where nothing changed after all.

Compiled loops (`kernels/`) do steps 1 and 2 in one pass, slot by slot; the torch code beside them does the same.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from edgewise.program.bends import rectifier
from edgewise.program.domains import RowNumbers, interpret
from edgewise.program.hop import Hop
from edgewise.program.ir import MessageStep, Ref, Rows, RowStep
from edgewise.program.kernels import arrays, kernels_for
from edgewise.program.layers.affine import AffineLayer
from edgewise.program.layers.known_messages import KnownMessages
from edgewise.program.pair_numbers import Pairs
from edgewise.program.perturbation import Differences, MissingMessages, Traversal


class ForwardChange(Traversal):
    """A batch of occlusions: which nodes changed so far (`pairs`), and by how much (`change`).

    `change[v]` is the change of value v, `[pairs, width]`. `all` is what all batches share.
    """

    def __init__(self, differences: Differences, slots: MissingMessages) -> None:
        super().__init__(differences, len(slots))
        self.slots = slots
        self.change: dict[int, Tensor] = {}
        self.live = differences.live

    def through(self, step: MessageStep, segment: list[RowStep]) -> None:
        """Through a call and the row-wise steps behind it: afterwards `pairs` and `change` are those after the call."""
        change, pairs = self._through_messages(step)
        read = {source.value for row in segment for source in row.sources if isinstance(source, Ref)}
        self._move_to(pairs, read | self.live[step.call])
        self.change[step.output] = change
        if not self._through_rectifier(step, segment):
            self._through_rows(segment, step.call)
            self._drop_unchanged(step.call)
        self.all.most_pairs = max(self.all.most_pairs, len(pairs))

    # --- where the change goes ----------------------------------------------------------------------------------------

    def missing(self, call: int) -> Tensor:
        """The slots whose message is missing in this call, near enough to matter."""
        at = self.slots.item if self.slots.of_self else self.all.receiver[self.slots.item]
        return (self.slots.in_call(call) & self.near(at, call)).nonzero().view(-1)

    def silent(self, call: int) -> Tensor:
        """`[slots]`: the edge that carries nothing in this call, or −1."""
        if self.slots.of_self:
            return torch.full_like(self.slots.item, -1)
        return torch.where(self.slots.in_call(call), self.slots.item, -1)

    def silent_self(self, call: int) -> Tensor:
        """`[slots]`: the node whose own term is missing in this call, or −1."""
        if not self.slots.of_self:
            return torch.full_like(self.slots.item, -1)
        return torch.where(self.slots.in_call(call), self.slots.item, -1)

    def own_kept(self, pairs: Pairs, call: int) -> Tensor:
        """`[pairs]`: whether a pair's node keeps its own term in this call."""
        if not self.slots.of_self:
            return torch.ones(len(pairs), dtype=torch.bool, device=pairs.key.device)
        slot = pairs.slot
        return ~((self.slots.item[slot] == pairs.node) & self.slots.in_call(call)[slot])

    # --- through a call -----------------------------------------------------------------------------------------------

    def _through_messages(self, step: MessageStep) -> tuple[Tensor, Pairs]:
        """The change of what the call makes, `[new pairs, width]`, and those pairs; points 1 and 2 at the top of this file."""
        missing = self.missing(step.call)  # slots
        at = self.slots.item[missing] if self.slots.of_self else self.all.receiver[self.slots.item[missing]]
        extra = missing * self.num_nodes + at  # keys: where a message is missing
        if isinstance(step.layer, AffineLayer):
            gone = self.missing_rows(step, step.layer, missing)
            kernels = kernels_for(len(self.pairs) + len(extra), self.pairs.key)
            if kernels is not None:
                return self._carry(kernels, step, step.layer, extra, gone)
        source, edge, reached = self.spread(self._changed(step), step.call)  # reached: keys
        stay = self.pairs.key[self.near(self.pairs.node, step.call)]
        pairs = self.numbering.number(stay, reached, extra)
        if not isinstance(step.layer, AffineLayer):
            moved = (
                torch.cat([stay, reached, self._unheard(missing, extra)]) if isinstance(step.source, Ref) else stay[:0]
            )
            return self._attended(step, pairs, moved, (missing, extra)), pairs
        change = self._received(step, step.layer, pairs, (source, edge, reached))
        if gone is not None:
            change.index_add_(0, self.numbering.find(extra), gone, alpha=-1)
        return change, pairs

    def _unheard(self, missing: Tensor, at: Tensor) -> Tensor:
        """The keys in `at` whose missing message has a changed sender: nothing arrives, but attention to all others changes."""
        if self.slots.of_self or not len(self.pairs):
            return at[:0]
        sender = self.all.sender[self.slots.item[missing]]
        return at[torch.isin(missing * self.num_nodes + sender, self.pairs.key)]

    def rows_to_carry(self, step: MessageStep, layer: AffineLayer) -> tuple[Tensor, Tensor, Tensor]:
        """For compiled loops: how each pair changes what it sends, and its own term, `[pairs, out]`; and coefficients `[E]`.

        The second is empty if the layer has no own term, the third if all coefficients are 1.
        """
        nothing = self.all.known[step.output].new_zeros(0, 0)
        coefficient = nothing.view(-1) if layer.coefficient is None else layer.coefficient.to(nothing.dtype)
        if isinstance(step.source, Rows):  # constants: no node sends anything new
            return nothing, nothing, coefficient
        moved = self.change[step.source.value]
        own = layer.own_difference(moved, self.pairs.node)
        return layer.difference(moved).contiguous(), nothing if own is None else own.contiguous(), coefficient

    def _carry(
        self, kernels: Any, step: MessageStep, layer: AffineLayer, extra: Tensor, gone: Tensor | None
    ) -> tuple[Tensor, Pairs]:
        """The compiled way: all that the pairs receive, slot by slot.

        `extra` `[missing]` has the keys where a message is missing, `gone` `[missing, out]` those messages.
        """
        self.group()
        moved, own, coefficient = self.rows_to_carry(step, layer)
        width = self.all.known[step.output].size(1)
        if gone is None:
            gone = moved.new_zeros(len(extra), width)
        out, reach = self.all.out_edges, self.all.program.num_calls - step.call
        geometry = (out.start, out.edge, out.sender, self.all.distance)
        skips = (self.silent(step.call), self.silent_self(step.call))
        key, change = kernels.carry(
            *arrays(self.pairs.key, extra, gone), self.num_nodes, *arrays(*geometry), reach, *arrays(*skips),
            *arrays(coefficient, moved, own),
        )  # fmt: skip
        return torch.from_numpy(change), Pairs(torch.from_numpy(key), self.num_nodes, grouped=True)

    def group(self) -> None:
        """Pairs ordered by slot, as compiled loops want them."""
        if not self.pairs.grouped:
            key, order = self.pairs.key.sort()
            self.pairs = Pairs(key, self.num_nodes, grouped=True)
            self.change = {value: change.index_select(0, order) for value, change in self.change.items()}

    def _changed(self, step: MessageStep) -> Pairs:
        """The pairs whose features this call reads changed: none if it reads constants."""
        return self.pairs if isinstance(step.source, Ref) else Pairs(self.pairs.key[:0], self.num_nodes)

    def _received(self, step: MessageStep, layer: AffineLayer, pairs: Pairs, spread: tuple[Tensor, ...]) -> Tensor:
        """What changes in the new pairs because of changed senders, and of their own change: `[pairs, out]`.

        The layer is linear: a sender that changed by δ changes its receivers by coefficient · B δ.
        """
        change = torch.zeros_like(self.all.known[step.output][:1]).expand(len(pairs), -1).contiguous()
        if isinstance(step.source, Rows):
            return change
        moved, (source, edge, reached) = self.change[step.source.value], spread
        change.index_add_(
            0, self.numbering.find(reached), layer.weighted(edge, layer.difference(moved).index_select(0, source))
        )
        stays = (self.own_kept(self.pairs, step.call) & self.near(self.pairs.node, step.call)).nonzero().view(-1)
        own = layer.own_difference(moved.index_select(0, stays), self.pairs.node[stays])
        if own is not None:
            change.index_add_(0, self.numbering.find(self.pairs.key[stays]), own)
        return change

    def missing_rows(self, step: MessageStep, layer: AffineLayer, missing: Tensor) -> Tensor | None:
        """The missing messages themselves, `[missing, out]`; None if the layer has no own term that could be missing."""
        item, table = self.slots.item[missing], self.table(step)
        if self.slots.of_self:
            return layer.own_term(table, item)
        return layer.message(table, item, self.all.sender[item])

    def table(self, step: MessageStep) -> Any:
        """What the call reads when nothing is missing, `[N, in]`, or what its layer prepared from it."""
        return (
            self.all.lowering.prepared[step.output]
            if isinstance(step.source, Rows)
            else self.all.known[step.source.value]
        )

    def _attended(self, step: MessageStep, pairs: Pairs, moved: Tensor, missing: tuple[Tensor, Tensor]) -> Tensor:
        """The change of any other layer, `[pairs, out]`: the missing message itself where nothing else has changed.

        `moved` are the keys of pairs that receive something new, or are changed themselves: for those the layer is run again.
        `missing` are the slots whose message is missing here, and where.
        """
        messages = self._known_messages(step)
        if messages is None:
            return self._run_again(step, pairs)
        slot, at = missing
        item = self.slots.item[slot]
        if self.slots.of_self:
            gone = messages.of_nodes(item)
        else:
            gone = messages.of_edges(item, self.all.sender[item], self.all.receiver[item])
        change = self.all.known[step.output].new_zeros(len(pairs), self.all.known[step.output].size(1))
        if gone is not None:
            change[self.numbering.find(at)] = -gone
        again = self.numbering.find(moved.unique())
        if len(again):
            change[again] = self._run_again(step, Pairs(pairs.key[again], self.num_nodes))
        return change

    def _known_messages(self, step: MessageStep) -> KnownMessages | None:
        """The messages of a call at ω = 1, found once; None: the layer must be run again whatever is missing."""
        key = ("messages", step.call, step.output)
        if key not in self.all.kept:
            found = None
            if step.receiver is None and self.all.program.kinds is None:
                hop = self.all.lowering.everything.hop(step.call, from_nodes=True)
                found = step.layer.known_messages(self.table(step), hop)
            self.all.kept[key] = found
        messages: KnownMessages | None = self.all.kept[key]
        return messages

    def _run_again(self, step: MessageStep, pairs: Pairs) -> Tensor:
        """Any other layer (attention, say): run it again for the nodes that receive something new, with all that they receive.

        The table of senders is all N nodes as they were, and below them the changed ones: row N + i is node and change of the
        old pair i. In the example, for slot 0 in call 1: node 2 receives through e1 from row 3 + 0 (node 1, 11 − 1 = 10) in
        place of row 1, gets 120, and 120 − 121 = −1 is the change.
        """
        graph = self.all.lowering.in_edges
        head, place = graph.of_nodes(pairs.node)  # [in-edges of the pairs' nodes] each
        edge, tail = graph.edge[place], graph.sender[place]
        start = torch.zeros(len(pairs) + 1, dtype=torch.long, device=edge.device)
        start[1:] = torch.bincount(head, minlength=len(pairs)).cumsum(0)
        own, table = pairs.node, self.table(step)  # [pairs]: row of the table; [N, in]
        if isinstance(step.source, Ref):
            before = self.all.numbering(
                1, len(self.slots)
            )  # numbers of the old pairs; `self.numbering` has the new ones
            before.number(self.pairs.key)
            rows = table.index_select(0, self.pairs.node) + self.change[step.source.value]
            changed = before.find(pairs.slot[head] * self.num_nodes + tail)  # [in-edges]: old pair of the sender, or −1
            tail = torch.where(changed >= 0, self.num_nodes + changed, tail)
            mine = before.find(pairs.key)  # [pairs]: old pair of the node itself, or −1
            own = torch.where(mine >= 0, self.num_nodes + mine, own)
            table = torch.cat([table, rows])
        slot = pairs.slot[head]
        weight = torch.ones(len(edge), dtype=self.all.value.dtype, device=edge.device)
        if not self.slots.of_self:
            weight[(edge == self.slots.item[slot]) & self.slots.in_call(step.call)[slot]] = 0
        hop = Hop(start, tail, edge, own, pairs.node, self.num_nodes + len(self.pairs))
        kept = self.own_kept(pairs, step.call).to(weight.dtype)
        return step.layer.forward(table, hop, weight, kept) - self.all.known[step.output].index_select(0, pairs.node)

    # --- between calls ------------------------------------------------------------------------------------------------

    def _move_to(self, pairs: Pairs, wanted: set[int]) -> None:
        """Changes of earlier values that are still read (a residual, say), as rows of the new pairs; new pairs get zeros."""
        self.change = {value: change for value, change in self.change.items() if value in wanted}
        if self.change and pairs.grouped:  # compiled loops leave no numbers behind
            self.numbering.number(pairs.key)
        for value, change in self.change.items():
            kept, number = self.moved_pairs()
            moved = change.new_zeros(len(pairs), *change.shape[1:])
            moved[number] = change.index_select(0, kept)
            self.change[value] = moved
        self.pairs = pairs

    def _through_rectifier(self, step: MessageStep, segment: list[RowStep]) -> bool:
        """The compiled way through a segment that is a single ReLU; whether it was taken."""
        kernels = kernels_for(len(self.pairs), self.pairs.key)
        slope = rectifier(segment)
        if kernels is None or slope is None or len(self.change) > 1 or step.output in self.live[step.call]:
            return False
        before, change = self.all.known[step.output], self.change.pop(step.output)
        key, rows = kernels.rectify(*arrays(self.pairs.key), self.num_nodes, *arrays(before, change), slope)
        self.pairs = Pairs(torch.from_numpy(key), self.num_nodes, self.pairs.grouped)
        self.change[segment[-1].output] = torch.from_numpy(rows)
        return True

    def _through_rows(self, segment: list[RowStep], call: int) -> None:
        """Any segment: f(old + change) − f(old), for the rows of the pairs, where a later step reads it."""
        node = self.pairs.node

        def old(rows: Tensor) -> Tensor:
            return rows.index_select(0, node)

        made = {step.output for step in segment}
        read = {s.value for step in segment for s in step.sources if isinstance(s, Ref) and s.value not in made}
        now = {value: old(self.all.known[value]) for value in read}
        now.update({value: now[value] + self.change[value] for value in read if value in self.change})
        domain = RowNumbers(lambda source: old(source.tensor), partial(self.own_kept, self.pairs))
        now = interpret(segment, domain, now)
        self.change.update({value: now[value] - old(self.all.known[value]) for value in made & self.live[call]})

    def _drop_unchanged(self, call: int) -> None:
        """Drop values that no later step reads, and pairs where nothing changed after all (a ReLU that stayed at 0)."""
        self.change = {value: change for value, change in self.change.items() if value in self.live[call]}
        moved = torch.zeros(len(self.pairs), dtype=torch.bool, device=self.pairs.key.device)  # [pairs]
        for change in self.change.values():
            moved |= (change != 0).any(dim=1)
        kept = moved.nonzero().view(-1)
        self.pairs = Pairs(self.pairs.key[kept], self.num_nodes, self.pairs.grouped)
        self.change = {value: change.index_select(0, kept) for value, change in self.change.items()}
