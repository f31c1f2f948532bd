"""Compiled loops of occlusion, receiver after receiver: what missing messages change, followed to all targets and forgotten.

A slot is one missing message. Those of one receiver (its in-edges and its own term) change the same nodes, so up to eight of
them, a *bundle*, go together (`bundle_steps.py`). Passes over all slots at once (`occlusion_loops.py`) fetch every row from
memory and number the pairs (slot, node).

For chains of affine layers with ReLUs between them, whose explained numbers are columns of what the last layer sums up. Layers
come as tuples of as many arrays for every model (`program/slot_drops.py`), rows filled up with zeros to a multiple of eight.
"""

from typing import Any

import numpy as np

from edgewise.program.kernels import Array
from edgewise.program.kernels.bundle_steps import lost_numbers, through_call, to_targets
from edgewise.program.kernels.compilation import ZERO, leaf, loop
from edgewise.program.kernels.neighbourhoods import grown
from edgewise.program.kernels.row_lanes import num_bits, taken_lanes
from edgewise.program.kernels.row_vectors import LANES


@leaf()
def bundle(
    at: Any, first: int, lanes: int, owns: int, start: Array, edge: Array, sender: Array, column: Array, senders: Array
) -> None:
    """Which messages of a receiver the lanes of a bundle are: their columns and senders, from its `first` in-edge on."""
    for lane in range(lanes - owns):
        j = np.uint64(start[at] + first + lane)
        column[lane], senders[lane] = edge[j], sender[j]


@leaf(forceinline=False)
def dropped(
    bundles: Array, begin: int, by_layer: bool, in_start: Array, in_edge: Array, in_sender: Array, starts: Any, edges: Any,
    receivers: Any, factors: Any, distance: Array, matrix: Any, root: Any, before: Any, after: Any, message: Any, own: Any,
    coefficient: Any, loop: Any, scalar: Array, below: Array, columns: Array, root_columns: int, last_start: Array,
    last_edge: Array, last_position: Array, last_chosen: Array, last_factors: Array, target_start: Array, target: Array,
    wanted: Array, own_chosen: Array, room: Any, rows: Array, new_rows: Array, place: Array, near: Array, seen: Array,
    total: Array, sizes: Array, ends: Array, positions: Array, changes: Array, numbers: int,
) -> Any:  # fmt: skip
    """Bundles from `begin` on, as long as there is room; returns the next one, and how many numbers there are.

    `ends[b + 1]` is where the targets of bundle b end, `sizes` counts entries by targets, those of own terms behind the others.
    """
    column, sender, share, nodes, new_nodes, touched, moved, turned = room
    calls, found, tall = len(scalar), ends[begin], len(wanted)
    for b in range(begin, len(bundles)):
        if found + tall > len(positions) or numbers + LANES * (tall + 1) > len(changes):
            return b, numbers
        at, call_of, first, lanes, owns = bundles[b, 0], bundles[b, 1], bundles[b, 2], bundles[b, 3], bundles[b, 4]
        at = np.uint32(at)
        bundle(at, first, lanes, owns, in_start, in_edge, in_sender, column, sender)
        count = step = reached = ZERO
        for call in range(call_of if by_layer else 0, calls - 1):
            here = not by_layer or call == call_of
            shares(lanes - owns, column, coefficient[call], share)
            count = through_call(
                at, lanes, owns, here, column, sender, share, nodes, rows, count, step, new_nodes, new_rows, place, near[call],
                starts[call], edges[call], receivers[call], factors[call], matrix[call], root[call], before[call], after[call],
                message[call], own[call], loop[call], scalar[call], share.dtype.type(below[call]), moved,
            )  # fmt: skip
            step = before[call].shape[1]
            nodes, new_nodes, rows, new_rows = new_nodes, nodes, new_rows, rows
        call = calls - 1
        here = not by_layer or call == call_of
        if here:
            shares(lanes - owns, column, coefficient[call], share)
            reached = lost_numbers(
                at, lanes, owns, sender, share, message[call], own[call], target_start, target, wanted, total, touched, seen
            )  # fmt: skip
        reached = to_targets(
            at, lanes, owns, here, column, sender, nodes, rows, count, step, last_start, last_edge, last_position, last_chosen,
            last_factors, columns, root_columns, scalar[call], loop[call], target_start, target, own_chosen, total, touched,
            reached, seen, moved, turned,
        )  # fmt: skip
        for i in range(reached):
            position = touched[i]
            seen[position] = 0
            kept = taken_lanes(total, position * np.uint64(LANES), changes, numbers) & ((1 << lanes) - 1)
            if kept:
                positions[found] = position
                found, numbers = found + 1, numbers + lanes
                sizes[position] += num_bits(kept & ((1 << (lanes - owns)) - 1))
                sizes[position + np.uint64(tall)] += kept >> (lanes - owns)
        ends[b + 1] = found
    return len(bundles), numbers


@leaf()
def shares(count: int, column: Array, coefficient: Array, share: Array) -> None:
    """The coefficients of the columns of a bundle."""
    for lane in range(count):
        share[lane] = coefficient[column[lane]] if len(coefficient) else share.dtype.type(1)


@loop()
def bundles_of(at: Array, call_of: Array, start: Array, owns: bool, most: int) -> Array:
    """`[bundles, 5]`: receiver, call, its first in-edge, lanes, and whether the last lane is the receiver's own term (1)."""
    total = 0
    for s in range(len(at)):
        total += (start[at[s] + 1] - start[at[s]] + owns + most - 1) // most
    found, count = np.empty((total, 5), np.int64), 0
    for s in range(len(at)):
        slots = start[at[s] + 1] - start[at[s]] + owns
        parts, first = (slots + most - 1) // most, 0
        for part in range(parts):
            end = slots * (part + 1) // parts
            found[count, 0], found[count, 1], found[count, 2], found[count, 3] = at[s], call_of[s], first, end - first
            found[count, 4] = 1 if owns and part == parts - 1 else 0
            first, count = end, count + 1
    return found


@loop(nogil=True)
def slot_drops(
    at: Array, call_of: Array, room: int, most_numbers: int, by_layer: bool, owns: bool, in_start: Array, in_edge: Array,
    in_sender: Array, starts: Any, edges: Any, receivers: Any, factors: Any, distance: Array, matrix: Any, root: Any,
    before: Any, after: Any, message: Any, own: Any, coefficient: Any, loop: Any, scalar: Array, below: Array, columns: Array,
    root_columns: int, last_start: Array, last_edge: Array, last_position: Array, last_chosen: Array, last_factors: Array,
    target_start: Array, target: Array, wanted: Array, own_chosen: Array,
) -> Any:  # fmt: skip
    """What every target loses by each message that is missing at some receivers, one bundle after another.

    Args:
        at: `[n]`, the receivers.
        call_of: `[n]`, the call in which the messages are missing, where that is one.
        room: About how many changes there will be.
        most_numbers: Of all nodes and slots of a bundle together: in a large graph bundles are smaller.
        by_layer: Whether messages are missing in one call, or in all.
        owns: Whether the receivers' own terms are slots, too.
        in_start: `[N + 1]`, where the in-edges of each node begin.
        in_edge: `[E]`, their columns.
        in_sender: `[E]`, their senders.
        starts: Per call but the last `[N + 1]`: the edges out of each node that still lead to a target.
        edges: Per call, the column of each in that order.
        receivers: Their receivers.
        factors: Their coefficients; empty: 1.
        distance: `[N]`, hops to the nearest target.
        matrix: Per call `[in, out]`; empty: none.
        root: Per call, the same of the own term.
        before: Per call `[N, out]`, what nodes have behind it and before its ReLU.
        after: The same behind the ReLU; empty: there is none.
        message: Per call `[N, out]`, what nodes send, through the matrix.
        own: Per call `[N, out]`, own terms; empty: there are none.
        coefficient: Per call `[E]`, by columns; empty: 1.
        loop: Per call `[N]`, coefficients of added loops; empty: none.
        scalar: `[calls]`, the number of the own term; 0: none.
        below: `[calls]`, the slope below zero of the ReLU behind.
        columns: `[in, chosen]`, the explained columns of the matrix of the last call; behind them those of its own term.
        root_columns: Where the columns of the own term begin; 0: there are none.
        last_start: `[N + 1]`, the edges of the last call, one for each target at their receivers.
        last_edge: Their columns.
        last_position: The positions of the targets that they lead to.
        last_chosen: The places of what is explained there among `columns`.
        last_factors: Their coefficients.
        target_start: `[N + 1]`, the targets at node v are `target[target_start[v] : target_start[v + 1]]`.
        target: `[T]`, their positions.
        wanted: `[T]`, the explained column of each target.
        own_chosen: `[T]`, the place in `columns` for each entry of `target`.

    Returns:
        The bundles, where the targets of each end `[bundles + 1]`, their positions, their changes lane by lane, and how many
        entries each target has `[2 T]`, of edges and then of own terms.
    """
    calls, size, widest = len(scalar), len(distance), columns.shape[1]
    for call in range(calls):
        widest = max(widest, message[call].shape[1], before[call].shape[1], matrix[call].shape[1], root[call].shape[1])
    dtype, most = before[0].dtype, max(1, min(LANES, most_numbers // (size * widest)))
    bundles = bundles_of(at, call_of, in_start, owns, most)
    near = np.empty((calls, size), np.bool_)
    for call in range(calls):
        near[call] = distance < calls - call
    rows, new_rows = np.empty(most * size * widest, dtype), np.empty(most * size * widest, dtype)
    working = (
        np.empty(LANES, np.uint32), np.empty(LANES, np.uint32), np.empty(LANES, dtype), np.empty(size, np.uint32),
        np.empty(size, np.uint32), np.empty(len(target) + 1, np.uint32), np.zeros(LANES * widest, dtype),
        np.zeros(LANES * widest, dtype),
    )  # fmt: skip
    place, seen, total = (
        np.full(size, -1, np.int32),
        np.zeros(len(target), np.uint8),
        np.zeros(LANES * len(target), dtype),
    )
    sizes, ends = np.zeros(2 * len(target), np.int64), np.zeros(len(bundles) + 1, np.int64)
    positions, changes = np.empty(room // most, np.uint32), np.empty(room, dtype)
    done = numbers = ZERO
    while done < len(bundles):
        positions = grown(positions, ends[done] + len(target))
        changes = grown(changes, numbers + LANES * (len(target) + 1))
        done, numbers = dropped(
            bundles, done, by_layer, in_start, in_edge, in_sender, starts, edges, receivers, factors, distance, matrix, root,
            before, after, message, own, coefficient, loop, scalar, below, columns, root_columns, last_start, last_edge,
            last_position, last_chosen, last_factors, target_start, target, wanted, own_chosen, working, rows, new_rows, place,
            near, seen, total, sizes, ends, positions, changes, numbers,
        )  # fmt: skip
    return bundles, ends, positions, changes, sizes
