"""Compiled loops of gradients, target after target: a neighbourhood is found, gone through backwards and forgotten.

What belongs to one target stays in the processor's cache, where passes over all targets at once (`gradient_loops.py`) fetch
every row from memory. Layers and functions come as tuples of as many arrays for every model, filled up with empty ones, so that
models of any depth share one compiled loop (`program/target_gradients.py` makes them).
"""

from typing import Any

import numpy as np
from numba import njit

from edgewise.program.kernels import Array


@njit(cache=True)
def neighbourhood(
    target: int, calls: int, start: Array, edge: Array, sender: Array, place: Array, node: Array, tail: Array, column: Array,
    first: Array, pair_end: Array,
) -> int:  # fmt: skip
    """The nodes that a target sees, nearest first, and their in-edges, node by node; returns how many edges there are.

    Args:
        target: Its node.
        calls: How many hops are followed.
        start: `[N + 1]`, the edges into node v are `start[v]:start[v + 1]`.
        edge: `[E]`, the column of each edge in that order.
        sender: `[E]`, its sender.
        place: `[N]`, −1 everywhere; afterwards the number of each node that was found.
        node: `[N]`, filled in: the nodes in their order.
        tail: `[E]`, filled in: the number of each edge's sender.
        column: `[E]`, filled in: its column.
        first: `[N + 1]`, filled in: the edges into the node with number i are `first[i]:first[i + 1]`.
        pair_end: `[calls + 1]`, filled in: how many nodes are within 0, 1, … hops.
    """
    node[0], place[target], pair_end[0] = target, 0, 1
    count, edges, begin = 1, 0, 0
    for hop in range(calls):
        end = count
        for i in range(begin, end):
            first[i] = edges
            for j in range(start[node[i]], start[node[i] + 1]):
                other = sender[j]
                if place[other] < 0:
                    place[other] = count
                    node[count] = other
                    count += 1
                tail[edges], column[edges] = place[other], edge[j]
                edges += 1
        begin, pair_end[hop + 1] = end, count
    first[begin] = edges
    return edges


@njit(cache=True, fastmath={"reassoc", "contract"})
def rows_through(gradient: Array, matrix: Array, rows: int, found: Array) -> None:
    """The first `rows` of gradient times matrix `[k, width]`, into `found`."""
    for i in range(rows):
        for d in range(matrix.shape[1]):
            found[i, d] = 0
        for k in range(matrix.shape[0]):
            number = gradient[i, k]
            if number != 0:  # behind a ReLU half of them are
                for d in range(matrix.shape[1]):
                    found[i, d] += number * matrix[k, d]


@njit(cache=True, fastmath={"reassoc", "contract"})
def pull_edges(
    heads: int, first: Array, tail: Array, node: Array, column: Array, onward: Array, sent: Array, coefficient: Array,
    back: Array, push: bool, product: Array,
) -> None:  # fmt: skip
    """Of every edge of a call onward[head] · sent[sender] into `product`; with `push` `back` gets its onward gradient."""
    scaled, width = len(coefficient) > 0, sent.shape[1]
    for i in range(heads):
        brought = onward[i]
        for j in range(first[i], first[i + 1]):
            number, row = onward.dtype.type(0), sent[node[tail[j]]]
            for d in range(width):
                number += brought[d] * row[d]
            scale = coefficient[column[j]] if scaled else onward.dtype.type(1)
            product[j] = scale * number
            if push:
                sums = back[tail[j]]
                for d in range(width):
                    sums[d] += scale * brought[d]


@njit(cache=True, fastmath={"reassoc", "contract"})
def pull_own(
    heads: int, node: Array, gradient: Array, onward: Array, sent: Array, own: Array, loop: Array, has_root: bool,
    scalar: float, back: Array, push: bool, mine: Array,
) -> None:  # fmt: skip
    """The same for own terms, into `mine`; behind the first columns of `onward` is the gradient times the own term's matrix."""
    width = sent.shape[1]
    if not (own.shape[0] or len(loop) or has_root or scalar != 0):
        mine[:heads] = 0
        return
    for i in range(heads):
        number, brought, row = gradient.dtype.type(0), onward[i], node[i]
        if own.shape[0]:
            for d in range(own.shape[1]):
                number += gradient[i, d] * own[row, d]
        else:
            factor = gradient.dtype.type(scalar + (loop[row] if len(loop) else 0.0))
            through = brought[width : 2 * width] if has_root else brought
            share = gradient.dtype.type(1 if has_root else 0)
            features = sent[row]
            for d in range(width):
                number += (factor * brought[d] + share * through[d]) * features[d]
            if push:
                sums = back[i]
                for d in range(width):
                    sums[d] += factor * brought[d] + share * through[d]
        mine[i] = number


@njit(cache=True)
def kept(
    value: Array, count: int, base: int, item: Array, number: Array, place: Array, score: Array, found: int
) -> int:
    """Write what is not zero behind the first `found` entries: its place, base + the number of its item, and its value."""
    for j in range(count):
        if value[j] != 0:
            place[found], score[found] = base + number[item[j]], value[j]
            found += 1
    return found


@njit(cache=True)
def grown(array: Array, size: int) -> Array:
    """The same array, or a longer one that begins with the same numbers."""
    if size <= len(array):
        return array
    longer = np.empty(2 * size, array.dtype)
    longer[: len(array)] = array
    return longer


@njit(cache=True, nogil=True)
def target_gradients(
    targets: Array, rows: Array, start: Array, edge: Array, sender: Array, sent: Any, matrix: Any, slope: Any, own: Any,
    coefficient: Any, loop: Any, scalar: Array, edge_number: Array, node_number: Array, widths: Any, by_layer: bool,
) -> Any:  # fmt: skip
    """∂/∂ω and ∂/∂s at 1 of targets whose model is a chain of affine layers with element-wise functions between them.

    Args:
        targets: `[T]`, their nodes.
        rows: `[T, columns]`, the gradients of the explained numbers by the rows of the output.
        start: The in-edges, as for `neighbourhood`.
        edge: Their columns.
        sender: Their senders.
        sent: Per call `[N, width]`: what is sent, before the matrix.
        matrix: Per call `[out, width]`, or `[out, 2 · width]` with the own term's matrix behind it; empty: none.
        slope: Per call `[N, out]`: the derivative of the function behind it; empty: 1.
        own: Per call `[N, out]`: own terms that are known; empty: none, or those of `matrix`, `loop` and `scalar`.
        coefficient: Per call `[E]`; empty: 1.
        loop: Per call `[N]`: coefficients of added loops; empty: none.
        scalar: `[calls]`: the own term's number, before the matrix; 0: none.
        edge_number: `[E]`, what columns are called in the result.
        node_number: `[N]`, the same of nodes.
        widths: How many columns and nodes a call has in the result: entries have the place call · width + number.
        by_layer: Whether scores are told apart by call, or added up.

    Returns:
        Of edges and of own terms each: where every target's entries begin `[T + 1]`, their places and scores.
    """
    calls, size, widest = len(scalar), len(start) - 1, rows.shape[1]
    for call in range(calls):
        widest = max(widest, sent[call].shape[1], matrix[call].shape[1])
    place, node, tail, column = np.full(size, -1), np.empty(size, np.int64), np.empty_like(edge), np.empty_like(edge)
    first, pair_end = np.empty(size + 1, np.int64), np.empty(calls + 1, np.int64)
    gradient = np.empty((0, widest), rows.dtype)
    onward, back = gradient, gradient
    product, mine = np.empty(0, rows.dtype), np.empty(0, rows.dtype)
    begin, own_begin = np.zeros(len(targets) + 1, np.int64), np.zeros(len(targets) + 1, np.int64)
    entry, score = np.empty(0, np.int64), np.empty(0, rows.dtype)
    own_entry, own_score = np.empty(0, np.int64), np.empty(0, rows.dtype)
    found, found_own, times = 0, 0, calls if by_layer else 1
    for t in range(len(targets)):
        edges = neighbourhood(targets[t], calls, start, edge, sender, place, node, tail, column, first, pair_end)
        pairs = pair_end[calls]
        if pairs > len(gradient):
            gradient = np.empty((2 * pairs, widest), rows.dtype)
            onward, back = np.empty_like(gradient), np.empty_like(gradient)
        product, mine = grown(product, edges), grown(mine, pairs)
        total, total_own = (
            np.zeros(0 if by_layer else edges, rows.dtype),
            np.zeros(0 if by_layer else pairs, rows.dtype),
        )
        entry, score = grown(entry, found + edges * times), grown(score, found + edges * times)
        own_entry, own_score = grown(own_entry, found_own + pairs * times), grown(own_score, found_own + pairs * times)
        gradient[0, : rows.shape[1]] = rows[t]
        for call in range(calls - 1, -1, -1):
            heads, width, push = pair_end[calls - 1 - call], sent[call].shape[1], call > 0
            if slope[call].shape[0]:
                for i in range(heads):
                    for d in range(slope[call].shape[1]):
                        gradient[i, d] *= slope[call][node[i], d]
            through = gradient
            if matrix[call].shape[0]:
                rows_through(gradient, matrix[call], heads, onward)
                through = onward
            if push:
                back[: pair_end[calls - call], :width] = 0
            rooted = matrix[call].shape[1] > width
            pull_own(
                heads,
                node,
                gradient,
                through,
                sent[call],
                own[call],
                loop[call],
                rooted,
                scalar[call],
                back,
                push,
                mine,
            )
            pull_edges(heads, first, tail, node, column, through, sent[call], coefficient[call], back, push, product)
            if by_layer:
                found = kept(product, first[heads], call * widths[0], column, edge_number, entry, score, found)
                found_own = kept(mine, heads, call * widths[1], node, node_number, own_entry, own_score, found_own)
            else:
                total[: first[heads]] += product[: first[heads]]
                total_own[:heads] += mine[:heads]
            gradient, back = back, gradient
        found = kept(total, len(total), 0, column, edge_number, entry, score, found)
        found_own = kept(total_own, len(total_own), 0, node, node_number, own_entry, own_score, found_own)
        begin[t + 1], own_begin[t + 1] = found, found_own
        for i in range(pairs):
            place[node[i]] = -1
    return (begin, entry[:found], score[:found]), (own_begin, own_entry[:found_own], own_score[:found_own])
