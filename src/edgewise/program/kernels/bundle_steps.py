"""Compiled steps of a bundle of missing messages: through a call and the ReLU behind it, and through the last call to targets.

A bundle is up to eight slots of one receiver (`slot_loops.py`). A node that it changes has a row for each of them, one behind
the other, so that its edges are looked up once for all; at a target they are eight numbers side by side, *lanes*.

Rows of all tables are filled up with zeros to a multiple of eight. Numbers of nodes and edges have no sign: an index of that
kind is not counted from the end, which would be looked for at every step.
"""

from typing import Any

import numpy as np

from edgewise.program.kernels import Array
from edgewise.program.kernels.compilation import ZERO, leaf
from edgewise.program.kernels.row_lanes import turned_rows
from edgewise.program.kernels.row_products import rows_product
from edgewise.program.kernels.row_vectors import LANES, add_scaled, bent_row, scaled_row


@leaf()
def bent_rows(
    nodes: Array, rows: Array, count: int, lanes: int, before: Array, after: Array, tilt: float, place: Array
) -> int:
    """What the changes of nodes become behind a ReLU; returns how many nodes are left, and empties `place`.

    Nodes where nothing is left are dropped. `before` and `after` `[N, d]` are what nodes had on its two sides (`after` is
    empty where there is no ReLU), `tilt` is the slope below zero: with 0, −1 + 3 changes by 2.
    """
    kept, width, one = ZERO, before.shape[1], rows.dtype.type(1)
    for i in range(count):
        node, some = nodes[i], False
        place[node] = -1
        if after.shape[0]:
            for row in range(i * lanes, (i + 1) * lanes):
                some |= bent_row(rows, row * width, before, after, node, tilt, width)
        else:
            for at in range(i * lanes * width, (i + 1) * lanes * width):
                some |= rows[at] != 0
        if some:
            if kept < i:
                nodes[kept] = node
                scaled_row(rows, kept * lanes * width, rows, i * lanes * width, one, lanes * width)
            kept += 1
    return kept


@leaf()
def arrive(
    node: Any, rows: Array, count: int, place: Array, nodes: Array, change: Array, factor: Any, size: int, some: int
) -> int:
    """Add factor times the first `some` numbers of `change` to those of a node, which may be new: then to all its `size`.

    Returns how many nodes have rows.
    """
    if place[node] >= 0:
        add_scaled(rows, place[node] * size, change, 0, factor, some)
        return count
    place[node], nodes[count] = count, node
    scaled_row(rows, count * size, change, 0, factor, size)
    return count + 1


@leaf()
def lost_rows(
    at: Any, lanes: int, owns: int, sender: Array, share: Array, message: Array, own: Array, rows: Array, width: int
) -> None:
    """The first rows become what a receiver loses: the messages of a bundle, and with `owns` its own term."""
    for lane in range(lanes - owns):
        scaled_row(rows, lane * width, message, sender[lane], -share[lane], width)
    if owns and own.shape[0]:
        scaled_row(rows, (lanes - 1) * width, own, at, -rows.dtype.type(1), width)
    elif owns:  # this call has no own term
        for d in range((lanes - 1) * width, lanes * width):
            rows[d] = 0


@leaf()
def through_call(
    at: Any, lanes: int, owns: int, here: bool, column: Array, sender: Array, share: Array, nodes: Array, rows: Array,
    count: int, step: int, new_nodes: Array, new_rows: Array, place: Array, near: Array, start: Array, edge: Array,
    receiver: Array, factors: Array, matrix: Array, root: Array, before: Array, after: Array, message: Array, own: Array,
    loop: Array, scalar: float, tilt: float, moved: Array,
) -> int:  # fmt: skip
    """The changes of a bundle through a call and the ReLU behind it; returns how many nodes are changed behind it.

    Node `nodes[i]` has `lanes` rows of `step` numbers, from row i · lanes on; the new ones are filled in. `here`: the messages
    of the bundle are missing in this call. `edge` and `receiver` are the edges that still lead to a target, `near` says which
    nodes do. `moved` has room for the rows of a node.
    """
    one, width, new = rows.dtype.type(1), before.shape[1], ZERO
    size, keeps = lanes * width, len(loop) > 0 or scalar != 0 or root.shape[0] > 0
    if here and near[at]:
        lost_rows(at, lanes, owns, sender, share, message, own, new_rows, width)
        place[at], new_nodes[0], new = 0, at, 1
    for i in range(count):
        node = nodes[i]
        if matrix.shape[0]:
            rows_product(rows, i * lanes * step, step, lanes, matrix, moved, 0, False)
        else:
            scaled_row(moved, 0, rows, i * size, one, size)
        if keeps and near[node]:
            factor = rows.dtype.type(scalar + (loop[node] if len(loop) else 0.0))
            mine = lanes - owns if here and node == at else lanes  # an own term that is missing carries nothing on
            if place[node] < 0 or factor != 0:
                new = arrive(node, new_rows, new, place, new_nodes, moved, factor, size, mine * width)
            if root.shape[0]:
                rows_product(rows, i * lanes * step, step, mine, root, new_rows, place[node] * size, True)
        for j in range(start[node], start[node + 1]):
            other, factor = receiver[np.uint64(j)], factors[np.uint64(j)] if len(factors) else one
            if here and other == at:  # a message that is missing carries nothing on
                for lane in range(lanes):
                    if lane >= lanes - owns or column[lane] != edge[np.uint64(j)]:
                        add_scaled(new_rows, place[other] * size + lane * width, moved, lane * width, factor, width)
            else:
                new = arrive(other, new_rows, new, place, new_nodes, moved, factor, size, size)
    return bent_rows(new_nodes, new_rows, new, lanes, before, after, tilt, place)


@leaf()
def touch(position: Any, touched: Array, reached: int, seen: Array) -> int:
    """Note a target that is reached; without a branch, since whether it is new cannot be guessed."""
    touched[reached] = position
    reached += 1 - seen[position]
    seen[position] = 1
    return reached


@leaf()
def lost_numbers(
    at: Any, lanes: int, owns: int, sender: Array, share: Array, message: Array, own: Array, target_start: Array,
    target: Array, wanted: Array, total: Array, touched: Array, seen: Array,
) -> int:  # fmt: skip
    """What targets at a receiver lose by the messages of a bundle that are missing in the last call; how many they are."""
    reached = ZERO
    for p in range(target_start[at], target_start[at + 1]):
        position = target[p]
        lane_of, class_of = position * np.uint64(LANES), wanted[position]
        for lane in range(lanes - owns):
            total[lane_of + np.uint64(lane)] = -share[lane] * message[sender[lane], class_of]
        if owns and own.shape[0]:
            total[lane_of + np.uint64(lanes - 1)] = -own[at, class_of]
        reached = touch(position, touched, reached, seen)
    return reached


@leaf()
def to_targets(
    at: Any, lanes: int, owns: int, here: bool, column: Array, sender: Array, nodes: Array, rows: Array, count: int, step: int,
    start: Array, edge: Array, position: Array, chosen: Array, factors: Array, columns: Array, root: int, scalar: float,
    loop: Array, target_start: Array, target: Array, own_chosen: Array, total: Array, touched: Array, reached: int,
    seen: Array, moved: Array, turned: Array,
) -> int:  # fmt: skip
    """Through the last call, of which a target needs one number a slot: its lanes in `total` get what arrives at it.

    Returns how many targets were `touched`; `seen` says which (1). Of each edge there is its column, the target that it leads
    to, and the place of what is explained there; `factors` are the coefficients. Of the matrices there are only the
    columns that are explained, side by side: those of the own term are behind the first `root` (0: there are none).
    `own_chosen` is the place among them for each entry of `target`. `moved` and `turned` have room for eight rows.
    """
    width = columns.shape[1]
    keeps, wide = len(loop) > 0 or scalar != 0 or root > 0, root if root else width
    for i in range(count):
        node, sends = nodes[i], False
        rows_product(rows, i * lanes * step, step, lanes, columns, moved, 0, False)
        turned_rows(moved, width, turned, wide)
        if here:
            for lane in range(lanes - owns):
                sends |= sender[lane] == node
        for k in range(start[node], start[node + 1]):
            j = np.uint64(k)
            lane_of, lane_from = position[j] * np.uint64(LANES), chosen[j] * np.uint64(LANES)
            if sends and find(column, edge[j], lanes - owns) >= 0:  # a message that is missing carries nothing on
                missing = np.uint64(find(column, edge[j], lanes - owns))
                was = total[lane_of + missing]
                add_scaled(total, lane_of, turned, lane_from, factors[j], LANES)
                total[lane_of + missing] = was
            else:
                add_scaled(total, lane_of, turned, lane_from, factors[j], LANES)
            reached = touch(position[j], touched, reached, seen)
        if keeps:
            factor = rows.dtype.type(scalar + (loop[node] if len(loop) else 0.0))
            mine = lanes - owns if here and node == at else lanes
            for p in range(target_start[node], target_start[node + 1]):
                lane_of = target[p] * np.uint64(LANES)
                for lane in range(mine):
                    number = factor * moved[np.uint64(lane * width) + own_chosen[p]]
                    if root:
                        number += moved[np.uint64(lane * width + root) + own_chosen[p]]
                    total[lane_of + np.uint64(lane)] += number
                reached = touch(target[p], touched, reached, seen)
    return reached


@leaf()
def find(numbers: Array, number: Any, count: int) -> int:
    """The place of a number among the first ones, or −1."""
    for place in range(count):
        if numbers[place] == number:
            return place
    return -1
