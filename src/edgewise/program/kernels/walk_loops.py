"""Compiled loops of walks: products of gradients and blocks (`walk/blocks.py`), and boxes (`walk/bounds.py`).

N nodes, P pairs (sender, receiver) ordered by receiver: those into node v are `start[v]:start[v + 1]`.
"""

from typing import Any

import numpy as np

from edgewise.program.kernels import Array
from edgewise.program.kernels.compilation import loop


@loop(fastmath={"reassoc", "contract"})
def rows_times(rows: Array, matrices: Array, node: Array) -> Any:
    """`[n, in]`: rows[i] · matrices[node[i]] for rows `[n, out]` and matrices `[N, out, in]`, which are not copied."""
    found = np.zeros((len(rows), matrices.shape[2]), rows.dtype)
    for i in range(len(rows)):
        for o in range(matrices.shape[1]):
            value = rows[i, o]
            if value != 0:
                for d in range(matrices.shape[2]):
                    found[i, d] += value * matrices[node[i], o, d]
    return found


@loop(fastmath={"reassoc", "contract"})
def times_rows(matrices: Array, node: Array, rows: Array) -> Any:
    """`[n, out]`: matrices[node[i]] · rows[i] for rows `[n, in]`."""
    found = np.empty((len(rows), matrices.shape[1]), rows.dtype)
    for i in range(len(rows)):
        for o in range(matrices.shape[1]):
            total = rows.dtype.type(0)
            for d in range(matrices.shape[2]):
                total += matrices[node[i], o, d] * rows[i, d]
            found[i, o] = total
    return found


@loop(fastmath={"reassoc", "contract"})
def box_image(
    matrices: Array, scale: Array, start: Array, sender: Array, reached: Array, low: Array, high: Array
) -> Any:
    """`[N, out]` twice: the hull, over the pairs into each node, of scale · matrix of the node · box of the sender.

    Args:
        matrices: `[N, out, in]`.
        scale: `[P]`.
        start: `[N + 1]`.
        sender: `[P]`.
        reached: `[N]`, whether a node has a box at all.
        low: `[N, in]`.
        high: `[N, in]`.

    Sides are ±inf where nothing arrives.
    """
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


@loop(fastmath={"reassoc", "contract"})
def pair_scores(
    heads: Array, table: Array, own_heads: Array, own_table: Array, parent: Array, pair: Array, sender: Array,
    scale: Array, is_own: Array,
) -> Any:  # fmt: skip
    """`[n]`: scale · heads[parent] · table[sender], and where a node stays also own_heads[parent] · own_table[sender].

    Args:
        heads: `[prefixes, d]`.
        table: `[N, d]`.
        own_heads: `[prefixes, e]`, or empty.
        own_table: `[N, e]`, or empty.
        parent: `[n]`, the prefix of each step.
        pair: `[n]`, its pair.
        sender: `[P]`.
        scale: `[P]`.
        is_own: `[P]`, whether the pair is a node with itself.
    """
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


@loop()
def hull(
    start: Array, sender: Array, scale: Array, is_own: Array, reached: Array, low: Array, high: Array, own_low: Array,
    own_high: Array, diagonal: Array,
) -> Any:  # fmt: skip
    """`[N, d]` twice: the hull, over the pairs into each node, of diagonal · (scale · box of the sender, + own box).

    The own box is added where a node stays. `own_low`, `own_high` and `diagonal` are `[N, d]` or empty; the rest as for
    `box_image`. Sides are ±inf where nothing arrives.
    """
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
