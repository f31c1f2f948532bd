"""Loops of occlusion: what a missing message changes, carried to everyone who hears of it."""

from typing import Any

import numpy as np
from numba import njit

from edgewise.program.kernels import Array


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
    key: Array, extra: Array, gone: Array, size: int, start: Array, edge: Array, hearer: Array, distance: Array,
    reach: int, skip: Array, skip_self: Array, coefficient: Array, moved: Array, own: Array,
) -> Any:  # fmt: skip
    """Changed nodes to everyone who hears them: new pairs and the sum of what each of them hears.

    Keys are ordered by slot. `extra` has at most one pair a slot, which loses its row of `gone`; `own` are the rows that a
    node adds to itself (none: it does not hear itself).
    """
    most = len(key) + len(extra)
    for i in range(len(key)):
        node = key[i] % size
        most += start[node + 1] - start[node]
    table = np.full(size, -1, np.int32)
    keys, change = np.empty(most, np.int64), np.empty((most, gone.shape[1]), gone.dtype)
    width, sends, scaled, hears_itself = gone.shape[1], len(moved) > 0, len(coefficient) > 0, len(own) > 0
    found = i = x = 0
    while i < len(key) or x < len(extra):
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
                if hears_itself and node != skip_self[slot]:
                    for d in range(width):
                        change[row, d] += own[i, d]
            if sends:
                for j in range(start[node], start[node + 1]):
                    to = hearer[j]
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
        for p in range(first, found):
            table[keys[p] - base] = -1
    return keys[:found], change[:found]


@njit(cache=True)
def carry_to_targets(
    key: Array, extra: Array, amount: Array, size: int, start: Array, edge: Array, hearer: Array, skip: Array,
    skip_self: Array, coefficient: Array, moved: Array, own: Array, position: Array, column: Array,
) -> Any:  # fmt: skip
    """The last call: for each (slot, target) that hears something, the change of the target's column.

    `position[node]` is the target's (−1: not a target). `extra` pairs start with an `amount` of their own.
    """
    most = len(extra)
    for i in range(len(key)):
        node = key[i] % size
        most += 1 + start[node + 1] - start[node]
    table = np.full(size, -1, np.int32)
    targets, slots = np.empty(most, np.int64), np.empty(most, np.int64)
    sums = np.empty(most, amount.dtype)
    sends, scaled, hears_itself = len(moved) > 0, len(coefficient) > 0, len(own) > 0
    wanted = np.empty(size, np.int64)
    for node in range(size):
        wanted[node] = column[position[node]] if position[node] >= 0 else -1
    found = i = x = 0
    while i < len(key) or x < len(extra):
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
            if hears_itself and node != skip_self[slot] and wanted[node] >= 0:
                place = table[node]
                if place < 0:
                    place = table[node] = found
                    targets[found], sums[found] = node, 0
                    found += 1
                sums[place] += own[i, wanted[node]]
            if sends:
                for j in range(start[node], start[node + 1]):
                    to = hearer[j]
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
