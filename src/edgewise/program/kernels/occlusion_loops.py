"""Compiled loops of occlusion: what a missing message changes, carried from call to call to all nodes that it reaches.

A slot is one occlusion. What has changed so far is a list of (slot, node) pairs, written as keys slot · size + node and
ordered by slot, with a row of changes for each. The edges *out of* node u are `start[u]:start[u + 1]`, their columns `edge`,
their other ends `receiver`.

Example: the edges 0 → 1, 1 → 2, 0 → 2, and slot 0 is the loss of 0 → 1 in call 0. Node 1 loses its message: `extra` is the key
1, `gone` the message, and `carry` starts with the pair (slot 0, node 1) and the change −gone. In call 1 node 1 sends its
change on: `key` is [1], and the only edge out of node 1 leads to node 2, so the pairs are (0, 2), and (0, 1) if nodes add
themselves.
"""

from typing import Any

import numpy as np

from edgewise.program.kernels import Array
from edgewise.program.kernels.compilation import loop


@loop()
def spread(
    key: Array, size: int, start: Array, edge: Array, receiver: Array, distance: Array, reach: int, skip: Array
) -> Any:
    """The edges out of changed nodes to receivers that still matter (`distance` to a target below `reach`).

    `skip[slot]` is the occluded column, which carries nothing (−1: none in this call).

    Returns:
        `[n]` each: the place of the changed pair, the column, and the key of the receiver.
    """
    total = 0
    for i in range(len(key)):
        node = key[i] % size
        total += start[node + 1] - start[node]
    sources, edges, reached = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    place = 0
    for i in range(len(key)):
        slot, node = key[i] // size, key[i] % size
        for j in range(start[node], start[node + 1]):
            if distance[receiver[j]] < reach and edge[j] != skip[slot]:
                sources[place], edges[place], reached[place] = i, edge[j], slot * size + receiver[j]
                place += 1
    return sources[:place], edges[:place], reached[:place]


@loop()
def carry(
    key: Array, extra: Array, gone: Array, size: int, start: Array, edge: Array, receiver: Array, distance: Array,
    reach: int, skip: Array, skip_self: Array, coefficient: Array, moved: Array, own: Array,
) -> Any:  # fmt: skip
    """One call: from changed nodes to their receivers, new keys and the sum of the changes that arrive at each.

    Args:
        key: `[n]`, the changed (slot, node) pairs, ordered by slot.
        extra: At most one key per slot, ordered: a receiver that loses its row of `gone` in this call.
        gone: `[extra, d]`, the messages that are missing.
        size: N.
        start: `[N + 1]`, edges grouped by sender.
        edge: `[E]`, their columns.
        receiver: `[E]`, their other ends.
        distance: `[N]`, hops to the nearest target; nodes with `reach` or more are left out.
        reach: See `distance`.
        skip: `[slots]`, the occluded column, or −1.
        skip_self: `[slots]`, the node whose own term is occluded, or −1.
        coefficient: `[E]`, a number per column, or empty for 1.
        moved: `[n, d]`, what changed nodes send more (or less) than before; empty: nothing.
        own: `[n, d]`, what changed nodes add to themselves; empty: the layer has no own term.
    """
    most = len(key) + len(extra)
    for i in range(len(key)):
        node = key[i] % size
        most += start[node + 1] - start[node]
    table = np.full(size, -1, np.int32)  # the row of each node in the current slot, −1: none yet
    keys, change = np.empty(most, np.int64), np.empty((most, gone.shape[1]), gone.dtype)
    width, sends, scaled, keeps_own = gone.shape[1], len(moved) > 0, len(coefficient) > 0, len(own) > 0
    found = i = x = 0  # rows made, and the next of `key` and of `extra`
    while i < len(key) or x < len(extra):  # slot by slot
        slot = key[i] // size if i < len(key) else extra[x] // size
        if x < len(extra) and extra[x] // size < slot:
            slot = extra[x] // size
        base, first = slot * size, found
        if x < len(extra) and extra[x] < base + size:
            table[extra[x] - base] = found
            keys[found] = extra[x]
            for d in range(width):
                change[found, d] = -gone[x, d]
            found += 1
            x += 1
        while i < len(key) and key[i] < base + size:
            node = key[i] - base
            if distance[node] < reach:
                row = table[node]
                if row < 0:
                    row = table[node] = found
                    keys[found] = key[i]
                    for d in range(width):
                        change[found, d] = 0
                    found += 1
                if keeps_own and node != skip_self[slot]:
                    for d in range(width):
                        change[row, d] += own[i, d]
            if sends:
                for j in range(start[node], start[node + 1]):
                    to = receiver[j]
                    if distance[to] < reach and edge[j] != skip[slot]:
                        factor = coefficient[edge[j]] if scaled else 1
                        row = table[to]
                        if row < 0:
                            table[to] = found
                            keys[found] = base + to
                            for d in range(width):
                                change[found, d] = factor * moved[i, d]
                            found += 1
                        else:
                            for d in range(width):
                                change[row, d] += factor * moved[i, d]
            i += 1
        for p in range(first, found):  # the next slot starts with an empty table
            table[keys[p] - base] = -1
    return keys[:found], change[:found]


@loop()
def carry_to_targets(
    key: Array, extra: Array, amount: Array, size: int, start: Array, edge: Array, receiver: Array, skip: Array,
    skip_self: Array, coefficient: Array, moved: Array, own: Array, position: Array, column: Array,
) -> Any:  # fmt: skip
    """The last call: the change of the explained column of each (slot, target) that anything reaches.

    Arguments as for `carry`, but a target needs one number instead of a row: `amount` `[extra]` is what an extra pair starts
    with, `position` `[N]` the target at a node (−1: none), `column` `[targets]` its explained column.

    Returns:
        `[n]` each: positions of targets, slots, and changes that are not zero.
    """
    most = len(extra)
    for i in range(len(key)):
        node = key[i] % size
        most += 1 + start[node + 1] - start[node]
    table = np.full(size, -1, np.int32)  # the place of each node in the current slot, −1: none yet
    targets, slots = np.empty(most, np.int64), np.empty(most, np.int64)
    sums = np.empty(most, amount.dtype)
    sends, scaled, keeps_own = len(moved) > 0, len(coefficient) > 0, len(own) > 0
    wanted = np.empty(size, np.int64)
    for node in range(size):
        wanted[node] = column[position[node]] if position[node] >= 0 else -1
    found = i = x = 0  # rows made, and the next of `key` and of `extra`
    while i < len(key) or x < len(extra):  # slot by slot
        slot = key[i] // size if i < len(key) else extra[x] // size
        if x < len(extra) and extra[x] // size < slot:
            slot = extra[x] // size
        base, first = slot * size, found
        if x < len(extra) and extra[x] < base + size:
            table[extra[x] - base] = found
            targets[found], sums[found] = extra[x] - base, amount[x]
            found += 1
            x += 1
        while i < len(key) and key[i] < base + size:
            node = key[i] - base
            if keeps_own and node != skip_self[slot] and wanted[node] >= 0:
                place = table[node]
                if place < 0:
                    place = table[node] = found
                    targets[found], sums[found] = node, 0
                    found += 1
                sums[place] += own[i, wanted[node]]
            if sends:
                for j in range(start[node], start[node + 1]):
                    to = receiver[j]
                    if edge[j] != skip[slot] and wanted[to] >= 0:
                        place = table[to]
                        if place < 0:
                            place = table[to] = found
                            targets[found], sums[found] = to, 0
                            found += 1
                        change = moved[i, wanted[to]]
                        sums[place] += coefficient[edge[j]] * change if scaled else change
            i += 1
        last, found = found, first
        for p in range(first, last):  # targets become positions; what came to nothing is dropped
            node = targets[p]
            table[node] = -1
            if sums[p] != 0:
                targets[found], slots[found], sums[found] = position[node], slot, sums[p]
                found += 1
    return targets[:found], slots[:found], sums[:found]


@loop()
def rectify(key: Array, size: int, before: Array, change: Array, slope: float) -> Any:
    """What a change becomes behind a ReLU (slope 0) or leaky ReLU; pairs where nothing is left are dropped.

    `before` `[N, d]` is what nodes had, `change` `[n, d]` is overwritten. With slope 0, −1 + 3 changes by 2 and −3 + 1 by 0.
    """
    zero, tilt = change.dtype.type(0), change.dtype.type(slope)
    kept = np.zeros(len(key), np.bool_)
    for i in range(len(key)):
        node = key[i] % size
        some = False
        for d in range(change.shape[1]):
            old = before[node, d]
            new = old + change[i, d]
            moved = (new if new > zero else tilt * new) - (old if old > zero else tilt * old)
            change[i, d] = moved
            some |= moved != zero
        kept[i] = some
    count = kept.sum()
    keys, rows = np.empty(count, np.int64), np.empty((count, change.shape[1]), change.dtype)
    place = 0
    for i in range(len(key)):
        if kept[i]:
            keys[place] = key[i]
            rows[place] = change[i]
            place += 1
    return keys, rows
