"""Bounds through attention: how far the softmax over what a node receives can move, and what that does to the node.

The weights α of a softmax lie in [0, 1] and add up to 1. If logits change by Δ, then α' = α e^Δ / Σ α e^Δ, which grows with
its own Δ and falls with the others: ends of intervals give ends of intervals. Their derivative is

    α̇_r = α_r (ℓ̇_r − Σ_k α_k ℓ̇_k) = α_r ((1 − α_r) ℓ̇_r − Σ_{k≠r} α_k ℓ̇_k),

where the second form keeps its sign if only one logit moves. Because Σ α̇ = 0, the messages s may be measured from any centre
c: Σ α̇_r s_r = Σ α̇_r (s_r − c), with c what the node receives at ω = 1. That makes intervals much narrower.

Worked example: node 2 receives s = 1 and s = 3, both with α = ½, so c = 2. The first logit moves with slope 1. Then
α̇ = (¼, −¼), and the slope of what it receives is ¼ · (1 − 2) − ¼ · (3 − 2) = −½.

PyG adds 1e-16 to the sum of a softmax; that, like every rounding, is covered by a push outwards.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.program.intervals import UNIT, Interval
from edgewise.program.pair_numbers import Pairs
from edgewise.trust.attention_operation import Attention, InRows
from edgewise.trust.interval_operations import Moved, rectified
from edgewise.trust.varied_edges import VariedEdges, find

_EXP = 8  # roundings that a computed exponential, quotient or the 1e-16 of PyG stand for
_LEAST = 1e-300  # an exponential that underflows is not 0


def _sums(rows: Interval, head: Tensor, size: int, most: int) -> Interval:
    return rows.outward(most).sums(head, size)


def softmax_bounds(prior: Interval, change: Interval, head: Tensor, size: int, most: int) -> Interval:
    """α' `[rows, H]` of rows with weights `prior` whose logits change; `head` `[rows]` says to which of `size` nodes each goes.

    Two rows of one node, both ½, the first logit grows by something in [0, 1]: its α' is between ½ and e / (e + 1) = 0.73.

    >>> half = Interval.point(torch.full((2, 1), 0.5).double())
    >>> change = Interval(torch.zeros(2, 1).double(), torch.tensor([[1.0], [0.0]]).double())
    >>> found = softmax_bounds(half, change, torch.tensor([0, 0]), 1, 4)
    >>> found.lo.view(-1).tolist(), found.hi.view(-1).tolist()
    ([0.4999..., 0.2689...], [0.7310..., 0.5000...])
    """
    low, high = prior.lo * change.lo.exp(), prior.hi * change.hi.exp()
    raw = Interval(low, high).outward(_EXP)
    raw = Interval(raw.lo, torch.where(prior.hi > 0, raw.hi.clamp(min=_LEAST), raw.hi))
    total = _sums(raw, head, size, most)
    slack = 4 * (most + 3) * UNIT
    others_low = (total.lo[head] * (1 - slack) - raw.lo).clamp(min=0)
    others_high = total.hi[head] * (1 + slack) - raw.hi
    # A difference of nearly equal numbers is only as exact as they are.
    others_low = (others_low - slack * total.lo[head]).clamp(min=0)
    others_high = others_high + slack * total.hi[head]
    found = Interval(raw.lo / (raw.lo + others_high), raw.hi / (raw.hi + others_low)).outward(_EXP)
    return Interval(found.lo.nan_to_num(0.0).clamp(0, 1), found.hi.nan_to_num(1.0).clamp(0, 1))


def softmax_slopes(alpha: Interval, slope: Interval, head: Tensor, size: int, most: int) -> Interval:
    """α̇ `[rows, H]` from α and the slopes of the logits."""
    parts = alpha.product(slope)
    total = _sums(parts, head, size, most)
    slack = 4 * (most + 3) * UNIT * _sums(Interval.point(parts.size), head, size, most).hi[head]
    others = Interval(total.lo[head] - parts.lo, total.hi[head] - parts.hi).widened(slack)
    rest = Interval((1 - alpha.hi).clamp(min=0), (1 - alpha.lo).clamp(min=0)).outward(_EXP)
    exact = rest.product(slope) + -others
    # The mean of slopes lies between the least and the greatest of them.
    width = slope.lo.size(1)
    index = head.view(-1, 1).expand(-1, width)
    least = slope.lo.new_full((size, width), torch.inf).scatter_reduce(0, index, slope.lo, "amin")[head]
    most_of = slope.hi.new_full((size, width), -torch.inf).scatter_reduce(0, index, slope.hi, "amax")[head]
    far = slope.size + torch.maximum(least.abs(), most_of.abs())
    coarse = Interval(slope.lo - most_of, slope.hi - least).widened(_EXP * UNIT * far)
    return alpha.product(exact.intersection(coarse))


@dataclass(frozen=True, eq=False)
class AttentionAtOne:
    """A call with attention at ω = 1: projections of all nodes, logits and weights of all rows, and what nodes receive."""

    step: Attention
    received: InRows
    sent: Interval
    """`[N, H · channels]`."""
    left: Interval
    right: Interval
    bent: Interval
    """`[rows, …]`: sums of both sides before the kink (GAT), or the keys (TransformerConv)."""
    alpha: Interval
    """`[rows, H]`."""
    centre: Tensor
    """`[N, H · channels]`: about what each node receives."""
    output: Interval

    @staticmethod
    def of(step: Attention, received: InRows, table: Interval) -> "AttentionAtOne":
        """All of it, from what the call reads, `[N, in]`."""
        rows, most = received.rows, received.most
        everyone = torch.arange(rows.num_nodes, device=rows.sender.device)
        head = torch.repeat_interleave(everyone, rows.start.diff())
        sent, right = step.sent(table), step.right(table)
        left = sent if step.left is None else step.left(table)
        bent = left.rows(rows.sender)
        if step.kink is not None:
            bent = bent + right.rows(head)
        if step.on_logit is not None:
            bent = bent + Interval.point(step.on_logit.index_select(0, received.part))
        logits = _logits(step, bent, right.rows(head))
        top = logits.hi.new_full((rows.num_nodes, step.heads), -torch.inf)
        top = top.scatter_reduce(0, head.view(-1, 1).expand_as(logits.hi), logits.hi, "amax")[head]
        shifted = Interval(logits.lo - top, logits.hi - top).widened(2 * UNIT * (logits.size + top.abs()))
        alpha = softmax_bounds(Interval.point(torch.ones_like(top)), shifted, head, rows.num_nodes, most)
        messages = _messages(step, received, sent, torch.arange(len(head), device=head.device))
        total = _sums(step.wide(alpha).product(messages), head, rows.num_nodes, most)
        output = step.joined(total)
        if step.own is not None:
            output = output + step.own.linear(table)
        if step.bias is not None:
            output = output + Interval.point(step.bias)
        return AttentionAtOne(step, received, sent, left, right, bent, alpha, (total.lo + total.hi) / 2, output)


def _logits(step: Attention, bent: Interval, right: Interval) -> Interval:
    """`[rows, H]`, from sums of both sides, or from keys and queries."""
    found = bent.product(right) if step.kink is None else step.kink(bent)
    return _folded(step, found)


def _folded(step: Attention, rows: Interval) -> Interval:
    """`[rows, H · channels]` to `[rows, H]`."""
    found = rows if step.folded is None else rows.linear(step.folded)
    return found if step.factor == 1 else Interval(found.lo / step.factor, found.hi / step.factor).outward(2)


def _messages(step: Attention, received: InRows, sent: Interval, place: Tensor) -> Interval:
    """`[rows, H · channels]`: what some rows bring before α."""
    found = sent.rows(received.rows.sender[place])
    if step.on_message is None:
        return found
    return found + Interval.point(step.on_message.index_select(0, received.part[place]))


@dataclass(frozen=True, eq=False)
class Arrivals:
    """What some pairs (slot, node) receive in a call: one entry for each pair and row. All `[entries]` but the first two."""

    node: Tensor
    """`[pairs]`."""
    mine: Tensor
    """`[pairs]`: the moved pair that is the node itself, or one past the last."""
    head: Tensor
    """The pair that receives."""
    place: Tensor
    """The row of `InRows`."""
    moved: Tensor
    """The moved pair that sends, or one past the last."""
    own: Tensor
    """Entries, some of them: those whose message is multiplied by the slot's own weight."""
    low: Tensor
    """That weight is between these two, `[own entries, 1]`."""
    high: Tensor

    @staticmethod
    def of(received: InRows, before: Pairs, new: Pairs, slots: VariedEdges, call: int) -> "Arrivals":
        """What the pairs `new` receive, where the pairs `before` have moved."""
        rows, size = received.rows, new.num_nodes
        head, place = rows.of_nodes(new.node)
        slot = new.slot[head]
        moved, mine = find(before.key, slot * size + rows.sender[place]), find(before.key, new.key)
        moved, mine = (torch.where(which < 0, len(before), which) for which in (moved, mine))
        own = ((rows.edge[place] == slots.edge[slot]) & slots.active(call)[slot]).nonzero().view(-1)
        low, high = (part[slot[own]].view(-1, 1) for part in (slots.low, slots.high))
        return Arrivals(new.node, mine, head, place, moved, own, low, high)


def carried(at: AttentionAtOne, moved: Moved, arrivals: Arrivals) -> Moved:
    """What changes in the pairs that receive, `[pairs, out]`; `moved` are the changes and slopes of what the call reads."""
    step, received, a = at.step, at.received, arrivals
    size, most = len(a.node), received.most
    sent, mine_out = _projected(step, moved, a)
    change, slope = _moved_logits(at, moved, a)
    prior = at.alpha.rows(a.place)
    alpha = softmax_bounds(prior, change, a.head, size, most)
    alpha_slope = softmax_slopes(alpha, slope, a.head, size, most)
    still = _still(change, a.head, size)
    shift = Interval(
        torch.where(still, 0.0, alpha.lo - prior.hi), torch.where(still, 0.0, alpha.hi - prior.lo)
    ).outward(1)
    alpha = Interval(torch.where(still, prior.lo, alpha.lo), torch.where(still, prior.hi, alpha.hi))
    alpha, shift, alpha_slope = (step.wide(part) for part in (alpha, shift, alpha_slope))
    before = _messages(step, received, at.sent, a.place)
    now = before + sent.change
    centre = Interval.point(-at.centre.index_select(0, a.node).index_select(0, a.head))
    changes = alpha.product(sent.change) + shift.product(before + centre)
    slopes = alpha.product(sent.slope) + alpha_slope.product(now + centre)
    # Weights add up to 1 only to within 1e-16: what the centre contributes besides is no larger than this.
    slack = 8 * (most + 3) * UNIT * centre.size
    changes = changes.widened(slack * ~still.repeat_interleave(step.channels, dim=1))
    slopes = slopes.widened(slack * step.wide(slope).size)
    if len(a.own):
        whole = alpha.rows(a.own).product(now.rows(a.own))
        less = Interval(a.low - 1, a.high - 1).outward(1)
        along = alpha_slope.rows(a.own).product(now.rows(a.own)) + alpha.rows(a.own).product(sent.slope.rows(a.own))
        changes = changes.put(a.own, changes.rows(a.own) + whole.product(less))
        slopes = slopes.put(a.own, slopes.rows(a.own) + whole + along.product(less))
    found = [step.joined(_sums(part, a.head, size, most)) for part in (changes, slopes)]
    found = found if mine_out is None else [one + other for one, other in zip(found, mine_out, strict=True)]
    return Moved(*found)


def _projected(step: Attention, moved: Moved, a: Arrivals) -> tuple[Moved, list[Interval] | None]:
    """What moved senders send, `[entries, …]`, and what moved nodes add of themselves, `[pairs, out]`."""
    sent = Moved(*(_padded(step.sent.linear(part)).rows(a.moved) for part in (moved.change, moved.slope)))
    if step.own is None:
        return sent, None
    return sent, [_padded(step.own.linear(part)).rows(a.mine) for part in (moved.change, moved.slope)]


def _moved_logits(at: AttentionAtOne, moved: Moved, a: Arrivals) -> tuple[Interval, Interval]:
    """Changes and slopes of the logits, `[entries, H]`."""
    step = at.step
    sender = at.step.sent if step.left is None else step.left
    left = Moved(*(_padded(sender.linear(part)).rows(a.moved) for part in (moved.change, moved.slope)))
    right = Moved(*(_padded(step.right.linear(part)).rows(a.mine).rows(a.head) for part in (moved.change, moved.slope)))
    known = at.bent.rows(a.place)
    if step.kink is not None:
        bent, _, _ = rectified(step.kink, known, left + right)
        return _folded(step, bent.change), _folded(step, bent.slope)
    query = at.right.rows(a.node).rows(a.head)
    query_now, key_now = query + right.change, known + left.change
    change = query_now.product(left.change) + right.change.product(known)
    slope = query_now.product(left.slope) + right.slope.product(key_now)
    return _folded(step, change), _folded(step, slope)


def _still(change: Interval, head: Tensor, size: int) -> Tensor:
    """`[entries, H]`: where no logit of the node has changed."""
    largest = change.lo.new_zeros(size, change.lo.size(1))
    return largest.scatter_reduce(0, head.view(-1, 1).expand_as(change.lo), change.size, "amax")[head] == 0


def _padded(rows: Interval) -> Interval:
    """With a row of zeros behind the last one, for whatever has not moved."""
    return Interval(*(torch.cat([part, part.new_zeros(1, part.size(1))]) for part in (rows.lo, rows.hi)))
