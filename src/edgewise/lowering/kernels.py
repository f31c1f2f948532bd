"""Loops for numba; imported only by `compiled.py`. Arrays in, arrays out; what they do is written where they are called."""

from typing import Any

import numpy as np
from numba import njit

Array = Any


@njit(cache=True)
def grow(
    frontier: Array, start: Array, edge: Array, sender: Array, size: int, table: Array, first: int, number_senders: bool
) -> Any:
    """One hop outwards: in-edges of the frontier's nodes, and the senders that are new (see `levels.expand`)."""
    total = 0
    count = np.empty(len(frontier), np.int64)
    for i in range(len(frontier)):
        node = frontier[i] % size
        count[i] = start[node + 1] - start[node]
        total += count[i]
    edges, senders = np.empty(total, np.int64), np.empty(total, np.int64)
    numbered = total if number_senders else 0
    tails, new = np.empty(numbered, np.int64), np.empty(numbered, np.int64)
    found = place = 0
    for i in range(len(frontier)):
        node = frontier[i] % size
        base = frontier[i] - node
        for j in range(start[node], start[node + 1]):
            edges[place], senders[place] = edge[j], sender[j]
            if number_senders:
                key = base + sender[j]
                if table[key] < 0:
                    table[key] = first + found
                    new[found] = key
                    found += 1
                tails[place] = table[key]
            place += 1
    return count, edges, senders, tails, new[:found]


@njit(cache=True)
def spread(
    key: Array, size: int, start: Array, edge: Array, hearer: Array, distance: Array, reach: int, skip: Array
) -> Any:
    """Out-edges of changed nodes to those that still matter; `skip[slot]` is an edge that carries nothing (or −1)."""
    total = 0
    for i in range(len(key)):
        node = key[i] % size
        total += start[node + 1] - start[node]
    sources, edges, heard = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    place = 0
    for i in range(len(key)):
        slot, node = key[i] // size, key[i] % size
        for j in range(start[node], start[node + 1]):
            if distance[hearer[j]] < reach and edge[j] != skip[slot]:
                sources[place], edges[place], heard[place] = i, edge[j], slot * size + hearer[j]
                place += 1
    return sources[:place], edges[:place], heard[:place]


@njit(cache=True)
def carry(
    key: Array, size: int, start: Array, edge: Array, hearer: Array, distance: Array, reach: int, skip: Array,
    skip_self: Array, coefficient: Array, moved: Array, own: Array, extra: Array, table: Array,
) -> Any:  # fmt: skip
    """Changed nodes to everyone who hears them: new pairs (also those of `extra`), and the sum of what each of them hears.

    The table gives a pair its number; `own` are the rows that a node adds to itself (none: it does not hear itself).
    """
    most = len(key) + len(extra)
    for i in range(len(key)):
        node = key[i] % size
        most += start[node + 1] - start[node]
    keys = np.empty(most, np.int64)
    found = 0
    for i in range(len(extra)):
        if table[extra[i]] < 0:
            table[extra[i]] = found
            keys[found] = extra[i]
            found += 1
    for i in range(len(key)):
        slot, node = key[i] // size, key[i] % size
        if distance[node] < reach and table[key[i]] < 0:
            table[key[i]] = found
            keys[found] = key[i]
            found += 1
        for j in range(start[node], start[node + 1]):
            target = slot * size + hearer[j]
            if distance[hearer[j]] < reach and edge[j] != skip[slot] and table[target] < 0:
                table[target] = found
                keys[found] = target
                found += 1
    change = np.zeros((found, moved.shape[1]), moved.dtype)
    for i in range(len(key)):
        slot, node = key[i] // size, key[i] % size
        if len(own) and distance[node] < reach and node != skip_self[slot]:
            row = table[key[i]]
            for d in range(moved.shape[1]):
                change[row, d] += own[i, d]
        for j in range(start[node], start[node + 1]):
            if distance[hearer[j]] < reach and edge[j] != skip[slot]:
                row = table[slot * size + hearer[j]]
                if len(coefficient):
                    for d in range(moved.shape[1]):
                        change[row, d] += coefficient[edge[j]] * moved[i, d]
                else:
                    for d in range(moved.shape[1]):
                        change[row, d] += moved[i, d]
    return keys[:found].copy(), change


@njit(cache=True)
def carry_to_targets(
    key: Array, size: int, start: Array, edge: Array, hearer: Array, skip: Array, skip_self: Array, coefficient: Array,
    moved: Array, own: Array, column: Array, extra: Array, amount: Array, table: Array,
) -> Any:  # fmt: skip
    """The last call: the change of one column (`column[node]`, −1: not a target) for each pair that hears something.

    `extra` pairs start with an `amount` of their own. The table is left as it was.
    """
    most = len(key) + len(extra)
    for i in range(len(key)):
        node = key[i] % size
        most += start[node + 1] - start[node]
    keys, sums = np.empty(most, np.int64), np.empty(most, moved.dtype)
    found = 0
    for i in range(len(extra)):
        table[extra[i]] = found
        keys[found], sums[found] = extra[i], amount[i]
        found += 1
    for i in range(len(key)):
        slot, node = key[i] // size, key[i] % size
        if len(own) and node != skip_self[slot] and column[node] >= 0:
            place = table[key[i]]
            if place < 0:
                place = table[key[i]] = found
                keys[found], sums[found] = key[i], 0
                found += 1
            sums[place] += own[i, column[node]]
        for j in range(start[node], start[node + 1]):
            if edge[j] != skip[slot] and column[hearer[j]] >= 0:
                target = slot * size + hearer[j]
                place = table[target]
                if place < 0:
                    place = table[target] = found
                    keys[found], sums[found] = target, 0
                    found += 1
                change = moved[i, column[hearer[j]]]
                sums[place] += coefficient[edge[j]] * change if len(coefficient) else change
    for i in range(found):
        table[keys[i]] = -1
    return keys[:found].copy(), sums[:found].copy()


@njit(cache=True)
def rectify(key: Array, size: int, before: Array, change: Array, slope: float) -> Any:
    """What a change becomes behind a ReLU (slope 0) or leaky ReLU; pairs where nothing is left are dropped."""
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
