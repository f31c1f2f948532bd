"""Rows in vector registers: what compiled loops do with the rows of two tables, eight numbers at a time.

The compiler does not know whether two arrays share memory, nor how long rows are, so a plain loop over a row of twenty numbers
is checked for both and then done one by one: five times the time of these. Each is one line of arithmetic; rows are addressed
by their number (in an array of one dimension: by where they begin).

    add_scaled(to, i, rows, j, factor, width)      to[i, :width] += factor * rows[j, :width]
    scaled_row(to, i, rows, j, factor, width)      to[i, :width] = factor * rows[j, :width]
    multiply_row(to, i, rows, j, width)            to[i, :width] *= rows[j, :width]
    bent_row(rows, i, before, after, j, tilt, width)
        rows[i] becomes bend(before[j] + rows[i]) − after[j], where bend(x) is the larger of x and tilt · x; returns whether
        anything is left
    rectify_row(rows, i, tilt, width)              rows[i] becomes bend(rows[i])
    rectified_slope(to, i, rows, j, tilt, width)   to[i] is multiplied by the slope of `bend` there, from rows[j] behind it

Products of rows, with rows and with matrices, are in `row_products.py`. Any width will do; multiples of eight take the least
time, so tables are filled up with columns of zeros (`filled_columns`). Arrays are float32 or float64, all of one kind, with
rows in one piece (any other array is refused when the loop is compiled). Numbers of rows are not checked.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

written: Callable[[Callable[..., Any]], Any] = intrinsic
"""A function whose instructions are written by hand, where it is called."""
LANES = 8
"""Numbers of a vector."""
_UNROLLED = 4
"""Vectors of a row up to which there is no loop."""
_FREE = ("reassoc", "contract")
"""Sums may be taken in another order, and a product be added without rounding it first."""
WORD, SHORT, BIT = ir.IntType(64), ir.IntType(32), ir.IntType(1)


class Writer:
    """Writes instructions for rows of one kind of numbers."""

    def __init__(self, context: Any, builder: Any, number: Any) -> None:
        self.context, self.builder, self._kind = context, builder, number
        self.number = context.get_data_type(number)
        self.size = number.bitwidth // 8
        self.vector = ir.VectorType(self.number, LANES)
        self.kinds = (self.vector, ir.VectorType(self.number, 4), ir.VectorType(self.number, 2), self.number)
        """Of the pieces of a row: whole vectors, and what is left of it."""

    def row(self, array_type: Any, array: Any, row: Any) -> Any:
        """The address of a row."""
        if array_type.layout != "C":  # the next number of a row would be somewhere else
            raise TypingError(f"Rows must lie in one piece, got {array_type}. Use np.ascontiguousarray.")
        table = make_array(array_type)(self.context, self.builder, array)
        begin, size = self.builder.ptrtoint(table.data, WORD), WORD(array_type.dtype.bitwidth // 8)
        if array_type.ndim > 1:
            size = self.builder.extract_value(table.strides, 0)
        return self.builder.add(begin, self.builder.mul(row, size))

    def within(self, builder: Any) -> "Writer":
        """The same for instructions at another place."""
        return Writer(self.context, builder, self._kind)

    def table(self, array_type: Any, array: Any) -> list[Any]:
        """The address of a table, how many rows it has, and how long they are."""
        shape = make_array(array_type)(self.context, self.builder, array).shape
        return [self.row(array_type, array, WORD(0)), *(self.builder.extract_value(shape, axis) for axis in (0, 1))]

    def pieces(self, width: Any) -> Iterator[tuple[Any, Any]]:
        """The kind and the offset in bytes of each piece of a row; what is written in between is repeated for it."""
        builder, whole = self.builder, self.builder.and_(width, WORD(-LANES))
        for count in range(1, _UNROLLED + 1):
            with builder.if_then(builder.icmp_unsigned("==", whole, WORD(count * LANES))):
                for place in range(count):
                    yield self.vector, WORD(place * LANES * self.size)
        long = builder.icmp_unsigned(">", whole, WORD(_UNROLLED * LANES))
        with builder.if_then(long), self.repeated(WORD(0), whole, LANES) as place:
            yield self.vector, place
        with builder.if_then(builder.icmp_unsigned("!=", whole, width), likely=False):
            done = whole
            for kind, count in zip(self.kinds[1:], (4, 2, 1), strict=True):
                some = builder.and_(width, WORD(count))
                with builder.if_then(builder.icmp_unsigned("!=", some, WORD(0))):
                    yield kind, builder.mul(done, WORD(self.size))
                done = builder.add(done, some)

    @contextmanager
    def repeated(self, begin: Any, end: Any, step: int) -> Iterator[Any]:
        """A loop over the numbers of a row; gives the offset in bytes."""
        with cgutils.for_range_slice(self.builder, begin, end, WORD(step), WORD) as (index, _):
            yield self.builder.mul(index, WORD(self.size))

    def pointer(self, kind: Any, address: Any, offset: Any) -> Any:
        """Where a piece of a row is, so many bytes behind an address."""
        return self.builder.inttoptr(self.builder.add(address, offset), kind.as_pointer())

    def load(self, kind: Any, address: Any, offset: Any) -> Any:
        """A piece of a row."""
        return self.builder.load(self.pointer(kind, address, offset), align=self.size)

    def store(self, value: Any, address: Any, offset: Any) -> None:
        """Write a piece of a row."""
        self.builder.store(value, self.pointer(value.type, address, offset), align=self.size)

    def spread(self, kind: Any, number: Any) -> Any:
        """One number in every lane."""
        if not isinstance(kind, ir.VectorType):
            return number
        first = self.builder.insert_element(ir.Constant(kind, ir.Undefined), number, SHORT(0))
        return self.shuffled(first, first, [0] * kind.count)

    def shuffled(self, a: Any, b: Any, lanes: list[int]) -> Any:
        """Some lanes of two vectors: those of `b` are numbered behind those of `a`."""
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(SHORT, len(lanes)), lanes))

    def zeros(self, kind: Any) -> Any:
        """Zero in every lane."""
        return ir.Constant(kind, [0.0] * kind.count if isinstance(kind, ir.VectorType) else 0.0)

    def plus(self, a: Any, b: Any) -> Any:
        """a + b."""
        return self.builder.fadd(a, b, flags=_FREE)

    def plus_product(self, total: Any, a: Any, b: Any) -> Any:
        """total + a · b."""
        return self.plus(total, self.builder.fmul(a, b, flags=_FREE))

    def total(self, value: Any) -> Any:
        """The sum of the lanes."""
        kind = value.type
        if not isinstance(kind, ir.VectorType):
            return value
        signature = ir.FunctionType(self.number, [self.number, kind])
        name = f"llvm.vector.reduce.fadd.v{kind.count}f{8 * self.size}"
        function = cgutils.get_or_insert_function(self.builder.module, signature, name)
        return self.builder.call(function, [ir.Constant(self.number, -0.0), value], fastmath=_FREE)

    def bits(self, value: Any) -> Any:
        """The lanes of a comparison as the bits of a number."""
        return self.builder.bitcast(value, ir.IntType(value.type.count))

    def any_set(self, value: Any) -> Any:
        """Whether any lane of a comparison is true."""
        if not isinstance(value.type, ir.VectorType):
            return value
        return self.builder.icmp_unsigned("!=", self.bits(value), ir.IntType(value.type.count)(0))

    def nothing(self) -> Any:
        """What a function returns that returns nothing."""
        return self.context.get_dummy_value()


@written
def add_scaled(_: Any, to: Any, i: Any, rows: Any, j: Any, factor: Any, width: Any) -> Any:
    """to[i, :width] += factor * rows[j, :width]."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = Writer(context, builder, to.dtype)
        here, there = writer.row(to, given[0], given[1]), writer.row(rows, given[2], given[3])
        for kind, offset in writer.pieces(given[5]):
            number = writer.spread(kind, given[4])
            row, more = writer.load(kind, here, offset), writer.load(kind, there, offset)
            writer.store(writer.plus_product(row, number, more), here, offset)
        return writer.nothing()

    return types.void(to, types.int64, rows, types.int64, to.dtype, types.int64), write


@written
def scaled_row(_: Any, to: Any, i: Any, rows: Any, j: Any, factor: Any, width: Any) -> Any:
    """to[i, :width] = factor * rows[j, :width]."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = Writer(context, builder, to.dtype)
        here, there = writer.row(to, given[0], given[1]), writer.row(rows, given[2], given[3])
        for kind, offset in writer.pieces(given[5]):
            product = builder.fmul(writer.spread(kind, given[4]), writer.load(kind, there, offset))
            writer.store(product, here, offset)
        return writer.nothing()

    return types.void(to, types.int64, rows, types.int64, to.dtype, types.int64), write


@written
def multiply_row(_: Any, to: Any, i: Any, rows: Any, j: Any, width: Any) -> Any:
    """to[i, :width] *= rows[j, :width]."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = Writer(context, builder, to.dtype)
        here, there = writer.row(to, given[0], given[1]), writer.row(rows, given[2], given[3])
        for kind, offset in writer.pieces(given[4]):
            product = builder.fmul(writer.load(kind, here, offset), writer.load(kind, there, offset))
            writer.store(product, here, offset)
        return writer.nothing()

    return types.void(to, types.int64, rows, types.int64, types.int64), write


@written
def bent_row(_: Any, rows: Any, i: Any, before: Any, after: Any, j: Any, tilt: Any, width: Any) -> Any:
    """rows[i] becomes max(now, tilt · now) − after[j] with now = before[j] + rows[i]; returns whether anything is left."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = Writer(context, builder, rows.dtype)
        here = writer.row(rows, given[0], given[1])
        was, became = writer.row(before, given[2], given[4]), writer.row(after, given[3], given[4])
        some = cgutils.alloca_once_value(builder, BIT(0), name="some")
        for kind, offset in writer.pieces(given[6]):
            now = builder.fadd(writer.load(kind, was, offset), writer.load(kind, here, offset))
            tilted = builder.fmul(now, writer.spread(kind, given[5]))
            bent = builder.select(builder.fcmp_ordered(">", now, tilted), now, tilted)
            change = builder.fsub(bent, writer.load(kind, became, offset))
            writer.store(change, here, offset)
            left = writer.any_set(builder.fcmp_unordered("!=", change, writer.zeros(kind)))
            builder.store(builder.or_(builder.load(some), left), some)
        return builder.load(some)

    signature = types.boolean(rows, types.int64, before, after, types.int64, rows.dtype, types.int64)
    return signature, write


@written
def rectify_row(_: Any, rows: Any, i: Any, tilt: Any, width: Any) -> Any:
    """rows[i] becomes the larger of itself and tilt times itself."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = Writer(context, builder, rows.dtype)
        here = writer.row(rows, given[0], given[1])
        for kind, offset in writer.pieces(given[3]):
            value = writer.load(kind, here, offset)
            tilted = builder.fmul(value, writer.spread(kind, given[2]))
            writer.store(builder.select(builder.fcmp_ordered(">", value, tilted), value, tilted), here, offset)
        return writer.nothing()

    return types.void(rows, types.int64, rows.dtype, types.int64), write


@written
def rectified_slope(_: Any, to: Any, i: Any, rows: Any, j: Any, tilt: Any, width: Any) -> Any:
    """to[i] is multiplied by `tilt` where rows[j] is not positive."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = Writer(context, builder, to.dtype)
        here, there = writer.row(to, given[0], given[1]), writer.row(rows, given[2], given[3])
        for kind, offset in writer.pieces(given[5]):
            value, row = writer.load(kind, here, offset), writer.load(kind, there, offset)
            tilted = builder.fmul(value, writer.spread(kind, given[4]))
            above = builder.fcmp_ordered(">", row, writer.zeros(kind))
            writer.store(builder.select(above, value, tilted), here, offset)
        return writer.nothing()

    return types.void(to, types.int64, rows, types.int64, to.dtype, types.int64), write
