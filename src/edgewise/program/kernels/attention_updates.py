"""Attention whose senders changed, in compiled loops: what one receiver gets anew, in full or by an update of its sums."""

from typing import Any

import numpy as np

from edgewise.program.kernels import Array
from edgewise.program.kernels.compilation import leaf

_STEEP, _SMALL = 30.0, 0.05
"""How much a logit may grow, and how small Z may be, before a receiver attends again."""


@leaf(fastmath={"reassoc", "contract"})
def edge_logits(sent: Array, u: int, received: Array, v: int, vector: Array, below: Any, found: Array, j: int) -> None:
    """The logits of one message into row j of `found`: vector · leaky(sent + received), head by head."""
    heads = found.shape[1]
    width = len(vector) // heads
    for h in range(heads):
        number = sent.dtype.type(0)
        for d in range(h * width, (h + 1) * width):
            both = sent[u, d] + received[v, d]
            number += vector[d] * (both if both > 0 else below * both)
        found[j, h] = number


@leaf(fastmath={"reassoc", "contract"})
def add_message(total: Array, sent: Array, u: int, logit: Array, j: int, top: Array, norm: Array) -> None:
    """α · sent of one message, added to `total`; α from its logits."""
    heads = len(top)
    width = len(total) // heads  # rows of changed nodes have room for more
    for h in range(heads):
        alpha = np.exp(logit[j, h] - top[h]) / norm[h]
        for d in range(h * width, (h + 1) * width):
            total[d] += alpha * sent[u, d]


@leaf()
def softmax_sums(logit: Array, count: int, top: Array, norm: Array) -> None:
    """The largest logit of each head, and the sum of exp(logit − largest)."""
    for h in range(len(top)):
        top[h], norm[h] = -np.inf, 0
        for j in range(count):
            top[h] = max(top[h], logit[j, h])
        for j in range(count):
            norm[h] += np.exp(logit[j, h] - top[h])


@leaf()
def attend_again(
    v: int, rows: Array, at: int, skip: int, skip_self: bool, start: Array, edge: Array, sender: Array, mark: Array,
    sent: Array, new_sent: Array, loops: bool, vector: Array, below: Any, logit: Array, top: Array, norm: Array, total: Array,
) -> None:  # fmt: skip
    """All that node v receives, into `total` `[heads · channels]`, without the missing message.

    `rows[at]` is what attention reads of v as a receiver. Senders that changed have a row in `new_sent` (`mark` says which),
    the others in `sent`.
    """
    count = 0
    for j in range(start[v], start[v + 1]):
        u = sender[j]
        if mark[u] >= 0:
            edge_logits(new_sent, mark[u], rows, at, vector, below, logit, count)
        else:
            edge_logits(sent, u, rows, at, vector, below, logit, count)
        count += 1
    if loops:
        if mark[v] >= 0:
            edge_logits(new_sent, mark[v], rows, at, vector, below, logit, count)
        else:
            edge_logits(sent, v, rows, at, vector, below, logit, count)
        count += 1
    softmax_sums(logit, count, top, norm)
    for d in range(sent.shape[1]):
        total[d] = 0
    for j in range(start[v], start[v + 1]):
        u = sender[j]
        if edge[j] == skip:
            continue
        if mark[u] >= 0:
            add_message(total, new_sent, mark[u], logit, j - start[v], top, norm)
        else:
            add_message(total, sent, u, logit, j - start[v], top, norm)
    if loops and not skip_self:
        if mark[v] >= 0:
            add_message(total, new_sent, mark[v], logit, count - 1, top, norm)
        else:
            add_message(total, sent, v, logit, count - 1, top, norm)


@leaf(fastmath={"reassoc", "contract"})
def project(
    nodes: Array, rows: Array, count: int, sent: Array, received: Array, by_sender: Array, by_receiver: Array,
    new_sent: Array, new_received: Array,
) -> None:  # fmt: skip
    """What changed nodes send now, and what attention reads of them: the old rows plus their changes times the matrices."""
    width = sent.shape[1]
    for i in range(count):
        v = nodes[i]
        for d in range(width):
            new_sent[i, d], new_received[i, d] = sent[v, d], received[v, d]
        for k in range(by_sender.shape[0]):
            number = rows[i, k]
            if number != 0:
                for d in range(width):
                    new_sent[i, d] += number * by_sender[k, d]
                for d in range(width):
                    new_received[i, d] += number * by_receiver[k, d]


@leaf(fastmath={"reassoc", "contract"})
def add_update(
    r: int, u: int, i: int, v: int, e: int, sent: Array, new_sent: Array, received: Array, attention: Array, logits: Array,
    vector: Array, below: Any, logit: Array, update: Array, growth: Array, steep: Array, weight: Array,
) -> None:  # fmt: skip
    """The message of changed sender u on column e, added to the sums of receiver v: row r of `update` and `growth` (Z − 1).

    `weight` gets α ρ, head by head.
    """
    heads = growth.shape[1]
    width = sent.shape[1] // heads
    edge_logits(new_sent, i, received, v, vector, below, logit, 0)
    for h in range(heads):
        more = logit[0, h] - logits[e, h]
        if more > _STEEP:
            steep[r] = True
        old = attention[e, h]
        new = old * np.exp(min(more, sent.dtype.type(_STEEP)))
        weight[h] = new
        growth[r, h] += new - old
        for d in range(h * width, (h + 1) * width):
            update[r, d] += new * new_sent[i, d] - old * sent[u, d]


@leaf(fastmath={"reassoc", "contract"})
def is_sound(r: int, growth: Array, steep: Array) -> bool:
    """Whether no digits are lost in the sums of a receiver."""
    for h in range(growth.shape[1]):
        if 1 + growth[r, h] < _SMALL:
            return False
    return not steep[r]


@leaf(fastmath={"reassoc", "contract"})
def brought_up(r: int, v: int, update: Array, growth: Array, full: Array, total: Array) -> None:
    """The change of what receiver v receives, from its sums; `full` `[N, heads · channels]` is what nodes received."""
    heads = growth.shape[1]
    width = full.shape[1] // heads
    for h in range(heads):
        for d in range(h * width, (h + 1) * width):
            total[d] = (update[r, d] - growth[r, h] * full[v, d]) / (1 + growth[r, h])


@leaf(fastmath={"reassoc", "contract"})
def take_away(r: int, growth: Array, weight: Array, sent: Array, u: int, total: Array) -> None:
    """The missing message itself: α ρ / Z · sent."""
    heads = growth.shape[1]
    width = len(total) // heads
    for h in range(heads):
        share = weight[h] / (1 + growth[r, h])
        for d in range(h * width, (h + 1) * width):
            total[d] -= share * sent[u, d]


@leaf(fastmath={"reassoc", "contract"})
def heads_joined(total: Array, heads: int, concat: bool, rows: Array, r: int) -> None:
    """Attention heads side by side, or their mean, into row r."""
    width = len(total) // heads
    if concat:
        for d in range(len(total)):
            rows[r, d] = total[d]
        return
    for d in range(width):
        number = total[d]
        for h in range(1, heads):
            number += total[h * width + d]
        rows[r, d] = number / heads
