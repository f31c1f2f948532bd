"""Compiled loops of a GATv2 call under weights: what every row makes of its senders, and the derivative of that.

A row i receives in the edges `start[i]:start[i + 1]`, from the rows `tail` of a table, and with loops from its own row. With g
the gradient of what it makes, one attention head at a time: ω has the gradient α · (g · sent), a logit α · (ω (g · sent) −
mean), where the mean is that of ω (g · sent) over all that the row receives, weighed by α.

Inner loops go over all channels at once and touch few arrays: only such loops become vector instructions. The small functions
are inlined as they are written, since a row that is passed on as an array of its own costs more than the work on it.
"""

from math import exp
from typing import Any

import numpy as np
from numba import njit

from edgewise.program.kernels import Array
from edgewise.program.kernels.compilation import loop

_MATH = {"reassoc", "contract"}
_TINY = 1e-16
"""Added to the sum of a softmax, as PyG does it."""


@njit(inline="always")
def head_sums(room: Array, by_head: Array) -> None:
    """The sum over the channels of each head."""
    width = len(room) // len(by_head)
    for h in range(len(by_head)):
        number = room.dtype.type(0)
        for d in range(width):
            number += room[h * width + d]
        by_head[h] = number


@njit(inline="always")
def bent_sums(sent: Array, received: Array, vector: Array, below: Any, room: Array, logit: Array) -> None:
    """The logits of one message, head by head: vector · leaky_relu(sent + received)."""
    for d in range(len(room)):
        both = sent[d] + received[d]
        room[d] = vector[d] * (both if both > 0 else below * both)
    head_sums(room, logit)


@loop(nogil=True, fastmath=_MATH)
def row_attention(
    start: Array,
    tail: Array,
    own: Array,
    sent: Array,
    received: Array,
    vector: Array,
    below: Any,
    heads: int,
    loops: bool,
) -> Any:
    """α of the edges `[edges, heads]` and of the loops `[rows, heads]` (empty: there are none).

    Args:
        start: `[rows + 1]`, where the edges of a row begin.
        tail: `[edges]`, rows of `sent`.
        own: `[rows]`, the row of `sent` that is a row's own.
        sent: `[table, heads · channels]`.
        received: `[rows, heads · channels]`, what attention reads of the rows.
        vector: `[heads · channels]`, by which bent sums are multiplied.
        below: The slope below zero of the bend.
        heads: How many attention heads there are.
        loops: Whether a row receives from itself, too.
    """
    rows, kind = len(start) - 1, sent.dtype.type
    of_edges, of_loops = np.empty((len(tail), heads), sent.dtype), np.empty((rows if loops else 0, heads), sent.dtype)
    room = np.empty(len(vector), sent.dtype)
    for i in range(rows):
        begin, end, mine = start[i], start[i + 1], received[i]
        for j in range(begin, end):
            bent_sums(sent[tail[j]], mine, vector, below, room, of_edges[j])
        if loops:
            bent_sums(sent[own[i]], mine, vector, below, room, of_loops[i])
        for h in range(heads):
            top = of_loops[i, h] if loops else kind(-np.inf)
            for j in range(begin, end):
                top = max(top, of_edges[j, h])
            total = kind(0)
            for j in range(begin, end):
                of_edges[j, h] = exp(of_edges[j, h] - top)
                total += of_edges[j, h]
            if loops:
                of_loops[i, h] = exp(of_loops[i, h] - top)
                total += of_loops[i, h]
            share = kind(1) / (total + kind(_TINY))
            for j in range(begin, end):
                of_edges[j, h] *= share
            if loops:
                of_loops[i, h] *= share
    return of_edges, of_loops


@njit(inline="always")
def spread_heads(by_head: Array, factor: Any, room: Array) -> None:
    """A number of each head, times a factor, as numbers of its channels."""
    width = len(room) // len(by_head)
    for h in range(len(by_head)):
        number = by_head[h] * factor
        for d in range(width):
            room[h * width + d] = number


@njit(inline="always")
def add_message(sent: Array, attention: Array, weight: Any, room: Array, found: Array) -> None:
    """Add one weighted message."""
    spread_heads(attention, weight, room)
    for d in range(len(room)):
        found[d] += room[d] * sent[d]


@loop(nogil=True, fastmath=_MATH)
def row_sums(
    start: Array, tail: Array, own: Array, sent: Array, of_edges: Array, of_loops: Array, weight: Array, mine: Array
) -> Any:
    """`[rows, heads · channels]`: the messages under their α, ω (`weight` `[edges]`) and, of loops, s (`mine` `[rows]`)."""
    width = sent.shape[1]
    found, room = np.zeros((len(start) - 1, width), sent.dtype), np.empty(width, sent.dtype)
    for i in range(len(found)):
        received = found[i]
        for j in range(start[i], start[i + 1]):
            add_message(sent[tail[j]], of_edges[j], weight[j], room, received)
        if len(of_loops):
            add_message(sent[own[i]], of_loops[i], mine[i], room, received)
    return found


@njit(inline="always")
def weighed_product(
    gradient: Array, sent: Array, attention: Array, weight: Any, room: Array, product: Array, mean: Array
) -> Any:
    """The gradient of one message by its ω; `product` gets ω (g · sent), head by head, and `mean` its share."""
    for d in range(len(room)):
        room[d] = gradient[d] * sent[d]
    head_sums(room, product)
    total = room.dtype.type(0)
    for h in range(len(mean)):
        number = attention[h] * product[h]
        total += number
        mean[h] += weight * number
        product[h] *= weight
    return total


@njit(inline="always")
def give_back(
    gradient: Array, sent: Array, received: Array, attention: Array, weight: Any, product: Array, mean: Array, vector: Array,
    below: Any, room: Array, bent: Array, of_sent: Array, of_received: Array,
) -> None:  # fmt: skip
    """What one message gives back: its sender gets ω α g and the gradient of its logit, its receiver the latter."""
    one = vector.dtype.type(1)
    for h in range(len(mean)):
        product[h] = attention[h] * (product[h] - mean[h])
    spread_heads(attention, weight, room)
    spread_heads(product, one, bent)
    for d in range(len(room)):
        bent[d] *= vector[d] * (one if sent[d] + received[d] > 0 else below)
    for d in range(len(room)):
        of_sent[d] += room[d] * gradient[d] + bent[d]
    for d in range(len(room)):
        of_received[d] += bent[d]


@loop(nogil=True, fastmath=_MATH)
def row_sums_back(
    start: Array, tail: Array, own: Array, sent: Array, received: Array, vector: Array, below: Any, of_edges: Array,
    of_loops: Array, weight: Array, mine: Array, gradient: Array,
) -> Any:  # fmt: skip
    """The gradients of ω `[edges]`, s `[rows]`, of what is sent `[table, …]` and read `[rows, …]`, from that of the sums."""
    rows, loops, heads, width = len(start) - 1, len(of_loops) > 0, of_edges.shape[1], sent.shape[1]
    of_weight, of_mine = np.empty(len(tail), sent.dtype), np.zeros(rows, sent.dtype)
    of_sent, of_received = np.zeros_like(sent), np.zeros_like(received)
    most = 0
    for i in range(rows):
        most = max(most, start[i + 1] - start[i])
    product, mean = np.empty((most + 1, heads), sent.dtype), np.empty(heads, sent.dtype)
    room, bent = np.empty(width, sent.dtype), np.empty(width, sent.dtype)
    for i in range(rows):
        begin, end, g, r, into = start[i], start[i + 1], gradient[i], received[i], of_received[i]
        mean[:] = 0
        for j in range(begin, end):
            of_weight[j] = weighed_product(g, sent[tail[j]], of_edges[j], weight[j], room, product[j - begin], mean)
        if loops:
            of_mine[i] = weighed_product(g, sent[own[i]], of_loops[i], mine[i], room, product[end - begin], mean)
        for j in range(begin, end + loops):
            is_loop = j == end
            u, number = own[i] if is_loop else tail[j], product[j - begin]
            alpha, factor = of_loops[i] if is_loop else of_edges[j], mine[i] if is_loop else weight[j]
            give_back(g, sent[u], r, alpha, factor, number, mean, vector, below, room, bent, of_sent[u], into)
    return of_weight, of_mine, of_sent, of_received
