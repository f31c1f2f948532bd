"""Compiled steps of occlusion that several loops share: rows of changes by node, through a call and through a ReLU.

Rows are found by the number of a node: `place[node]` is its row, −1 if it has none, and `nodes` says whose each row is.
"""

from edgewise.program.kernels import Array
from edgewise.program.kernels.compilation import leaf


@leaf(fastmath={"reassoc", "contract"})
def row_through(rows: Array, i: int, matrix: Array, width: int, found: Array) -> None:
    """Row i of `[n, k]` times a matrix `[k, width]`, into `found`; without a matrix the row itself.

    Rows are addressed by their number in all of these loops: to make a view of one costs as much as to go through it.
    """
    if not matrix.shape[0]:
        for d in range(width):
            found[d] = rows[i, d]
        return
    for d in range(width):
        found[d] = 0
    for k in range(matrix.shape[0]):
        number = rows[i, k]
        if number != 0:  # behind a ReLU half of them are
            for d in range(width):
                found[d] += number * matrix[k, d]


@leaf()
def row_of(node: int, place: Array, nodes: Array, rows: Array, width: int, count: int) -> int:
    """How many nodes have a row once this one does, a row of zeros if it is new; `place[node]` says which."""
    if place[node] >= 0:
        return count
    place[node], nodes[count] = count, node
    for d in range(width):
        rows[count, d] = 0
    return count + 1


@leaf(fastmath={"reassoc", "contract"})
def bend(nodes: Array, rows: Array, count: int, before: Array, after: Array, below: float, place: Array) -> int:
    """What changes become behind a ReLU; nodes where nothing is left are dropped, and `place` is emptied.

    `before` and `after` `[N, d]` are what nodes had on its two sides (`after` is empty where there is no ReLU), `below` is the
    slope below zero: with 0, −1 + 3 changes by 2.
    """
    kept, tilt, width = 0, rows.dtype.type(below), before.shape[1]
    for i in range(count):
        node, some = nodes[i], 0
        place[node] = -1
        if after.shape[0]:
            for d in range(width):
                now = before[node, d] + rows[i, d]
                tilted = tilt * now
                rows[i, d] = (now if now > tilted else tilted) - after[node, d]
        for d in range(width):
            some += rows[i, d] != 0
        if some:
            if kept < i:
                nodes[kept] = node
                for d in range(width):
                    rows[kept, d] = rows[i, d]
            kept += 1
    return kept


@leaf(fastmath={"reassoc", "contract"})
def changed_rows(
    nodes: Array, rows: Array, count: int, new_nodes: Array, new_rows: Array, new: int, skip: int, skip_self: int,
    start: Array, edge: Array, receiver: Array, near: Array, matrix: Array, root: Array, scalar: float, loop: Array,
    coefficient: Array, width: int, place: Array, moved: Array, mine: Array,
) -> int:  # fmt: skip
    """Through a call: what changed nodes change in their receivers and in themselves is added to the new rows.

    Returns how many nodes have a new row. `skip` is the column that carries nothing, `skip_self` the node without its own term,
    −1: none. The edges are those that still lead to a target, `near` says which nodes do.
    """
    scaled = len(coefficient) > 0
    keeps = len(loop) > 0 or scalar != 0 or root.shape[0] > 0
    for i in range(count):
        node = nodes[i]
        row_through(rows, i, matrix, width, moved)
        if keeps and node != skip_self and near[node]:
            new = row_of(node, place, new_nodes, new_rows, width, new)
            to = place[node]
            factor = moved.dtype.type(scalar + (loop[node] if len(loop) else 0.0))
            for d in range(width):
                new_rows[to, d] += factor * moved[d]
            if root.shape[0]:
                row_through(rows, i, root, width, mine)
                for d in range(width):
                    new_rows[to, d] += mine[d]
        for j in range(start[node], start[node + 1]):
            if edge[j] != skip:
                new = row_of(receiver[j], place, new_nodes, new_rows, width, new)
                to = place[receiver[j]]
                factor = coefficient[edge[j]] if scaled else moved.dtype.type(1)
                for d in range(width):
                    new_rows[to, d] += factor * moved[d]
    return new
