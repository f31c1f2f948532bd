"""Lanes: the same number of up to eight rows side by side, in one vector register.

    turned_rows(rows, step, found, width)
        found[8 c + r] = rows[step r + c] for r below eight and c below the width, a multiple of eight
    taken_lanes(rows, i, found, j)
        found[j:j + 8] = rows[i:i + 8], which become zero; returns which of them were not, as bits
    num_bits(bits)                                 how many bits are set

As in `row_vectors.py`, arrays are float32 or float64, and places are not checked.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from edgewise.program.kernels.row_vectors import LANES, WORD, Writer, written


def _turned(writer: Writer, rows: list[Any]) -> list[Any]:
    """Eight vectors of eight as columns: pairs, fours and halves change places."""
    for step in (1, 2, 4):
        low = [
            lane - lane % (2 * step) // step * step + (LANES if lane % (2 * step) >= step else 0)
            for lane in range(LANES)
        ]
        high = [lane + step for lane in low]
        turned = list(rows)
        for place in (place for place in range(LANES) if place % (2 * step) < step):
            a, b = rows[place], rows[place + step]
            turned[place], turned[place + step] = writer.shuffled(a, b, low), writer.shuffled(a, b, high)
        rows = turned
    return rows


@written
def turned_rows(_: Any, rows: Any, step: Any, found: Any, width: Any) -> Any:
    """found[8 c + r] = rows[step · r + c] for r below eight and c below the width, a multiple of eight."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = Writer(context, builder, rows.dtype)
        size, here, there = WORD(writer.size), writer.row(rows, given[0], WORD(0)), writer.row(found, given[2], WORD(0))
        steps = [builder.mul(builder.mul(given[1], WORD(r)), size) for r in range(LANES)]
        with cgutils.for_range_slice(builder, WORD(0), given[3], WORD(LANES), WORD) as (column, _):
            at = builder.mul(column, size)
            block = [writer.load(writer.vector, here, builder.add(step, at)) for step in steps]
            to = builder.mul(at, WORD(LANES))
            for place, numbers in enumerate(_turned(writer, block)):
                writer.store(numbers, there, builder.add(to, WORD(place * LANES * writer.size)))
        return writer.nothing()

    return types.void(rows, types.int64, found, types.int64), write


@written
def taken_lanes(_: Any, rows: Any, i: Any, found: Any, j: Any) -> Any:
    """found[j:j + 8] = rows[i:i + 8], which become zero; returns which of them were not, as bits."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = Writer(context, builder, rows.dtype)
        here, there = writer.row(rows, given[0], given[1]), writer.row(found, given[2], given[3])
        numbers, zeros = writer.load(writer.vector, here, WORD(0)), writer.zeros(writer.vector)
        writer.store(numbers, there, WORD(0))
        writer.store(zeros, here, WORD(0))
        return builder.zext(writer.bits(builder.fcmp_unordered("!=", numbers, zeros)), WORD)

    return types.int64(rows, types.int64, found, types.int64), write


@written
def num_bits(_: Any, bits: Any) -> Any:
    """How many bits are set."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(WORD, [WORD]), "llvm.ctpop.i64")
        return builder.call(function, [given[0]])

    return types.int64(types.int64), write
