"""Compiled loops of coalitions: edges come one after the other, and only what a new edge changes is worked out again.

Pairs (target, node) and edges are numbered as in `program/levels.py`: what a call needs is always the beginning of the arrays.
For chains of affine layers with ReLUs between them. Between calls three tables stand for the edges that are there so far: what
pairs have before the ReLU (`pre`), behind it (`post`), and what they would send in the next call, through its matrix (`sent`).
"""

from typing import Any

import numpy as np

from edgewise.program.kernels import Array
from edgewise.program.kernels.change_rows import row_of, row_through
from edgewise.program.kernels.compilation import leaf, loop


@leaf(fastmath={"reassoc", "contract"})
def settled(
    nodes: Array, rows: Array, count: int, pre: Array, post: Array, below: float, bends: bool, place: Array
) -> int:
    """Changes are taken into the tables of a call; afterwards `rows` are those behind its ReLU, where anything is left."""
    kept, tilt, width = 0, rows.dtype.type(below), pre.shape[1]
    for i in range(count):
        pair, some = nodes[i], 0
        place[pair] = -1
        for d in range(width):
            now = pre[pair, d] + rows[i, d]
            pre[pair, d] = now
            tilted = tilt * now
            now = tilted if bends and tilted > now else now
            rows[i, d] = now - post[pair, d]
            post[pair, d] = now
        for d in range(width):
            some += rows[i, d] != 0
        if some:
            if kept < i:
                nodes[kept] = pair
                for d in range(width):
                    rows[kept, d] = rows[i, d]
            kept += 1
    return kept


@leaf(fastmath={"reassoc", "contract"})
def sent_on(
    nodes: Array, rows: Array, count: int, new_nodes: Array, new_rows: Array, sent: Array, heads: int, edges: int,
    out_start: Array, out_edge: Array, head: Array, is_there: Array, matrix: Array, root: Array, scalar: float, loop: Array,
    coefficient: Array, node: Array, edge_id: Array, width: int, place: Array, moved: Array, mine: Array,
) -> int:  # fmt: skip
    """Through a call: what changed pairs change in themselves and, along the edges that are there, in others."""
    new, scaled = 0, len(coefficient) > 0
    keeps = len(loop) > 0 or scalar != 0 or root.shape[0] > 0
    for i in range(count):
        pair = nodes[i]
        row_through(rows, i, matrix, width, moved)
        for d in range(width):
            sent[pair, d] += moved[d]
        if keeps and pair < heads:
            new = row_of(pair, place, new_nodes, new_rows, width, new)
            to = place[pair]
            factor = moved.dtype.type(scalar + (loop[node[pair]] if len(loop) else 0.0))
            for d in range(width):
                new_rows[to, d] += factor * moved[d]
            if root.shape[0]:
                row_through(rows, i, root, width, mine)
                for d in range(width):
                    new_rows[to, d] += mine[d]
        for j in range(out_start[pair], out_start[pair + 1]):
            edge = out_edge[j]
            if edge < edges and is_there[edge]:
                new = row_of(head[edge], place, new_nodes, new_rows, width, new)
                to = place[head[edge]]
                factor = coefficient[edge_id[edge]] if scaled else moved.dtype.type(1)
                for d in range(width):
                    new_rows[to, d] += factor * moved[d]
    return new


@loop(nogil=True)
def order_values(
    order: Array, order_start: Array, edge_of: Array, call_of: Array, num_samples: int, head: Array, tail: Array,
    sender: Array, edge_id: Array, node: Array, out_start: Array, out_edge: Array, heads: Array, edges: Array,
    pair_start: Array, pairs: Array, edge_start: Array, own_edges: Array, first: Array, matrix: Any, root: Any,
    base_pre: Any, base_post: Any, base_sent: Any, coefficient: Any, loop: Any, scalar: Array, below: Array, bends: Array,
    pre: Any, post: Any, sent: Any, column: Array, value: Array,
) -> None:  # fmt: skip
    """The explained number after each player has come, for every order of every target, into `value`.

    Args:
        order: Players, order after order: those of sample s and target t are
            `order[order_start[s · T + t] : order_start[s · T + t + 1]]`.
        order_start: `[samples · T + 1]`.
        edge_of: `[players]`, the edge of each.
        call_of: `[players]`, the call in which it comes, or −1 for all.
        num_samples: How many orders each target has.
        head: `[M]`, the pair that receives.
        tail: The pair that sends, of the edges that are needed behind the first call.
        sender: `[M]`, the node that sends.
        edge_id: `[M]`, the column.
        node: `[pairs]`.
        out_start: `[pairs + 1]`, the edges that a pair sends along are `out_edge[out_start[p] : out_start[p + 1]]`.
        out_edge: See `out_start`.
        heads: `[calls]`, how many pairs each call makes.
        edges: `[calls]`, how many edges it needs.
        pair_start: `[T + 1]`, the pairs of a target are `pairs[pair_start[t] : pair_start[t + 1]]`.
        pairs: See `pair_start`.
        edge_start: `[T + 1]`, the same of edges.
        own_edges: See `edge_start`.
        first: `[N, width]`, what nodes send in the first call, through its matrix.
        matrix: Per call `[in, out]`; empty: none.
        root: Per call `[in, out]`, of the own term; empty: none.
        base_pre: Per call `[pairs, out]`, what pairs have without any edge, before the ReLU.
        base_post: The same behind it.
        base_sent: Per call, what they would send then, through the matrix; empty for the first.
        coefficient: Per call `[E]`; empty: 1.
        loop: Per call `[N]`; empty: none.
        scalar: `[calls]`; 0: none.
        below: `[calls]`, the slope below zero of the ReLU behind.
        bends: `[calls]`, whether there is one.
        pre: Room for what pairs have, as `base_pre`.
        post: As `base_post`.
        sent: As `base_sent`.
        column: `[T]`, the explained column of each target.
        value: `[samples, steps + 1, T]`, filled in.
    """
    calls, targets, widest = len(scalar), len(column), 1
    for call in range(calls):
        widest = max(widest, base_pre[call].shape[1])
    dtype, last = base_pre[0].dtype, calls - 1
    is_there = np.zeros((calls, len(head)), np.bool_)
    place, nodes, new_nodes = np.full(len(node), -1), np.empty(len(node), np.int64), np.empty(len(node), np.int64)
    rows, new_rows = np.empty((len(node), widest), dtype), np.empty((len(node), widest), dtype)
    moved, mine = np.empty(widest, dtype), np.empty(widest, dtype)
    for s in range(num_samples):
        for t in range(targets):
            for call in range(calls):
                for p in range(pair_start[t], pair_start[t + 1]):
                    pair = pairs[p]
                    if pair < heads[call]:
                        for d in range(base_pre[call].shape[1]):
                            pre[call][pair, d] = base_pre[call][pair, d]
                            post[call][pair, d] = base_post[call][pair, d]
                    if call and pair < heads[call - 1]:
                        for d in range(base_pre[call].shape[1]):
                            sent[call][pair, d] = base_sent[call][pair, d]
                for e in range(edge_start[t], edge_start[t + 1]):
                    is_there[call, own_edges[e]] = False
            value[s, 0, t] = pre[last][t, column[t]]
            step = 0
            for place_in_order in range(order_start[s * targets + t], order_start[s * targets + t + 1]):
                player = order[place_in_order]
                edge, only, count = edge_of[player], call_of[player], 0
                for call in range(max(only, 0), calls):
                    width = base_pre[call].shape[1]
                    new = sent_on(
                        nodes, rows, count, new_nodes, new_rows, sent[call], heads[call], edges[call], out_start, out_edge,
                        head, is_there[call], matrix[call], root[call], scalar[call], loop[call], coefficient[call], node,
                        edge_id, width, place, moved, mine,
                    )  # fmt: skip
                    if edge < edges[call] and (only < 0 or only == call):
                        is_there[call, edge] = True
                        new = row_of(head[edge], place, new_nodes, new_rows, width, new)
                        factor = coefficient[call][edge_id[edge]] if len(coefficient[call]) else dtype.type(1)
                        for d in range(width):
                            brought = sent[call][tail[edge], d] if call else first[sender[edge], d]
                            new_rows[place[head[edge]], d] += factor * brought
                    count = settled(new_nodes, new_rows, new, pre[call], post[call], below[call], bends[call], place)
                    nodes, new_nodes, rows, new_rows = new_nodes, nodes, new_rows, rows
                step += 1
                value[s, step, t] = pre[last][t, column[t]]
            for rest in range(step + 1, value.shape[1]):
                value[s, rest, t] = pre[last][t, column[t]]
