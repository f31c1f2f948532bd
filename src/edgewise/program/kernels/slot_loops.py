"""Compiled loops of occlusion, few slots after few: what missing messages change, followed to all targets and forgotten.

What belongs to a block of slots stays in the processor's cache, where passes over all slots at once (`occlusion_loops.py`)
fetch every row from memory and number the pairs (slot, node). For chains of affine layers with ReLUs between them, whose
explained numbers are columns of what the last layer sums up. Layers come as tuples of as many arrays for every model
(`program/slot_drops.py`); a block takes them out of there once for all its slots.
"""

from typing import Any

import numpy as np
from numba import njit

from edgewise.program.kernels import Array
from edgewise.program.kernels.leaf import leaf
from edgewise.program.kernels.row_vectors import add_scaled, bent_row, row_product, scaled_row
from edgewise.program.kernels.target_loops import grown

_BLOCK = 32
"""Slots of a block."""
_NUMBERS = 2**21
"""Numbers of all nodes and slots of a block: in a large graph blocks are smaller."""


@leaf()
def bent_rows(
    nodes: Array, rows: Array, begin: int, end: int, before: Array, after: Array, tilt: float, place: Array
) -> int:
    """What the changes in rows `begin:end` become behind a ReLU; returns the new end, and empties `place`.

    Nodes where nothing is left are dropped. `before` and `after` `[N, d]` are what nodes had on its two sides (`after` is
    empty where there is no ReLU), `tilt` is the slope below zero: with 0, −1 + 3 changes by 2.
    """
    kept, width, one = begin, before.shape[1], rows.dtype.type(1)
    for i in range(begin, end):
        node, some = nodes[i], False
        place[node] = -1
        if after.shape[0]:
            some = bent_row(rows, i, before, after, node, tilt, width)
        else:
            for d in range(width):
                some |= rows[i, d] != 0
        if some:
            if kept < i:
                nodes[kept] = node
                scaled_row(rows, kept, rows, i, one, width)
            kept += 1
    return kept


@leaf(forceinline=True)
def arrive(
    node: int, rows: Array, count: int, place: Array, nodes: Array, change: Array, factor: Any, width: int
) -> int:
    """Add factor times the first row of `change` to a node's row, which may be new; returns how many rows there are."""
    if place[node] >= 0:
        add_scaled(rows, place[node], change, 0, factor, width)
        return count
    place[node], nodes[count] = count, node
    scaled_row(rows, count, change, 0, factor, width)
    return count + 1


@leaf()
def through_call(
    item: Array, of_self: bool, here: bool, sender: Array, receiver: Array, ends: Array, nodes: Array, rows: Array,
    new_ends: Array, new_nodes: Array, new_rows: Array, place: Array, near: Array, start: Array, edges: Array,
    matrix: Array, root: Array, before: Array, after: Array, message: Array, coefficient: Array, loop: Array, scalar: float,
    tilt: float, moved: Array,
) -> None:  # fmt: skip
    """The changes of a block of slots through a call and the ReLU behind it.

    Rows `ends[s]:ends[s + 1]` are the changes of slot s, `nodes` says where each is; the new ones are filled in. `here`: the
    slots' messages are missing in this call. `edges` are those that still lead to a target, `near` says which nodes do.
    `moved` has room for a row.
    """
    scaled, one, width, new = len(coefficient) > 0, rows.dtype.type(1), before.shape[1], 0
    keeps = len(loop) > 0 or scalar != 0 or root.shape[0] > 0
    for s in range(len(item)):
        at = item[s] if of_self else receiver[item[s]]
        skip, skip_self = item[s] if here and not of_self else -1, item[s] if here and of_self else -1
        if here and near[at] and message.shape[0]:
            factor = coefficient[item[s]] if scaled and not of_self else one
            place[at], new_nodes[new] = new, at
            scaled_row(new_rows, new, message, at if of_self else sender[item[s]], -factor, width)
            new += 1
        for i in range(ends[s], ends[s + 1]):
            node = nodes[i]
            if matrix.shape[0]:
                row_product(rows, i, matrix, moved, 0, False)
            else:
                scaled_row(moved, 0, rows, i, one, width)
            if keeps and node != skip_self and near[node]:
                factor = rows.dtype.type(scalar + (loop[node] if len(loop) else 0.0))
                new = arrive(node, new_rows, new, place, new_nodes, moved, factor, width)
                if root.shape[0]:
                    row_product(rows, i, root, new_rows, place[node], True)
            for j in range(start[node], start[node + 1]):
                if edges[j, 0] != skip:
                    factor = coefficient[edges[j, 0]] if scaled else one
                    new = arrive(edges[j, 1], new_rows, new, place, new_nodes, moved, factor, width)
        new = new_ends[s + 1] = bent_rows(new_nodes, new_rows, new_ends[s], new, before, after, tilt, place)


@leaf()
def to_targets(
    nodes: Array, rows: Array, begin: int, end: int, touched: Array, reached: int, total: Array, seen: Array, skip: int,
    skip_self: int, start: Array, edges: Array, factors: Array, matrix: Array, root: int,
    scalar: float, loop: Array, target_start: Array, target: Array, chosen: Array, moved: Array,
) -> int:  # fmt: skip
    """Through the last call, of which a target needs one number: `total[position]` gets what arrives at it.

    Returns how many positions were `touched`; `seen` says which (1). Of each edge, `edges` has its column, the position that it
    leads to, and the place of what is explained there; `factors` are the coefficients. Of the matrices there are only the
    columns that are explained, side by side: those of the own term are behind the first `root` (0: there are none). `chosen`
    is the place among them for each entry of `target`.
    """
    keeps = len(loop) > 0 or scalar != 0 or root > 0
    for i in range(begin, end):
        node = nodes[i]
        row_product(rows, i, matrix, moved, 0, False)
        for j in range(start[node], start[node + 1]):
            if edges[j, 0] != skip:
                position = edges[j, 1]
                total[position] += factors[j] * moved[0, edges[j, 2]]
                touched[reached] = position
                reached += 1 - seen[position]  # without a branch: whether a target is new cannot be guessed
                seen[position] = 1
        if keeps and node != skip_self:
            factor = rows.dtype.type(scalar + (loop[node] if len(loop) else 0.0))
            for p in range(target_start[node], target_start[node + 1]):
                position = target[p]
                total[position] += factor * moved[0, chosen[p]]
                if root:
                    total[position] += moved[0, root + chosen[p]]
                touched[reached] = position
                reached += 1 - seen[position]
                seen[position] = 1
    return reached


@leaf()
def most_rows(ends: Array, nodes: Array, start: Array, size: int) -> int:
    """How many rows a block can have behind a call: a slot changes no more nodes than there are."""
    total = 0
    for s in range(len(ends) - 1):
        more = 1
        for i in range(ends[s], ends[s + 1]):
            more += 1 + start[nodes[i] + 1] - start[nodes[i]]
        total += min(more, size)
    return total


@leaf()
def most_entries(
    item: Array, of_self: bool, receiver: Array, ends: Array, nodes: Array, last_start: Array, target_start: Array
) -> int:
    """How many entries a block of slots can make: a slot changes no more targets than there are."""
    total, size = 0, target_start[len(target_start) - 1]
    for s in range(len(item)):
        at = item[s] if of_self else receiver[item[s]]
        more = target_start[at + 1] - target_start[at]
        for i in range(ends[s], ends[s + 1]):
            node = nodes[i]
            more += last_start[node + 1] - last_start[node] + target_start[node + 1] - target_start[node]
        total += min(more, size)
    return total


@leaf()
def last_call(
    item: Array, first: int, of_self: bool, here: bool, sender: Array, receiver: Array, ends: Array, nodes: Array, rows: Array,
    touched: Array, total: Array, seen: Array, start: Array, edges: Array, factors: Array, columns: Array, root: int,
    scalar: float, loop: Array, lost: Array, share: Array, target_start: Array, target: Array, wanted: Array, chosen: Array,
    moved: Array, positions: Array, changes: Array, found: int, slot_ends: Array,
) -> int:  # fmt: skip
    """What the targets lose by the slots of a block, written behind the first `found` entries; returns how many there are.

    Slots are numbered from `first` on. `here`: their messages `lost`, times `share`, are missing in the last call, too.
    """
    one = rows.dtype.type(1)
    for s in range(len(item)):
        at, reached = item[s] if of_self else receiver[item[s]], 0
        if here and lost.shape[0]:
            factor = share[item[s]] if len(share) and not of_self else one
            source = at if of_self else sender[item[s]]
            for p in range(target_start[at], target_start[at + 1]):
                touched[reached], seen[target[p]] = target[p], 1
                total[target[p]] = -factor * lost[source, wanted[target[p]]]
                reached += 1
        reached = to_targets(
            nodes, rows, ends[s], ends[s + 1], touched, reached, total, seen, item[s] if here and not of_self else -1,
            item[s] if here and of_self else -1, start, edges, factors, columns, root,
            scalar, loop, target_start, target, chosen, moved,
        )  # fmt: skip
        for i in range(reached):
            position = touched[i]
            if total[position] != 0:
                positions[found], changes[found] = position, total[position]
                found += 1
            seen[position], total[position] = 0, 0
        slot_ends[first + s + 1] = found
    return found


@njit(cache=True, nogil=True)
def slot_drops(
    item: Array, call_of: Array, room: int, of_self: bool, sender: Array, receiver: Array, starts: Any, edges: Any,
    distance: Array, matrix: Any, root: Any, before: Any, after: Any, message: Any, coefficient: Any, loop: Any,
    scalar: Array, below: Array, columns: Array, root_columns: int, last_start: Array, last_edges: Array,
    factors: Array, target_start: Array, target: Array, wanted: Array, chosen: Array,
) -> Any:  # fmt: skip
    """What every target loses by each slot, one block of slots after another.

    Args:
        item: `[slots]`, the column that is missing, or with `of_self` the node whose own term is.
        call_of: `[slots]`, the call in which it is, or −1 for all; in order.
        room: About how many changes there will be.
        of_self: See `item`.
        sender: `[E]`, of each column.
        receiver: `[E]`, of each column.
        starts: Per call but the last `[N + 1]`: the edges out of each node that still lead to a target.
        edges: Per call `[n, 2]`, the column and the receiver of each in that order; not negative by their kind.
        distance: `[N]`, hops to the nearest target.
        matrix: Per call `[in, out]`, filled up with columns of zeros to a multiple of eight; empty: none.
        root: Per call, the same of the own term.
        before: Per call `[N, out]`, what nodes have behind it and before its ReLU.
        after: The same behind the ReLU; empty: there is none.
        message: Per call `[N, out]`, what nodes send, through the matrix; with `of_self` their own terms.
        coefficient: Per call `[E]`; empty: 1.
        loop: Per call `[N]`, coefficients of added loops; empty: none.
        scalar: `[calls]`, the number of the own term; 0: none.
        below: `[calls]`, the slope below zero of the ReLU behind.
        columns: `[in, chosen]`, the explained columns of the matrix of the last call, filled up like `matrix`; behind them
            those of its own term.
        root_columns: Where the columns of the own term begin; 0: there are none.
        last_start: `[N + 1]`, the edges of the last call, one for each target at their receivers.
        last_edges: Of each of them in that order its column, the position of the target, and the place of the explained column
            in `columns`; not negative by their kind.
        factors: The coefficients of these edges.
        target_start: `[N + 1]`, the targets at node v are `target[target_start[v] : target_start[v + 1]]`.
        target: `[T]`, their positions.
        wanted: `[T]`, the explained column of each target.
        chosen: `[T]`, the place in `columns` for each entry of `target`.

    Returns:
        Where the entries of each slot begin `[slots + 1]`; `[n]` each, positions of targets and changes that are not zero.
    """
    calls, size, widest = len(scalar), len(distance), max(8, columns.shape[1])
    for call in range(calls):
        widest = max(widest, message[call].shape[1], before[call].shape[1], matrix[call].shape[1], root[call].shape[1])
    dtype, last, block = before[0].dtype, calls - 1, max(1, min(_BLOCK, _NUMBERS // (size * widest)))
    place, ends, new_ends = np.full(size, -1), np.zeros(block + 1, np.int64), np.zeros(block + 1, np.int64)
    nodes, new_nodes, rows = np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, widest), dtype)
    new_rows, moved = np.empty((0, widest), dtype), np.empty((1, widest), dtype)
    seen, touched, total = (
        np.zeros(len(target), np.int64),
        np.empty(len(target) + 1, np.int64),
        np.zeros(len(target), dtype),
    )
    positions, changes, slot_ends = np.empty(room, np.int32), np.empty(room, dtype), np.zeros(len(item) + 1, np.int64)
    near = np.empty((calls, size), np.bool_)
    for call in range(calls):
        near[call] = distance < calls - call
    found = begin = 0
    while begin < len(item):
        end, always = begin, call_of[begin] < 0
        while end < min(begin + block, len(item)) and call_of[end] == call_of[begin]:
            end += 1
        some = item[begin:end]
        ends[:] = 0
        for call in range(max(call_of[begin], 0), last):
            most = most_rows(ends[: end - begin + 1], nodes, starts[call], size)
            if most > len(new_rows):
                new_nodes, new_rows = np.empty(2 * most, np.int64), np.empty((2 * most, widest), dtype)
            through_call(
                some, of_self, always or call_of[begin] == call, sender, receiver, ends, nodes, rows, new_ends, new_nodes,
                new_rows, place, near[call], starts[call], edges[call], matrix[call], root[call],
                before[call], after[call], message[call], coefficient[call], loop[call], scalar[call],
                dtype.type(below[call]), moved,
            )  # fmt: skip
            nodes, new_nodes, rows, new_rows, ends, new_ends = new_nodes, nodes, new_rows, rows, new_ends, ends
        most = found + most_entries(some, of_self, receiver, ends, nodes, last_start, target_start)
        positions, changes = grown(positions, most), grown(changes, most)
        found = last_call(
            some, begin, of_self, always or call_of[begin] == last, sender, receiver, ends, nodes, rows, touched, total, seen,
            last_start, last_edges, factors, columns, root_columns, scalar[last], loop[last], message[last],
            coefficient[last], target_start, target, wanted, chosen, moved, positions, changes, found, slot_ends,
        )  # fmt: skip
        begin = end
    return slot_ends, positions[:found], changes[:found]
