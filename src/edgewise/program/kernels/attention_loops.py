"""Compiled loops of gradients through GATv2, target after target: at ω = 1 attention is the same for all targets.

With g the gradient of what a node receives, one attention head at a time: an edge has the gradient α · (g · sent) by its ω,
its logit the gradient α · (g · sent − mean), where the mean is that over all that the node receives, weighed by α. The rest is
as in `target_loops.py`.
"""

from typing import Any

import numpy as np

from edgewise.program.kernels import Array
from edgewise.program.kernels.compilation import leaf, loop
from edgewise.program.kernels.neighbourhoods import grown, neighbourhood
from edgewise.program.kernels.target_loops import kept


@leaf(fastmath={"reassoc", "contract"})
def by_head(gradient: Array, rows: int, out: int, heads: int, concat: bool, wide: Array) -> None:
    """The gradients of what each attention head brings, `[rows, heads · channels]`: they stand side by side or are averaged."""
    share = gradient.dtype.type(1 if concat else 1 / heads)
    for i in range(rows):
        if concat:
            for d in range(out):
                wide[i, d] = gradient[i, d]
        else:
            for h in range(heads):
                for d in range(out):
                    wide[i, h * out + d] = share * gradient[i, d]


@leaf(fastmath={"reassoc", "contract"})
def message_product(
    wide: Array, i: int, sent: Array, u: int, attention: Array, e: int, product: Array, j: int, mean: Array
) -> Any:
    """The gradient of one message by its ω. Row j of `product` gets g · sent, head by head, and `mean` its share."""
    width, total = sent.shape[1] // len(mean), wide.dtype.type(0)
    for h in range(len(mean)):
        number = wide.dtype.type(0)
        for d in range(h * width, (h + 1) * width):
            number += wide[i, d] * sent[u, d]
        product[j, h] = number
        number *= attention[e, h]
        mean[h] += number
        total += number
    return total


@leaf(fastmath={"reassoc", "contract"})
def push_message(
    wide: Array, i: int, sent: Array, u: int, received: Array, v: int, attention: Array, e: int, product: Array, j: int,
    mean: Array, vector: Array, below: Any, of_sent: Array, tail: int, of_received: Array,
) -> None:  # fmt: skip
    """What one message gives back: its sender's row gets α g and the gradient of its logit, its receiver's row the latter."""
    heads = len(mean)
    width = sent.shape[1] // heads
    for h in range(heads):
        alpha = attention[e, h]
        slope = alpha * (product[j, h] - mean[h])
        for d in range(h * width, (h + 1) * width):
            bent = slope * vector[d] * (wide.dtype.type(1) if sent[u, d] + received[v, d] > 0 else below)
            of_sent[tail, d] += alpha * wide[i, d] + bent
            of_received[i, d] += bent


@leaf(fastmath={"reassoc", "contract"})
def attention_back(
    count: int, first: Array, tail: Array, node: Array, column: Array, wide: Array, sent: Array, received: Array,
    attention: Array, loop: Array, vector: Array, below: Any, push: bool, product: Array, mean: Array, of_sent: Array,
    of_received: Array, of_edges: Array, of_own: Array,
) -> None:  # fmt: skip
    """A call backwards for the first `count` nodes: the gradients of edges and own terms, and with `push` those of the rows.

    `product` `[edges + 1, heads]` is room for g · sent of what one node receives, `mean` `[heads]` for their mean.
    """
    heads, loops = attention.shape[1], len(loop) > 0
    for i in range(count):
        v, begin, end = node[i], first[i], first[i + 1]
        for h in range(heads):
            mean[h] = 0
        for j in range(begin, end):
            u = node[tail[j]]
            of_edges[j] = message_product(wide, i, sent, u, attention, column[j], product, j - begin, mean)
        of_own[i] = message_product(wide, i, sent, v, loop, v, product, end - begin, mean) if loops else 0
        if not push:
            continue
        for j in range(begin, end):
            push_message(
                wide, i, sent, node[tail[j]], received, v, attention, column[j], product, j - begin, mean, vector, below,
                of_sent, tail[j], of_received,
            )  # fmt: skip
        if loops:
            push_message(
                wide, i, sent, v, received, v, loop, v, product, end - begin, mean, vector, below, of_sent, i, of_received
            )  # fmt: skip


@leaf(fastmath={"reassoc", "contract"})
def both_through(
    of_sent: Array, of_received: Array, count: int, received: int, by_sender: Array, by_receiver: Array, found: Array
) -> None:
    """The gradients of rows, from those of what they send (the first `count`) and of what they receive (the first few)."""
    width = by_sender.shape[1]
    for i in range(count):
        for d in range(width):
            found[i, d] = 0
        for k in range(by_sender.shape[0]):
            number = of_sent[i, k]
            for d in range(width):
                found[i, d] += number * by_sender[k, d]
        for k in range(by_receiver.shape[0] if i < received else 0):
            number = of_received[i, k]
            for d in range(width):
                found[i, d] += number * by_receiver[k, d]


@loop(nogil=True)
def attention_gradients(
    targets: Array, rows: Array, start: Array, edge: Array, sender: Array, sent: Any, received: Any, attention: Any, loop: Any,
    vector: Any, by_sender: Any, by_receiver: Any, slope: Any, below: Array, concat: Array, edge_number: Array,
    node_number: Array, widths: Any, by_layer: bool,
) -> Any:  # fmt: skip
    """Gradients at ω = s = 1 of every target; as `target_gradients`, for chains of GATv2.

    Args:
        targets: `[T]`, nodes.
        rows: `[T, columns]`, the gradient of each explained number by its row of the output.
        start: `[N + 1]`, the edges into node v are `start[v]:start[v + 1]`.
        edge: `[E]`, the column of each edge in that order.
        sender: `[E]`, its sender.
        sent: Per call `[N, heads · channels]`, what nodes send.
        received: The same, what attention reads of them as receivers.
        attention: Per call `[E, heads]`, by column.
        loop: Per call `[N, heads]`, of added loops; empty: none.
        vector: Per call `[heads · channels]`, by which bent sums are multiplied.
        by_sender: Per call `[heads · channels, in]`.
        by_receiver: The same for receivers.
        slope: Per call `[N, out]`, the derivative of the function behind it; empty: there is none.
        below: `[calls]`, the slope below zero of attention's own bend.
        concat: `[calls]`, whether attention heads stand side by side; otherwise they are averaged.
        edge_number: `[E]`, what columns are called in the result.
        node_number: `[N]`, the same of nodes.
        widths: How many columns and nodes a call has in the result: entries have the place call · width + number.
        by_layer: Whether scores are told apart by call, or added up.

    Returns:
        Of edges and of own terms each: where every target's entries begin `[T + 1]`, their places and scores.
    """
    calls, size, widest, most = len(below), len(start) - 1, rows.shape[1], 1
    for call in range(calls):
        widest = max(widest, sent[call].shape[1], by_sender[call].shape[1], rows.shape[1])
        most = max(most, attention[call].shape[1])
    degree = 0
    for v in range(size):
        degree = max(degree, start[v + 1] - start[v])
    product, mean = np.empty((degree + 1, most), rows.dtype), np.empty(most, rows.dtype)
    place, node, tail, column = np.full(size, -1), np.empty(size, np.int64), np.empty_like(edge), np.empty_like(edge)
    first, pair_end = np.empty(size + 1, np.int64), np.empty(calls + 1, np.int64)
    gradient = np.empty((0, widest), rows.dtype)
    wide, of_sent, of_received = gradient, gradient, gradient
    of_edges, of_own = np.empty(0, rows.dtype), np.empty(0, rows.dtype)
    begin, own_begin = np.zeros(len(targets) + 1, np.int64), np.zeros(len(targets) + 1, np.int64)
    entry, score = np.empty(0, edge_number.dtype), np.empty(0, rows.dtype)
    own_entry, own_score = np.empty(0, node_number.dtype), np.empty(0, rows.dtype)
    found, found_own, times = 0, 0, calls if by_layer else 1
    for t in range(len(targets)):
        edges = neighbourhood(targets[t], calls, start, edge, sender, place, node, tail, column, first, pair_end)
        pairs = pair_end[calls]
        if pairs > len(gradient):
            gradient = np.empty((2 * pairs, widest), rows.dtype)
            wide, of_sent, of_received = np.empty_like(gradient), np.empty_like(gradient), np.empty_like(gradient)
        of_edges, of_own = grown(of_edges, edges), grown(of_own, pairs)
        total = np.zeros(0 if by_layer else edges, rows.dtype)
        total_own = np.zeros(0 if by_layer else pairs, rows.dtype)
        entry, score = grown(entry, found + edges * times), grown(score, found + edges * times)
        own_entry, own_score = grown(own_entry, found_own + pairs * times), grown(own_score, found_own + pairs * times)
        gradient[0, : rows.shape[1]] = rows[t]
        for call in range(calls - 1, -1, -1):
            count, inner, push = pair_end[calls - 1 - call], pair_end[calls - call], call > 0
            width, heads = sent[call].shape[1], attention[call].shape[1]
            out = width if concat[call] else width // heads
            if slope[call].shape[0]:
                for i in range(count):
                    for d in range(out):
                        gradient[i, d] *= slope[call][node[i], d]
            by_head(gradient, count, out, heads, concat[call], wide)
            if push:
                of_sent[:inner, :width] = 0
                of_received[:count, :width] = 0
            attention_back(
                count, first, tail, node, column, wide, sent[call], received[call], attention[call], loop[call], vector[call],
                below[call], push, product, mean[:heads], of_sent, of_received, of_edges, of_own,
            )  # fmt: skip
            if by_layer:
                found = kept(of_edges, first[count], call * widths[0], column, edge_number, entry, score, found)
                found_own = kept(of_own, count, call * widths[1], node, node_number, own_entry, own_score, found_own)
            else:
                total[: first[count]] += of_edges[: first[count]]
                total_own[:count] += of_own[:count]
            if push:
                both_through(of_sent, of_received, inner, count, by_sender[call], by_receiver[call], gradient)
        found = kept(total, len(total), 0, column, edge_number, entry, score, found)
        found_own = kept(total_own, len(total_own), 0, node, node_number, own_entry, own_score, found_own)
        begin[t + 1], own_begin[t + 1] = found, found_own
        for i in range(pairs):
            place[node[i]] = -1
    return (begin, entry[:found], score[:found]), (own_begin, own_entry[:found_own], own_score[:found_own])
