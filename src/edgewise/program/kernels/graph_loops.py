"""Compiled loops of graph tasks, graph after graph: all rows of a graph stay in the processor's cache, from link to link.

A link is a step of a chain: a sum over in-edges (or none), a matrix, a ReLU (or none). Links come as tuples of as many arrays
for every model, filled up with empty ones, so that models of any depth share one compiled loop (`program/graph_chain.py`
makes them).
"""

from typing import Any

import numpy as np

from edgewise.program.kernels import Array
from edgewise.program.kernels.change_rows import bend, changed_rows, row_of, row_through
from edgewise.program.kernels.compilation import leaf, loop
from edgewise.program.kernels.row_products import dot_and_add, dot_rows, rows_product, sum_of_rows
from edgewise.program.kernels.row_vectors import add_scaled, rectified_slope, rectify_row, scaled_row


@leaf()
def link_forward(
    begin: int, count: int, start: Array, sender: Array, given: Array, sums: bool, matrix: Array, root: Array, bias: Array,
    factors: Array, loop: Array, scalar: Any, below: Any, before: Array, after: Array, total: Array,
) -> None:  # fmt: skip
    """One link for `count` nodes from `begin` on; `total` is room for what they receive. See `graph_values`."""
    one, step, width = given.dtype.type(1), given.shape[1], after.shape[1]
    for v in range(begin, begin + count):
        scaled_row(after, v, bias, 0, one, width)
    if not sums:
        rows_product(given, begin, step, count, matrix, after, begin, True)
    else:
        for v in range(count):
            sum_of_rows(factors, sender, start[begin + v], start[begin + v + 1], given, total, v * step)
            factor = given.dtype.type(scalar + (loop[begin + v] if len(loop) else 0.0))
            if factor != 0:
                add_scaled(total, v * step, given, begin + v, factor, step)
        if matrix.shape[0]:
            rows_product(total, 0, step, count, matrix, after, begin, True)
        else:
            add_scaled(after, begin, total, 0, one, count * step)
        if root.shape[0]:
            rows_product(given, begin, step, count, root, after, begin, True)
    if before.shape[0]:
        scaled_row(before, begin, after, begin, one, count * width)
    if below != 1:
        rectify_row(after, begin, below, count * width)


@loop(nogil=True)
def graph_values(
    first: Array, start: Array, sender: Array, features: Array, call: Array, matrix: Any, root: Any, bias: Any, factors: Any,
    loop: Any, scalar: Array, below: Array, before: Any, after: Any,
) -> None:  # fmt: skip
    """Every link forwards, into `before` and `after`. Rows of all tables are filled up with zeros to a multiple of eight.

    Args:
        first: `[graphs + 1]`, the first node of each graph.
        start: `[N + 1]`, the edges into node v are `start[v]:start[v + 1]`.
        sender: `[E]`, the sender of each edge in that order.
        features: `[N, in]`, what the first link reads.
        call: `[links]`, the number of the call that a link is; −1: it sums up nothing.
        matrix: Per link `[in, out]`; empty: none.
        root: Per link `[in, out]`, of the own term; empty: none.
        bias: Per link `[1, out]`.
        factors: Per link `[E]`, the coefficients of edges, in the order of `start`.
        loop: Per link `[N]`, coefficients of added loops; empty: none.
        scalar: `[links]`, the number of the own term; 0: none.
        below: `[links]`, the slope below zero of the ReLU behind; 1: there is none.
        before: Per link `[N, out]`, filled in: what nodes have before the ReLU; empty: not kept.
        after: Per link `[N, out]`, filled in: the same behind it.
    """
    most, widest = 1, features.shape[1]
    for i in range(len(call)):
        widest = max(widest, after[i].shape[1])
    for g in range(len(first) - 1):
        most = max(most, first[g + 1] - first[g])
    total = np.empty(most * widest, features.dtype)
    for g in range(len(first) - 1):
        for i in range(len(call)):
            link_forward(
                first[g], first[g + 1] - first[g], start, sender, features if i == 0 else after[i - 1], call[i] >= 0,
                matrix[i], root[i], bias[i], factors[i], loop[i], scalar[i], below[i], before[i], after[i], total,
            )  # fmt: skip


@loop(nogil=True)
def graph_gradients(
    first: Array, start: Array, sender: Array, features: Array, call: Array, matrix: Any, root: Any, factors: Any, loop: Any,
    scalar: Array, below: Array, after: Any, top: Array, of_edges: Array, of_own: Array,
) -> None:  # fmt: skip
    """Every link backwards: `of_edges` `[calls, E]` (in the order of `start`) and `of_own` `[calls, N]` are filled in.

    The matrices come with columns as rows, `[out, in]`; `top` `[graphs, out]` is the gradient of each node's row behind the
    last link, the same for all nodes of a graph. For the rest see `graph_values`.
    """
    most, widest = 1, max(features.shape[1], top.shape[1])
    for g in range(len(first) - 1):
        most = max(most, first[g + 1] - first[g])
    for i in range(len(call)):
        widest = max(widest, after[i].shape[1])
    gradient, onward = np.empty(most * widest, top.dtype), np.empty(most * widest, top.dtype)
    back, mine = np.empty(most * widest, top.dtype), np.empty(most * widest, top.dtype)
    one = top.dtype.type(1)
    for g in range(len(first) - 1):
        base, size = first[g], first[g + 1] - first[g]
        for v in range(size):
            scaled_row(gradient, v * top.shape[1], top, g, one, top.shape[1])
        for i in range(len(call) - 1, -1, -1):
            given, width = features if i == 0 else after[i - 1], after[i].shape[1]
            if below[i] != 1:
                rectified_slope(gradient, 0, after[i], base, below[i], size * width)
            through = gradient
            if matrix[i].shape[0]:
                rows_product(gradient, 0, width, size, matrix[i], onward, 0, False)
                through = onward
            if call[i] < 0:
                gradient, onward = onward, gradient
                continue
            if root[i].shape[0]:
                rows_product(gradient, 0, width, size, root[i], mine, 0, False)
            own_back(base, size, given, loop[i], scalar[i], through, mine, root[i].shape[0] > 0, back, of_own[call[i]])
            edges_back(base, size, start, sender, given, factors[i], through, back, i > 0, of_edges[call[i]])
            gradient, back = back, gradient


@leaf()
def own_back(
    base: int, size: int, given: Array, loop: Array, scalar: Any, through: Array, mine: Array, rooted: bool, back: Array,
    found: Array,
) -> None:  # fmt: skip
    """Of every own term of a graph: its gradient times the node's row into `found`; `back` begins with its gradient."""
    width = given.shape[1]
    for v in range(size):
        factor = given.dtype.type(scalar + (loop[base + v] if len(loop) else 0.0))
        scaled_row(back, v * width, through, v * width, factor, width)
        if rooted:
            add_scaled(back, v * width, mine, v * width, given.dtype.type(1), width)
        found[base + v] = dot_rows(back, v * width, given, base + v, width)


@leaf()
def edges_back(
    base: int, size: int, start: Array, sender: Array, given: Array, factors: Array, through: Array, back: Array, push: bool,
    found: Array,
) -> None:  # fmt: skip
    """Of every edge of a graph: through[receiver] · given[sender] into `found`; `push`: its sender gets through[receiver]."""
    width = given.shape[1]
    for v in range(size):
        for j in range(start[base + v], start[base + v + 1]):
            u, factor = sender[j], factors[j]
            if push:
                number = dot_and_add(through, v * width, given, u, back, (u - base) * width, factor, width)
            else:
                number = dot_rows(through, v * width, given, u, width)
            found[j] = factor * number


@loop(nogil=True)
def graph_changes(
    item: Array, call_of: Array, of_self: bool, sender: Array, receiver: Array, start: Array, edge: Array, other: Array,
    call: Array, matrix: Any, root: Any, coefficient: Any, loop: Any, scalar: Array, below: Array, before: Any, after: Any,
    message: Any, found: Array, changed: Array,
) -> None:  # fmt: skip
    """What each missing message changes in the sum of its graph's rows behind the last link, into `found` `[slots, out]`.

    Args:
        item: `[slots]`, the column that is missing, or with `of_self` the node whose own term is.
        call_of: `[slots]`, the call in which it is, or −1 for all.
        of_self: See `item`.
        sender: `[E]`, of each column.
        receiver: `[E]`, of each column.
        start: `[N + 1]`, the edges out of node v are `start[v]:start[v + 1]`.
        edge: `[E]`, the column of each edge in that order.
        other: `[E]`, its receiver.
        call: As the ones below in `graph_values`; of `after` an empty array says that there is no ReLU.
        matrix: See there.
        root: See there.
        coefficient: Per link `[E]`, by column; empty: 1.
        loop: See there.
        scalar: See there.
        below: See there.
        before: See there.
        after: See there.
        message: Per link `[N, out]`, what nodes send, through the matrix; with `of_self` their own terms.
        found: `[slots, out]`, filled in.
        changed: `[slots]`, bool, filled in: whether anything changes.
    """
    links, size, widest, dtype = len(call), len(start) - 1, 1, found.dtype
    for i in range(links):
        widest = max(widest, before[i].shape[1])
    place, nodes, new_nodes = np.full(size, -1), np.empty(size, np.int64), np.empty(size, np.int64)
    rows, new_rows = np.empty((size, widest), dtype), np.empty((size, widest), dtype)
    moved, mine, near = np.empty(widest, dtype), np.empty(widest, dtype), np.ones(size, np.bool_)
    total = np.empty((1, widest), dtype)
    # a last link that is a matrix alone is linear: its rows are added up first
    late = links > 1 and call[links - 1] < 0 and not after[links - 1].shape[0]
    for s in range(len(item)):
        at = item[s] if of_self else receiver[item[s]]
        source = at if of_self else sender[item[s]]
        count = 0
        for i in range(links - 1 if late else links):
            width = before[i].shape[1]
            if call[i] < 0:
                for r in range(count):
                    row_through(rows, r, matrix[i], width, moved)
                    for d in range(width):
                        rows[r, d] = moved[d]
                count = bend(nodes, rows, count, before[i], after[i], below[i], place)
                continue
            here = call_of[s] < 0 or call_of[s] == call[i]
            new = 0
            if here and message[i].shape[0]:
                factor = dtype.type(1)
                if not of_self and len(coefficient[i]):
                    factor = coefficient[i][item[s]]
                new = row_of(at, place, new_nodes, new_rows, width, 0)
                for d in range(width):
                    new_rows[0, d] = -factor * message[i][source, d]
            if count == 0 and new == 0:
                continue
            new = changed_rows(
                nodes, rows, count, new_nodes, new_rows, new, item[s] if here and not of_self else -1,
                item[s] if here and of_self else -1, start, edge, other, near, matrix[i], root[i], scalar[i], loop[i],
                coefficient[i], width, place, moved, mine,
            )  # fmt: skip
            count = bend(new_nodes, new_rows, new, before[i], after[i], below[i], place)
            nodes, new_nodes, rows, new_rows = new_nodes, nodes, new_rows, rows
        width = before[links - 2 if late else links - 1].shape[1]
        for d in range(width):
            total[0, d] = 0
        for r in range(count):
            for d in range(width):
                total[0, d] += rows[r, d]
        row_through(total, 0, matrix[links - 1][:0] if not late else matrix[links - 1], found.shape[1], moved)
        found[s] = moved[: found.shape[1]]
        changed[s] = count > 0
