"""Compiled loops of a chain of affine layers under weights ω of the edges: a call forwards, and a call backwards.

For all copies of a block of targets at once, as `levels.py` numbers them: the edges into head i are `start[i]:start[i + 1]`,
their senders the rows `tail` of a table. Example: a head with two edges of weights ½ and 1 from rows (1,) and (10,) receives
10.5; of a gradient 2 at the head, the weights get 2 and 20, the rows 1 and 2.
"""

from edgewise.program.kernels import Array
from edgewise.program.kernels.compilation import leaf
from edgewise.program.kernels.row_products import dot_and_add, dot_rows, rows_product, sum_of_rows
from edgewise.program.kernels.row_vectors import add_scaled, rectified_slope, rectify_row, scaled_row

BLOCK = 32
"""Heads whose rows go through a matrix together."""


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
        table: `[rows, in]`, what is sent; the heads' own rows come first, unless `own` has what they add. This and all other
            tables have columns of zeros up to a multiple of eight.
        matrix: `[in, out]`; empty: none.
        root: The same of the own term.
        own: `[N, out]`, own terms that are known, with the bias; empty: none, or those of `root`, `loop` and `scalar`.
        loop: `[N]`, coefficients of added loops; empty: none.
        scalar: The own term's number, before the matrix; 0: none.
        bias: `[1, out]`; zeros: none.
        tilt: The slope below zero of the ReLU.
        bends: Whether there is one.
        spare: Room for `BLOCK` rows.
        found: Filled in.
    """
    width, out, one, heads = table.shape[1], found.shape[1], table.dtype.type(1), len(start) - 1
    for first in range(0, heads, BLOCK):
        count = min(BLOCK, heads - first)
        for i in range(first, first + count):
            sum_of_rows(weight, tail, start[i], start[i + 1], table, spare, (i - first) * width)
            factor = table.dtype.type(scalar + (loop[node[i]] if len(loop) else 0.0))
            if factor != 0:
                add_scaled(spare, (i - first) * width, table, i, factor, width)
            if own.shape[0]:
                scaled_row(found, i, own, node[i], one, out)
            else:
                scaled_row(found, i, bias, 0, one, out)
        if matrix.shape[0]:
            rows_product(spare, 0, width, count, matrix, found, first, True)
        else:
            add_scaled(found, first, spare, 0, one, count * out)
        if root.shape[0]:
            rows_product(table, first, width, count, root, found, first, True)
        if bends:
            rectify_row(found, first, tilt, count * out)


@leaf(nogil=True)
def weighted_backward(
    start: Array, tail: Array, node: Array, weight: Array, share: Array, table: Array, matrix: Array, root: Array, own: Array,
    loop: Array, scalar: float, tilt: float, bends: bool, value: Array, gradient: Array, spare: Array, of_root: Array,
    back: Array, of_weight: Array, of_own: Array,
) -> None:  # fmt: skip
    """The same call backwards: the gradients of the weights are added to `of_weight`, those of the table to `back`.

    And those of the own terms' weights s, at s = 1, to `of_own`.

    Args as for `weighted_forward`, and these:

    Args:
        start: As there.
        tail: As there.
        node: As there.
        weight: As there.
        share: `[edges]`, the coefficients alone; empty: 1.
        table: As there.
        matrix: `[out, in]`; empty: none.
        root: The same of the own term.
        own: `[N, out]`, own terms that are known, without the bias; empty: none, or those of `root`, `loop` and `scalar`.
        loop: As there.
        scalar: As there.
        tilt: As there.
        bends: As there.
        value: `[heads, out]`, what heads have behind the ReLU: not positive means that it was below zero.
        gradient: `[heads, out]`, by what heads have behind the ReLU; changed in place.
        spare: Room for `BLOCK` rows.
        of_root: The same.
        back: `[rows, in]`, by the rows of the table; empty: not asked for.
        of_weight: `[edges]`.
        of_own: `[heads]`; empty: not asked for.
    """
    width, out, one, heads = table.shape[1], value.shape[1], table.dtype.type(1), len(start) - 1
    push, scaled, asked = back.shape[0] > 0, len(share) > 0, len(of_own) > 0
    for first in range(0, heads, BLOCK):
        count = min(BLOCK, heads - first)
        if bends:
            rectified_slope(gradient, first, value, first, tilt, count * out)
        if matrix.shape[0]:
            rows_product(gradient, first, out, count, matrix, spare, 0, False)
        else:
            scaled_row(spare, 0, gradient, first, one, count * width)
        if root.shape[0]:
            rows_product(gradient, first, out, count, root, of_root, 0, False)
        for i in range(first, first + count):
            row = (i - first) * width
            factor = table.dtype.type(scalar + (loop[node[i]] if len(loop) else 0.0))
            if push and factor != 0:
                add_scaled(back, i, spare, row, factor, width)
            if push and root.shape[0]:
                add_scaled(back, i, of_root, row, one, width)
            if asked:
                if own.shape[0]:
                    of_own[i] += dot_rows(gradient, i, own, node[i], out)
                if factor != 0:
                    of_own[i] += factor * dot_rows(spare, row, table, i, width)
                if root.shape[0]:
                    of_own[i] += dot_rows(of_root, row, table, i, width)
            for j in range(start[i], start[i + 1]):
                if push:
                    product = dot_and_add(spare, row, table, tail[j], back, tail[j], weight[j], width)
                else:
                    product = dot_rows(spare, row, table, tail[j], width)
                of_weight[j] += share[j] * product if scaled else product
