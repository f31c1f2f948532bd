"""Compiled loops of gradients: one hop outwards from the targets (`grow`), and one call backwards (`pull`).

Example of `grow`: the edges 0 → 1, 1 → 2, 0 → 2 and the frontier (target 0, node 2), written as the key 0 · 3 + 2 = 2. Its
in-edges are 1 → 2 and 0 → 2, so `count` is [2], `senders` [1, 0], and the pairs (0, 1) and (0, 0) are new, with the keys [1,
0].
"""

from typing import Any

import numpy as np

from edgewise.program.kernels import Array
from edgewise.program.kernels.compilation import loop


@loop()
def grow(
    frontier: Array, start: Array, edge: Array, sender: Array, size: int, table: Array, first: int, number_senders: bool
) -> Any:
    """One hop outwards: in-edges of the frontier's nodes, and the senders that are new (see `levels.expand`).

    Args:
        frontier: `[F]`, keys target · size + node.
        start: `[N + 1]`, the edges into node v are `start[v]:start[v + 1]`.
        edge: `[E]`, the column of each edge in that order.
        sender: `[E]`, its sender.
        size: N.
        table: `[targets · N]`, the row of each key that is known, −1 otherwise; filled in here.
        first: The row of the first new key.
        number_senders: Whether senders get rows at all; the last hop needs none.

    Returns:
        `[F]` the in-degrees; `[n]` columns, senders and rows of the senders; the new keys.
    """
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


@loop(fastmath={"reassoc", "contract"})
def pull(
    onward: Array, sent: Array, own: Array, coefficient: Array, start: Array, tail: Array, edge: Array, back: Array,
    size: int,
) -> Any:  # fmt: skip
    """A call backwards: onward[head] · sent[tail] of each edge, and Σ onward[head] over the edges of each sender.

    Args:
        onward: `[heads, d]`, gradients at the receivers.
        sent: `[tails, d]`, what senders send.
        own: Rows with which the first of the senders' sums start.
        coefficient: `[E]`, a number per column, or empty for 1.
        start: `[heads + 1]`, the edges into receiver i are `start[i]:start[i + 1]`.
        tail: `[n]`, the sender's row of each edge.
        edge: `[n]`, its column.
        back: `[n]`, the sender's row among the sums.
        size: How many sums are wanted; 0 for none.

    Returns:
        `[n]` the products, and `[size, d]` the sums.
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
