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


@njit(cache=True, fastmath={"reassoc", "contract"})
def pull(
    onward: Array, sent: Array, own: Array, coefficient: Array, start: Array, tail: Array, edge: Array, back: Array,
    size: int,
) -> Any:  # fmt: skip
    """A call backwards: onward[head] · sent[tail] of each edge, and Σ onward[head] over the edges of each sender.

    `back` are the senders' rows among `size` (empty: nobody asks); the first of them start with the rows of `own`.
    """
    width, scaled, asked = onward.shape[1], len(coefficient) > 0, size > 0
    products, found = np.empty(len(tail), onward.dtype), np.zeros((size, width), onward.dtype)
    for i in range(min(len(own), size)):
        for d in range(width):
            found[i, d] = own[i, d]
    for i in range(len(start) - 1):
        for j in range(start[i], start[i + 1]):
            total = onward.dtype.type(0)
            for d in range(width):
                total += onward[i, d] * sent[tail[j], d]
            factor = coefficient[edge[j]] if scaled else onward.dtype.type(1)
            products[j] = factor * total
            if asked:
                row = back[j]
                for d in range(width):
                    found[row, d] += factor * onward[i, d]
    return products, found


@njit(cache=True, fastmath={"reassoc", "contract"})
def rows_times(rows: Array, matrices: Array, node: Array) -> Any:
    """rows[i] · matrices[node[i]], without copies of the matrices."""
    found = np.zeros((len(rows), matrices.shape[2]), rows.dtype)
    for i in range(len(rows)):
        for o in range(matrices.shape[1]):
            value = rows[i, o]
            if value != 0:
                for d in range(matrices.shape[2]):
                    found[i, d] += value * matrices[node[i], o, d]
    return found


@njit(cache=True, fastmath={"reassoc", "contract"})
def times_rows(matrices: Array, node: Array, rows: Array) -> Any:
    """matrices[node[i]] · rows[i]."""
    found = np.empty((len(rows), matrices.shape[1]), rows.dtype)
    for i in range(len(rows)):
        for o in range(matrices.shape[1]):
            total = rows.dtype.type(0)
            for d in range(matrices.shape[2]):
                total += matrices[node[i], o, d] * rows[i, d]
            found[i, o] = total
    return found


@njit(cache=True, fastmath={"reassoc", "contract"})
def box_image(
    matrices: Array, scale: Array, start: Array, sender: Array, reached: Array, low: Array, high: Array
) -> Any:
    """The hull, over the pairs into each node, of scale · matrix of the node · box of the sender; ±inf where nothing comes."""
    size, width = len(start) - 1, matrices.shape[1]
    new_low, new_high = np.full((size, width), np.inf), np.full((size, width), -np.inf)
    for v in range(size):
        for p in range(start[v], start[v + 1]):
            u = sender[p]
            if reached[u]:
                for o in range(width):
                    least, most = 0.0, 0.0
                    for d in range(matrices.shape[2]):
                        one, other = matrices[v, o, d] * low[u, d], matrices[v, o, d] * high[u, d]
                        least += min(one, other)
                        most += max(one, other)
                    one, other = scale[p] * least, scale[p] * most
                    new_low[v, o] = min(new_low[v, o], one, other)
                    new_high[v, o] = max(new_high[v, o], one, other)
    return new_low, new_high


@njit(cache=True, fastmath={"reassoc", "contract"})
def pair_scores(
    heads: Array, table: Array, own_heads: Array, own_table: Array, parent: Array, pair: Array, sender: Array,
    scale: Array, is_own: Array,
) -> Any:  # fmt: skip
    """scale · heads[parent] · table[sender], and where a node stays also own_heads[parent] · own_table[sender] (if any)."""
    found, has_own = np.empty(len(pair), heads.dtype), len(own_heads) > 0
    for j in range(len(pair)):
        i, p = parent[j], pair[j]
        u = sender[p]
        total = heads.dtype.type(0)
        for d in range(heads.shape[1]):
            total += heads[i, d] * table[u, d]
        total *= scale[p]
        if has_own and is_own[p]:
            for d in range(own_heads.shape[1]):
                total += own_heads[i, d] * own_table[u, d]
        found[j] = total
    return found


@njit(cache=True)
def hull(
    start: Array, sender: Array, scale: Array, is_own: Array, reached: Array, low: Array, high: Array, own_low: Array,
    own_high: Array, diagonal: Array,
) -> Any:  # fmt: skip
    """The hull, over the pairs into each node, of diagonal · (scale · box of the sender + own box where a node stays)."""
    size, width = len(start) - 1, low.shape[1]
    least, most = np.full((size, width), np.inf), np.full((size, width), -np.inf)
    has_own, has_diagonal = len(own_low) > 0, len(diagonal) > 0
    for v in range(size):
        for p in range(start[v], start[v + 1]):
            u = sender[p]
            if not reached[u]:
                continue
            for d in range(width):
                one, other = scale[p] * low[u, d], scale[p] * high[u, d]
                below, above = min(one, other), max(one, other)
                if has_own and is_own[p]:
                    below += own_low[u, d]
                    above += own_high[u, d]
                if has_diagonal:
                    one, other = diagonal[v, d] * below, diagonal[v, d] * above
                    below, above = min(one, other), max(one, other)
                least[v, d] = min(least[v, d], below)
                most[v, d] = max(most[v, d], above)
    return least, most
