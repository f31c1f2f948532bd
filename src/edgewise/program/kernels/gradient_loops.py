"""Loops of gradients: growing the levels, and a call backwards."""

from typing import Any

import numpy as np
from numba import njit

from edgewise.program.kernels import Array


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
