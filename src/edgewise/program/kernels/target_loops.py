"""Compiled loops of gradients, target after target: a neighbourhood is found, gone through backwards and forgotten.

What belongs to one target stays in the processor's cache, where passes over all targets at once (`gradient_loops.py`) fetch
every row from memory. Layers and functions come as tuples of as many arrays for every model, filled up with empty ones, so that
models of any depth share one compiled loop (`program/target_gradients.py` makes them).
"""

from typing import Any

import numpy as np

from edgewise.program.kernels import Array
from edgewise.program.kernels.compilation import ZERO, leaf, loop
from edgewise.program.kernels.neighbourhoods import near_nodes, rooms
from edgewise.program.kernels.row_products import dot_and_add, dot_rows, row_product
from edgewise.program.kernels.row_vectors import add_scaled, multiply_row, scaled_row


@leaf()
def own_pulled(
    i: int, v: int, gradient: Array, spare: Array, sent: Array, root: Array, own: Array, loop: Array, scalar: float,
    back: Array, push: bool,
) -> Any:  # fmt: skip
    """The product of a head's own term; with `push` its row of `back` gets the gradient that goes through it.

    `spare` has the gradient times the matrix in its first row, and room for another.
    """
    number, width = gradient.dtype.type(0), sent.shape[1]
    if own.shape[0]:
        return dot_rows(gradient, i, own, v, own.shape[1])
    factor = gradient.dtype.type(scalar + (loop[v] if len(loop) else 0.0))
    if factor != 0:
        number += factor * dot_rows(spare, 0, sent, v, width)
        if push:
            add_scaled(back, i, spare, 0, factor, width)
    if root.shape[0]:
        row_product(gradient, i, root, spare, 1, False)
        number += dot_rows(spare, 1, sent, v, width)
        if push:
            add_scaled(back, i, spare, 1, gradient.dtype.type(1), width)
    return number


@leaf()
def pulled(
    heads: int, node: Array, place: Array, start: Array, sender: Array, gradient: Array, sent: Array, matrix: Array,
    root: Array, slope: Array, own: Array, factors: Array, loop: Array, scalar: float, back: Array, push: bool, spare: Array,
    product: Array, mine: Array, by_layer: bool, base: int, number_of: Array, entry: Array, score: Array, found: int,
) -> int:  # fmt: skip
    """A call backwards: the products of edges, head by head, and of the heads' own terms are added to `product` and `mine`.

    With `by_layer` those of edges that are not zero are entries instead; returns how many there are then. With `push` the rows
    of `back` get the gradients of what nodes had before the call.
    """
    width, scaled, one, count = sent.shape[1], len(factors) > 0, gradient.dtype.type(1), 0
    for i in range(heads):
        v = node[i]
        if slope.shape[0]:
            multiply_row(gradient, i, slope, v, slope.shape[1])
        if matrix.shape[0]:
            row_product(gradient, i, matrix, spare, 0, False)
        else:
            scaled_row(spare, 0, gradient, i, one, width)
        mine[i] += own_pulled(i, v, gradient, spare, sent, root, own, loop, scalar, back, push)
        for j in range(start[v], start[v + 1]):
            u, scale = sender[j], factors[j] if scaled else one
            if push:
                number = scale * dot_and_add(spare, 0, sent, u, back, place[u], scale, width)
            else:
                number = scale * dot_rows(spare, 0, sent, u, width)
            if by_layer:
                entry[found], score[found] = base + number_of[j], number
                found += number != 0
            else:
                product[count] += number
                count += 1
    return found


@leaf()
def pulled_first(
    heads: int, node: Array, start: Array, gradient: Array, first: Array, own: Array, product: Array, mine: Array,
    by_layer: bool, number_of: Array, entry: Array, score: Array, found: int,
) -> int:  # fmt: skip
    """The same for the first call, behind which nothing is left to go back to: gradients times what edges bring, `first`."""
    width, count = first.shape[1], 0
    for i in range(heads):
        v = node[i]
        if own.shape[0]:
            mine[i] += dot_rows(gradient, i, own, v, width)
        for j in range(start[v], start[v + 1]):
            number = dot_rows(gradient, i, first, j, width)
            if by_layer:
                entry[found], score[found] = number_of[j], number
                found += number != 0
            else:
                product[count] += number
                count += 1
    return found


@leaf()
def kept(
    value: Array, count: int, base: int, item: Array, number: Array, place: Array, score: Array, found: int
) -> int:
    """Write what is not zero behind the first `found` entries: its place, base + the number of its item, and its value.

    Afterwards the values are zero.
    """
    for j in range(count):
        if value[j] != 0:
            place[found], score[found], value[j] = base + number[item[j]], value[j], 0
            found += 1
    return found


@leaf()
def kept_edges(
    value: Array, heads: int, node: Array, start: Array, number: Array, place: Array, score: Array, found: int
) -> int:
    """The same for values of the in-edges of nodes, node by node; they are set to zero."""
    count = 0
    for i in range(heads):
        for j in range(start[node[i]], start[node[i] + 1]):
            if value[count] != 0:
                place[found], score[found], value[count] = number[j], value[count], 0
                found += 1
            count += 1
    return found


@leaf(forceinline=False)
def pulled_back(
    targets: Array, rows: Array, start: Array, sender: Array, sent: Any, matrix: Any, root: Any, slope: Any, own: Any,
    factors: Any, loop: Any, scalar: Array, first: Array, first_own: Array, edge_number: Array, node_number: Array,
    widths: Any, by_layer: bool, place: Array, node: Array, pair_end: Array, gradient: Array, back: Array, spare: Array,
    product: Array, mine: Array, begin: Array, entry: Array, score: Array, own_begin: Array, own_entry: Array, own_score: Array,
) -> Any:  # fmt: skip
    """The loop of `target_gradients`: target after target, with room for the rows of one; how many entries there are.

    `begin`, `entry` and `score`, and the same of own terms, are filled in.
    """
    calls, found, found_own = len(scalar), ZERO, ZERO
    for t in range(len(targets)):
        near_nodes(targets[t], calls - 1, start, sender, place, node, pair_end)
        pairs = pair_end[calls - 1]
        for d in range(rows.shape[1]):
            gradient[0, d] = rows[t, d]
        for call in range(calls - 1, -1, -1):
            heads, width = pair_end[calls - 1 - call], sent[call].shape[1]
            if call > 0:
                for i in range(pair_end[calls - call]):
                    for d in range(width):
                        back[i, d] = 0
            if call == 0 and first.shape[0]:
                found = pulled_first(
                    heads, node, start, gradient, first, first_own, product, mine, by_layer, edge_number, entry, score, found
                )  # fmt: skip
            else:
                found = pulled(
                    heads, node, place, start, sender, gradient, sent[call], matrix[call], root[call], slope[call], own[call],
                    factors[call], loop[call], scalar[call], back, call > 0, spare, product, mine, by_layer, call * widths[0],
                    edge_number, entry, score, found,
                )  # fmt: skip
            if by_layer:
                found_own = kept(mine, heads, call * widths[1], node, node_number, own_entry, own_score, found_own)
            gradient, back = back, gradient
        if not by_layer:
            found = kept_edges(product, pairs, node, start, edge_number, entry, score, found)
            found_own = kept(mine, pairs, 0, node, node_number, own_entry, own_score, found_own)
        begin[t + 1], own_begin[t + 1] = found, found_own
        for i in range(pairs):
            place[node[i]] = -1
    return found, found_own


@loop(nogil=True)
def target_gradients(
    targets: Array, rows: Array, start: Array, sender: Array, sent: Any, matrix: Any, root: Any, slope: Any, own: Any,
    factors: Any, loop: Any, scalar: Array, first: Array, first_own: Array, edge_number: Array, node_number: Array, widths: Any,
    by_layer: bool,
) -> Any:  # fmt: skip
    """∂/∂ω and ∂/∂s at 1 of targets whose model is a chain of affine layers with element-wise functions between them.

    Args:
        targets: `[T]`, their nodes.
        rows: `[T, columns]`, the gradients of the explained numbers by the rows of the output. These and all other tables have
            columns of zeros up to a multiple of eight.
        start: The in-edges, as for `neighbourhood`.
        sender: Their senders.
        sent: Per call `[N, width]`: what is sent, before the matrix.
        matrix: Per call `[out, width]`; empty: none.
        root: Per call, the same of the own term.
        slope: Per call `[N, out]`: the derivative of the function behind it; empty: 1.
        own: Per call `[N, out]`: own terms that are known; empty: none, or those of `root`, `loop` and `scalar`.
        factors: Per call `[E]`: the coefficients of edges, in the order of `start`; empty: 1.
        loop: Per call `[N]`: coefficients of added loops; empty: none.
        scalar: `[calls]`: the own term's number, before the matrix; 0: none.
        first: `[E, out]`: what each edge brings in the first call, through the matrix and times the slope behind it, in that
            order; empty: `pulled` does the first call as the others.
        first_own: `[N, out]`, the same of own terms; empty: none.
        edge_number: `[E]`, what edges are called in the result, in that order.
        node_number: `[N]`, the same of nodes.
        widths: How many columns and nodes a call has in the result: entries have the place call · width + number.
        by_layer: Whether scores are told apart by call, or added up.

    Returns:
        Of edges and of own terms each: where every target's entries begin `[T + 1]`, their places and scores.
    """
    calls, size, widest = len(scalar), len(start) - 1, rows.shape[1]
    for call in range(calls):
        widest = max(widest, sent[call].shape[1], matrix[call].shape[1], root[call].shape[1], slope[call].shape[1])
    place, node, pair_end = np.full(size, -1), np.empty(size, np.int64), np.empty(calls, np.int64)
    room, own_room, most, most_own = rooms(targets, calls, start, sender, place, node, pair_end, by_layer)
    gradient, back = np.empty((most_own, widest), rows.dtype), np.empty((most_own, widest), rows.dtype)
    spare, product, mine = np.empty((2, widest), rows.dtype), np.zeros(most, rows.dtype), np.zeros(most_own, rows.dtype)
    begin, own_begin = np.zeros(len(targets) + 1, np.int64), np.zeros(len(targets) + 1, np.int64)
    entry, own_entry = np.empty(room + 1, edge_number.dtype), np.empty(own_room, node_number.dtype)
    score, own_score = np.empty(room + 1, rows.dtype), np.empty(own_room, rows.dtype)  # a zero is written and not kept
    found, found_own = pulled_back(
        targets, rows, start, sender, sent, matrix, root, slope, own, factors, loop, scalar, first, first_own, edge_number,
        node_number, widths, by_layer, place, node, pair_end, gradient, back, spare, product, mine, begin, entry, score,
        own_begin, own_entry, own_score,
    )  # fmt: skip
    return (begin, entry[:found], score[:found]), (own_begin, own_entry[:found_own], own_score[:found_own])
