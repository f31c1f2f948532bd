"""Compiled loops of occlusion, slot after slot: what a missing message changes, followed to all targets and forgotten.

What belongs to one slot stays in the processor's cache, where passes over all slots at once (`occlusion_loops.py`) fetch every
row from memory and number the pairs (slot, node). For chains of affine layers with ReLUs between them, whose explained numbers
are columns of what the last layer sums up. Layers come as tuples of as many arrays for every model (`program/slot_drops.py`).
"""

from typing import Any

import numpy as np
from numba import njit

from edgewise.program.kernels import Array
from edgewise.program.kernels.target_loops import grown


@njit(cache=True, fastmath={"reassoc", "contract"})
def row_through(rows: Array, i: int, matrix: Array, width: int, found: Array) -> None:
    """Row i of `[n, k]` times a matrix `[k, width]`, into `found`; without a matrix the row itself.

    Rows are addressed by their number in all of these loops: to make a view of one costs as much as to go through it.
    """
    if not matrix.shape[0]:
        for d in range(width):
            found[d] = rows[i, d]
        return
    for d in range(width):
        found[d] = 0
    for k in range(matrix.shape[0]):
        number = rows[i, k]
        if number != 0:  # behind a ReLU half of them are
            for d in range(width):
                found[d] += number * matrix[k, d]


@njit(cache=True)
def row_of(node: int, place: Array, nodes: Array, rows: Array, width: int, count: int) -> int:
    """How many nodes have a row once this one does, a row of zeros if it is new; `place[node]` says which."""
    if place[node] >= 0:
        return count
    place[node], nodes[count] = count, node
    for d in range(width):
        rows[count, d] = 0
    return count + 1


@njit(cache=True, fastmath={"reassoc", "contract"})
def bend(nodes: Array, rows: Array, count: int, before: Array, after: Array, below: float, place: Array) -> int:
    """What changes become behind a ReLU; nodes where nothing is left are dropped, and `place` is emptied.

    `before` and `after` `[N, d]` are what nodes had on its two sides (`after` is empty where there is no ReLU), `below` is the
    slope below zero: with 0, −1 + 3 changes by 2.
    """
    kept, tilt, width = 0, rows.dtype.type(below), before.shape[1]
    for i in range(count):
        node, some = nodes[i], 0
        place[node] = -1
        if after.shape[0]:
            for d in range(width):
                now = before[node, d] + rows[i, d]
                tilted = tilt * now
                rows[i, d] = (now if now > tilted else tilted) - after[node, d]
        for d in range(width):
            some += rows[i, d] != 0
        if some:
            if kept < i:
                nodes[kept] = node
                for d in range(width):
                    rows[kept, d] = rows[i, d]
            kept += 1
    return kept


@njit(cache=True, fastmath={"reassoc", "contract"})
def changed_rows(
    nodes: Array, rows: Array, count: int, new_nodes: Array, new_rows: Array, new: int, skip: int, skip_self: int,
    start: Array, edge: Array, receiver: Array, near: Array, matrix: Array, root: Array, scalar: float, loop: Array,
    coefficient: Array, width: int, place: Array, moved: Array, mine: Array,
) -> int:  # fmt: skip
    """Through a call: what changed nodes change in their receivers and in themselves is added to the new rows.

    Returns how many nodes have a new row. `skip` is the column that carries nothing, `skip_self` the node without its own term,
    −1: none. The edges are those that still lead to a target, `near` says which nodes do.
    """
    scaled = len(coefficient) > 0
    keeps = len(loop) > 0 or scalar != 0 or root.shape[0] > 0
    for i in range(count):
        node = nodes[i]
        row_through(rows, i, matrix, width, moved)
        if keeps and node != skip_self and near[node]:
            new = row_of(node, place, new_nodes, new_rows, width, new)
            to = place[node]
            factor = moved.dtype.type(scalar + (loop[node] if len(loop) else 0.0))
            for d in range(width):
                new_rows[to, d] += factor * moved[d]
            if root.shape[0]:
                row_through(rows, i, root, width, mine)
                for d in range(width):
                    new_rows[to, d] += mine[d]
        for j in range(start[node], start[node + 1]):
            if edge[j] != skip:
                new = row_of(receiver[j], place, new_nodes, new_rows, width, new)
                to = place[receiver[j]]
                factor = coefficient[edge[j]] if scaled else moved.dtype.type(1)
                for d in range(width):
                    new_rows[to, d] += factor * moved[d]
    return new


@njit(cache=True, fastmath={"reassoc", "contract"})
def dot(rows: Array, i: int, matrix: Array, column: int) -> Any:
    """Row i times a column of a matrix that is given with columns as rows, `[width, k]`; without one, its own number."""
    if not matrix.shape[0]:
        return rows[i, column]
    found = rows.dtype.type(0)
    for k in range(matrix.shape[1]):
        found += rows[i, k] * matrix[column, k]
    return found


@njit(cache=True, fastmath={"reassoc", "contract"})
def changed_numbers(
    nodes: Array, rows: Array, count: int, touched: Array, reached: int, total: Array, seen: Array, skip: int, skip_self: int,
    start: Array, edge: Array, arrives: Array, factors: Array, columns: Array, root: Array, scalar: float, loop: Array,
    target_start: Array, target: Array, wanted: Array, moved: Array, is_known: Array,
) -> int:  # fmt: skip
    """Through the last call, of which a target needs one number: `total[position]` gets what arrives at it.

    Returns how many positions were `touched`; `seen` says which. Edges lead to positions (`arrives`) with coefficients
    (`factors`). `columns` are the matrix with columns as rows: `moved[c]` is worked out once for each node, if it is needed.
    """
    keeps = len(loop) > 0 or scalar != 0 or root.shape[0] > 0
    for i in range(count):
        node = nodes[i]
        for column in range(len(is_known)):
            is_known[column] = False
        for j in range(start[node], start[node + 1]):
            if edge[j] == skip:
                continue
            position = arrives[j]
            column = wanted[position]
            if not is_known[column]:
                is_known[column], moved[column] = True, dot(rows, i, columns, column)
            if not seen[position]:
                seen[position], touched[reached], total[position] = True, position, 0
                reached += 1
            total[position] += factors[j] * moved[column]
        if not keeps or node == skip_self:
            continue
        factor = moved.dtype.type(scalar + (loop[node] if len(loop) else 0.0))
        for p in range(target_start[node], target_start[node + 1]):
            position, column = target[p], wanted[target[p]]
            if not seen[position]:
                seen[position], touched[reached], total[position] = True, position, 0
                reached += 1
            if factor != 0:
                total[position] += factor * (moved[column] if is_known[column] else dot(rows, i, columns, column))
            if root.shape[0]:
                total[position] += dot(rows, i, root, column)
    return reached


@njit(cache=True, nogil=True)
def slot_drops(
    item: Array, call_of: Array, of_self: bool, sender: Array, receiver: Array, starts: Any, edges: Any, others: Any,
    distance: Array, matrix: Any, root: Any, before: Any, after: Any, message: Any, coefficient: Any, loop: Any,
    scalar: Array, below: Array, columns: Array, root_columns: Array, last_start: Array, last_edge: Array, arrives: Array,
    factors: Array, target_start: Array, target: Array, wanted: Array,
) -> Any:  # fmt: skip
    """What every target loses by each slot, one slot after another.

    Args:
        item: `[slots]`, the column that is missing, or with `of_self` the node whose own term is.
        call_of: `[slots]`, the call in which it is, or −1 for all.
        of_self: See `item`.
        sender: `[E]`, of each column.
        receiver: `[E]`, of each column.
        starts: Per call but the last `[N + 1]`: the edges out of each node that still lead to a target.
        edges: Per call, their columns in that order.
        others: Per call, their receivers in that order.
        distance: `[N]`, hops to the nearest target.
        matrix: Per call `[in, out]`; empty: none.
        root: Per call `[in, out]`, of the own term; empty: none.
        before: Per call `[N, out]`, what nodes have behind it and before its ReLU.
        after: The same behind the ReLU; empty: there is none.
        message: Per call `[N, out]`, what nodes send, through the matrix; with `of_self` their own terms.
        coefficient: Per call `[E]`; empty: 1.
        loop: Per call `[N]`, coefficients of added loops; empty: none.
        scalar: `[calls]`, the number of the own term; 0: none.
        below: `[calls]`, the slope below zero of the ReLU behind.
        columns: `[out, in]`, the matrix of the last call; empty: none.
        root_columns: The same of its own term.
        last_start: `[N + 1]`, the edges of the last call, one for each target at their receivers.
        last_edge: Their columns in that order.
        arrives: The positions of these targets.
        factors: The coefficients of these edges.
        target_start: `[N + 1]`, the targets at node v are `target[target_start[v] : target_start[v + 1]]`.
        target: `[T]`, their positions.
        wanted: `[T]`, the explained column of each target.

    Returns:
        `[n]` each: positions of targets, slots, and changes that are not zero.
    """
    calls, size, widest = len(scalar), len(distance), 1
    for call in range(calls):
        widest = max(widest, message[call].shape[1], before[call].shape[1])
    dtype, last = before[0].dtype, calls - 1
    is_known = np.zeros(before[last].shape[1], np.bool_)
    place, nodes, new_nodes = np.full(size, -1), np.empty(size, np.int64), np.empty(size, np.int64)
    rows, new_rows = np.empty((size, widest), dtype), np.empty((size, widest), dtype)
    moved, mine = np.empty(widest, dtype), np.empty(widest, dtype)
    seen, touched, total = (
        np.zeros(len(target), np.bool_),
        np.empty(len(target), np.int64),
        np.empty(len(target), dtype),
    )
    positions, slots, changes = np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, dtype)
    near = np.empty((calls, size), np.bool_)
    for call in range(calls):
        near[call] = distance < calls - call
    found = 0
    for s in range(len(item)):
        at = item[s] if of_self else receiver[item[s]]
        source = at if of_self else sender[item[s]]
        count = reached = 0
        for call in range(max(call_of[s], 0), calls):
            here, width = call_of[s] < 0 or call_of[s] == call, before[call].shape[1]
            skip, skip_self = item[s] if here and not of_self else -1, item[s] if here and of_self else -1
            gone = here and distance[at] < calls - call and message[call].shape[0] > 0
            factor = dtype.type(1)
            if gone and not of_self and len(coefficient[call]):
                factor = coefficient[call][item[s]]
            if call == last:
                for p in range(target_start[at], target_start[at + 1] if gone else target_start[at]):
                    seen[target[p]], touched[reached] = True, target[p]
                    total[target[p]] = -factor * message[call][source, wanted[target[p]]]
                    reached += 1
                reached = changed_numbers(
                    nodes, rows, count, touched, reached, total, seen, skip, skip_self, last_start, last_edge, arrives, factors,
                    columns, root_columns, scalar[call], loop[call], target_start, target, wanted, moved, is_known,
                )  # fmt: skip
                break
            new = 0
            if gone:
                new = row_of(at, place, new_nodes, new_rows, width, 0)
                for d in range(width):
                    new_rows[0, d] = -factor * message[call][source, d]
            new = changed_rows(
                nodes, rows, count, new_nodes, new_rows, new, skip, skip_self, starts[call], edges[call], others[call],
                near[call], matrix[call], root[call], scalar[call], loop[call], coefficient[call], width, place,
                moved, mine,
            )  # fmt: skip
            count = bend(new_nodes, new_rows, new, before[call], after[call], below[call], place)
            nodes, new_nodes, rows, new_rows = new_nodes, nodes, new_rows, rows
            if count == 0 and call_of[s] >= 0:
                break
        positions, slots = grown(positions, found + reached), grown(slots, found + reached)
        changes = grown(changes, found + reached)
        for i in range(reached):
            position = touched[i]
            seen[position] = False
            if total[position] != 0:
                positions[found], slots[found], changes[found] = position, s, total[position]
                found += 1
    return positions[:found], slots[:found], changes[:found]


@njit(cache=True, nogil=True)
def count_entries(position: Array, num_targets: int) -> Array:
    """`[targets]`: how many entries each target has."""
    found = np.zeros(num_targets, np.int64)
    for p in position:
        found[p] += 1
    return found


@njit(cache=True, nogil=True)
def fill_entries(
    position: Array,
    slot: Array,
    change: Array,
    place_of: Array,
    low: int,
    high: int,
    filled: Array,
    places: Array,
    drops: Array,
) -> None:
    """Write what targets `low` to `high` lose behind what they have already, up to `filled` `[targets]`: places and drops.

    `place_of` `[slots]` is what slots are called in the result.
    """
    for i in range(len(position)):
        p = position[i]
        if low <= p < high:
            places[filled[p]], drops[filled[p]] = place_of[slot[i]], -change[i]
            filled[p] += 1
