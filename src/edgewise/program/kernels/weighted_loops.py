"""Compiled loops of a chain of affine layers under weights ω of the edges: a call forwards, and a call backwards.

For all copies of a block of targets at once, as `levels.py` numbers them: the edges into head i are `start[i]:start[i + 1]`,
their senders the rows `tail` of a table. Example: a head with two edges of weights ½ and 1 from rows (1,) and (10,) receives
10.5; of a gradient 2 at the head, the weights get 2 and 20, the rows 1 and 2.
"""

from typing import Any

from edgewise.program.kernels import Array
from edgewise.program.kernels.leaf import leaf
from edgewise.program.kernels.row_products import dot_rows, row_product, sum_of_rows
from edgewise.program.kernels.row_vectors import add_scaled, rectified_slope, rectify_row, scaled_row


@leaf(nogil=True)
def weighted_forward(
    start: Array, tail: Array, node: Array, weight: Array, table: Array, matrix: Array, root: Array, own: Array, loop: Array,
    scalar: float, bias: Array, tilt: float, bends: bool, spare: Array, found: Array,
) -> None:  # fmt: skip
    """What heads have behind a call and the ReLU behind it, into `found` `[heads, out]`.

    Args:
        start: `[heads + 1]`, where the edges of each head begin.
        tail: `[edges]`, the row of the table that each reads.
        node: `[heads]`, the node of each head.
        weight: `[edges]`, ω times the coefficient of the edge.
        table: `[rows, in]`, what is sent, filled up like `matrix`; the heads' own rows come first, unless `own` has what
            they add.
        matrix: `[in, out]`, filled up with columns of zeros to a multiple of eight; empty: none.
        root: The same of the own term.
        own: `[N, out]`, own terms that are known, with the bias; empty: none, or those of `root`, `loop` and `scalar`.
        loop: `[N]`, coefficients of added loops; empty: none.
        scalar: The own term's number, before the matrix; 0: none.
        bias: `[1, out]`; zeros: none.
        tilt: The slope below zero of the ReLU.
        bends: Whether there is one.
        spare: Room for a row.
        found: Filled in; rows have room for as many columns as `matrix` has.
    """
    width, out, one = table.shape[1], bias.shape[1], table.dtype.type(1)
    for i in range(len(start) - 1):
        sum_of_rows(weight, tail, start[i], start[i + 1], table, spare, 0)
        factor = table.dtype.type(scalar + (loop[node[i]] if len(loop) else 0.0))
        if factor != 0:
            add_scaled(spare, 0, table, i, factor, width)
        if own.shape[0]:
            scaled_row(found, i, own, node[i], one, out)
        else:
            scaled_row(found, i, bias, 0, one, out)
        if matrix.shape[0]:
            row_product(spare, 0, matrix, found, i, True)
        else:
            add_scaled(found, i, spare, 0, one, out)
        if root.shape[0]:
            row_product(table, i, root, found, i, True)
        if bends:
            rectify_row(found, i, tilt, out)


@leaf(nogil=True)
def weighted_backward(
    start: Array, tail: Array, node: Array, weight: Array, share: Array, table: Array, matrix: Array, root: Array,
    loop: Array, scalar: float, tilt: float, bends: bool, value: Array, gradient: Array, spare: Array, back: Array,
    of_weight: Array,
) -> Any:  # fmt: skip
    """The same call backwards: the gradients of the weights are added to `of_weight`, those of the table to `back`.

    Args as for `weighted_forward`, and these:

    Args:
        start: As there.
        tail: As there.
        node: As there.
        weight: As there.
        share: `[edges]`, the coefficients alone; empty: 1.
        table: As there.
        matrix: `[out, in]`, filled up with columns of zeros to a multiple of eight; empty: none.
        root: The same of the own term.
        loop: As there.
        scalar: As there.
        tilt: As there.
        bends: As there.
        value: `[heads, out]`, what heads have behind the ReLU: not positive means that it was below zero.
        gradient: `[heads, out]`, by what heads have behind the ReLU; changed in place.
        spare: Room for a row.
        back: `[rows, in]`, by the rows of the table; empty: not asked for.
        of_weight: `[edges]`.
    """
    width, one, scaled = table.shape[1], table.dtype.type(1), len(share) > 0
    push = back.shape[0] > 0
    for i in range(len(start) - 1):
        if bends:
            rectified_slope(gradient, i, value, i, tilt, value.shape[1])
        if matrix.shape[0]:
            row_product(gradient, i, matrix, spare, 0, False)
        else:
            scaled_row(spare, 0, gradient, i, one, width)
        if push:
            factor = table.dtype.type(scalar + (loop[node[i]] if len(loop) else 0.0))
            if factor != 0:
                add_scaled(back, i, spare, 0, factor, width)
            if root.shape[0]:
                row_product(gradient, i, root, back, i, True)
        for j in range(start[i], start[i + 1]):
            product = dot_rows(spare, 0, table, tail[j], width)
            of_weight[j] += share[j] * product if scaled else product
            if push:
                add_scaled(back, tail[j], spare, 0, weight[j], width)
