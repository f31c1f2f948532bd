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
def spread_to_targets(
    key: Array, size: int, start: Array, edge: Array, hearer: Array, skip: Array, coefficient: Array, rows: Array,
    position_start: Array, position: Array, column: Array, sign: Array, total: Array,
) -> None:  # fmt: skip
    """The last call: what every target loses through changed senders, added to `total[slot, position]`."""
    for i in range(len(key)):
        slot, node = key[i] // size, key[i] % size
        for j in range(start[node], start[node + 1]):
            if edge[j] == skip[slot]:
                continue
            weight = coefficient[edge[j]] if len(coefficient) else np.float32(1.0)
            for k in range(position_start[hearer[j]], position_start[hearer[j] + 1]):
                target = position[k]
                total[slot, target] -= weight * sign[target] * rows[i, column[target]]


@njit(cache=True)
def not_zero(total: Array) -> Any:
    """Row, column and number of what is not zero."""
    count = 0
    for i in range(total.shape[0]):
        for j in range(total.shape[1]):
            count += total[i, j] != 0
    rows, columns, numbers = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, total.dtype)
    place = 0
    for i in range(total.shape[0]):
        for j in range(total.shape[1]):
            if total[i, j] != 0:
                rows[place], columns[place], numbers[place] = i, j, total[i, j]
                place += 1
    return rows, columns, numbers
