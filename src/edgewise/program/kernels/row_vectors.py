"""Rows in vector registers: what compiled loops do with the rows of two tables, eight numbers at a time.

The compiler does not know whether two arrays share memory, nor how long rows are, so a plain loop over a row of twenty numbers
is checked for both and then done one by one: five times the time of these. Each is one line of arithmetic; rows are addressed
by their number, and any width will do: whole vectors, half a vector, then single numbers.

    add_scaled(to, i, rows, j, factor, width)      to[i, :width] += factor * rows[j, :width]
    scaled_row(to, i, rows, j, factor, width)      to[i, :width] = factor * rows[j, :width]
    multiply_row(to, i, rows, j, width)            to[i, :width] *= rows[j, :width]
    dot_rows(a, i, b, j, width)                    a[i, :width] · b[j, :width]
    row_product(rows, i, matrix, found, j, add)    found[j] = rows[i] · matrix, or += with `add`
    sum_of_rows(factors, places, begin, end, rows, found, j)
        found[j] = Σ factors[k] · rows[places[k]] over k from begin to end
    bent_row(rows, i, before, after, j, tilt, width)
        rows[i] becomes bend(before[j] + rows[i]) − after[j], where bend(x) is the larger of x and tilt · x; returns whether
        anything is left
    rectify_row(rows, i, tilt, width)              rows[i] becomes bend(rows[i])
    rectified_slope(to, i, rows, j, tilt, width)   to[i] is multiplied by the slope of `bend` there, from rows[j] behind it

The columns of `matrix`, of the rows that `sum_of_rows` adds up, and of the row that gets the result, are filled up with zeros
to a multiple of eight.

Arrays are float32 or float64, all of one kind, with rows in one piece (any other array is refused when the loop is compiled).
Numbers of rows are not checked.
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

_written: Any = intrinsic
"""A function whose instructions are written by hand, where it is called."""
_LANES = 8
_SUMS = 8
"""Vectors of a product that are added up side by side."""
_FREE = ("reassoc", "contract")
"""Sums may be taken in another order, and a product be added without rounding it first."""
_WORD, _SHORT, _BIT = ir.IntType(64), ir.IntType(32), ir.IntType(1)


class _Writer:
    """Writes instructions for rows of one kind of numbers."""

    def __init__(self, context: Any, builder: Any, number: Any) -> None:
        self.context, self.builder = context, builder
        self.number = context.get_data_type(number)
        self.size = number.bitwidth // 8
        self.kinds = (ir.VectorType(self.number, _LANES), ir.VectorType(self.number, _LANES // 2), self.number)
        """Of the pieces of a row: whole vectors, half a one, single numbers."""

    def row(self, array_type: Any, array: Any, row: Any) -> Any:
        """The address of a row."""
        if array_type.layout != "C":  # the next number of a row would be somewhere else
            raise TypingError(f"Rows must lie in one piece, got {array_type}. Use np.ascontiguousarray.")
        table = make_array(array_type)(self.context, self.builder, array)
        begin = self.builder.ptrtoint(table.data, _WORD)
        return self.builder.add(begin, self.builder.mul(row, self.builder.extract_value(table.strides, 0)))

    def shape(self, array_type: Any, array: Any, axis: int) -> Any:
        return self.builder.extract_value(make_array(array_type)(self.context, self.builder, array).shape, axis)

    def pieces(self, width: Any) -> Iterator[tuple[Any, Any]]:
        """The kind and the offset in bytes of each piece of a row; what is written in between is repeated for it."""
        builder, (full, short, single) = self.builder, self.kinds
        whole = builder.and_(width, _WORD(-_LANES))
        with self.repeated(_WORD(0), whole, _LANES) as place:
            yield full, place
        half = builder.and_(width, _WORD(_LANES // 2))
        with builder.if_then(builder.icmp_unsigned("!=", half, _WORD(0))):
            yield short, builder.mul(whole, _WORD(self.size))
        with self.repeated(builder.add(whole, half), width, 1) as place:
            yield single, place

    @contextmanager
    def repeated(self, begin: Any, end: Any, step: int) -> Iterator[Any]:
        """A loop over the numbers of a row; gives the offset in bytes."""
        with cgutils.for_range_slice(self.builder, begin, end, _WORD(step), _WORD) as (index, _):
            yield self.builder.mul(index, _WORD(self.size))

    def pointer(self, kind: Any, address: Any, offset: Any) -> Any:
        return self.builder.inttoptr(self.builder.add(address, offset), kind.as_pointer())

    def load(self, kind: Any, address: Any, offset: Any) -> Any:
        return self.builder.load(self.pointer(kind, address, offset), align=self.size)

    def store(self, value: Any, address: Any, offset: Any) -> None:
        self.builder.store(value, self.pointer(value.type, address, offset), align=self.size)

    def spread(self, kind: Any, number: Any) -> Any:
        """One number in every lane."""
        if not isinstance(kind, ir.VectorType):
            return number
        first = self.builder.insert_element(ir.Constant(kind, ir.Undefined), number, _SHORT(0))
        lanes = ir.Constant(ir.VectorType(_SHORT, kind.count), [0] * kind.count)
        return self.builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), lanes)

    def zeros(self, kind: Any) -> Any:
        return ir.Constant(kind, [0.0] * kind.count if isinstance(kind, ir.VectorType) else 0.0)

    def plus_product(self, total: Any, a: Any, b: Any) -> Any:
        return self.builder.fadd(total, self.builder.fmul(a, b, flags=_FREE), flags=_FREE)

    def total(self, value: Any) -> Any:
        """The sum of the lanes."""
        kind = value.type
        if not isinstance(kind, ir.VectorType):
            return value
        signature = ir.FunctionType(self.number, [self.number, kind])
        name = f"llvm.vector.reduce.fadd.v{kind.count}f{8 * self.size}"
        function = cgutils.get_or_insert_function(self.builder.module, signature, name)
        return self.builder.call(function, [ir.Constant(self.number, -0.0), value], fastmath=_FREE)

    def any_set(self, value: Any) -> Any:
        """Whether any lane of a comparison is true."""
        if not isinstance(value.type, ir.VectorType):
            return value
        bits = self.builder.bitcast(value, ir.IntType(value.type.count))
        return self.builder.icmp_unsigned("!=", bits, ir.IntType(value.type.count)(0))


def _nothing(writer: _Writer) -> Any:
    return writer.context.get_dummy_value()


@_written
def add_scaled(_: Any, to: Any, i: Any, rows: Any, j: Any, factor: Any, width: Any) -> Any:
    """to[i, :width] += factor * rows[j, :width]."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = _Writer(context, builder, to.dtype)
        here, there = writer.row(to, given[0], given[1]), writer.row(rows, given[2], given[3])
        for kind, offset in writer.pieces(given[5]):
            number = writer.spread(kind, given[4])
            row, more = writer.load(kind, here, offset), writer.load(kind, there, offset)
            writer.store(writer.plus_product(row, number, more), here, offset)
        return _nothing(writer)

    return types.void(to, types.int64, rows, types.int64, to.dtype, types.int64), write


@_written
def scaled_row(_: Any, to: Any, i: Any, rows: Any, j: Any, factor: Any, width: Any) -> Any:
    """to[i, :width] = factor * rows[j, :width]."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = _Writer(context, builder, to.dtype)
        here, there = writer.row(to, given[0], given[1]), writer.row(rows, given[2], given[3])
        for kind, offset in writer.pieces(given[5]):
            product = builder.fmul(writer.spread(kind, given[4]), writer.load(kind, there, offset))
            writer.store(product, here, offset)
        return _nothing(writer)

    return types.void(to, types.int64, rows, types.int64, to.dtype, types.int64), write


@_written
def multiply_row(_: Any, to: Any, i: Any, rows: Any, j: Any, width: Any) -> Any:
    """to[i, :width] *= rows[j, :width]."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = _Writer(context, builder, to.dtype)
        here, there = writer.row(to, given[0], given[1]), writer.row(rows, given[2], given[3])
        for kind, offset in writer.pieces(given[4]):
            product = builder.fmul(writer.load(kind, here, offset), writer.load(kind, there, offset))
            writer.store(product, here, offset)
        return _nothing(writer)

    return types.void(to, types.int64, rows, types.int64, types.int64), write


@_written
def dot_rows(_: Any, a: Any, i: Any, b: Any, j: Any, width: Any) -> Any:
    """a[i, :width] · b[j, :width]."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = _Writer(context, builder, a.dtype)
        here, there = writer.row(a, given[0], given[1]), writer.row(b, given[2], given[3])
        sums = {kind: cgutils.alloca_once_value(builder, writer.zeros(kind), name="sum") for kind in writer.kinds}
        for kind, offset in writer.pieces(given[4]):
            one, other = writer.load(kind, here, offset), writer.load(kind, there, offset)
            builder.store(writer.plus_product(builder.load(sums[kind]), one, other), sums[kind])
        found = sums[writer.number]
        for kind, bits in zip(writer.kinds[:2], (-_LANES, _LANES // 2), strict=True):  # whole vectors, and half a one
            with builder.if_then(builder.icmp_unsigned("!=", builder.and_(given[4], _WORD(bits)), _WORD(0))):
                both = builder.fadd(builder.load(found), writer.total(builder.load(sums[kind])), flags=_FREE)
                builder.store(both, found)
        return builder.load(found)

    return a.dtype(a, types.int64, b, types.int64, types.int64), write


def _product_block(
    writer: _Writer, row: Any, line: Callable[[Any], Any], length: Any, to: Any, offset: Any, count: int, add: Any
) -> None:
    """A row times so many vectors of columns of a matrix, from an offset in bytes on: the sums stay in registers.

    A sum cannot be added to before the last addition is done, which takes four steps of the processor, while it could begin
    two in each. So every `ways`-th number of the row goes into a sum of its own.
    """
    builder, kind, ways = writer.builder, writer.kinds[0], 1 << (_SUMS // count).bit_length() - 1
    offsets = [builder.add(offset, _WORD(place * _LANES * writer.size)) for place in range(count)]
    sums = [[cgutils.alloca_once(builder, kind, name="sum") for _ in offsets] for _ in range(ways)]
    for way, some in enumerate(sums):
        for total, place in zip(some, offsets, strict=True):
            here = writer.zeros(kind)
            builder.store(here if way else builder.select(add, writer.load(kind, to, place), here), total)

    def step(index: Any, some: list[Any]) -> None:
        number = writer.load(writer.number, row, builder.mul(index, _WORD(writer.size)))
        factor, columns = writer.spread(kind, number), line(index)
        for total, place in zip(some, offsets, strict=True):
            more = writer.plus_product(builder.load(total), factor, writer.load(kind, columns, place))
            builder.store(more, total)

    even = builder.sub(length, builder.urem(length, _WORD(ways)))
    with cgutils.for_range_slice(builder, _WORD(0), even, _WORD(ways), _WORD) as (index, _):
        for way, some in enumerate(sums):
            step(builder.add(index, _WORD(way)), some)
    with cgutils.for_range_slice(builder, even, length, _WORD(1), _WORD) as (index, _):
        step(index, sums[0])
    for parts, place in zip(zip(*sums, strict=True), offsets, strict=True):
        found = builder.load(parts[0])
        for part in parts[1:]:
            found = builder.fadd(found, builder.load(part), flags=_FREE)
        writer.store(found, to, place)


def _product(writer: _Writer, row: Any, line: Callable[[Any], Any], shape: tuple[Any, Any], to: Any, add: Any) -> None:
    """The numbers of a row times the lines of a table of this shape, added up: as many columns at a time as registers hold."""
    builder, (length, width) = writer.builder, shape

    def block(begin: Any, count: int) -> None:
        offset = builder.mul(begin, _WORD(writer.size))
        _product_block(writer, row, line, length, to, offset, count, add)

    done = builder.and_(width, _WORD(-4 * _LANES))
    with cgutils.for_range_slice(builder, _WORD(0), done, _WORD(4 * _LANES), _WORD) as (begin, _):
        block(begin, 4)
    rest = builder.sub(width, done)
    for count in (3, 2, 1):
        with builder.if_then(builder.icmp_unsigned("==", rest, _WORD(count * _LANES))):
            block(done, count)


@_written
def row_product(_: Any, rows: Any, i: Any, matrix: Any, found: Any, j: Any, add: Any) -> Any:
    """found[j] = rows[i] · matrix `[k, width]`, or with `add` found[j] += that; the width is a multiple of eight."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = _Writer(context, builder, rows.dtype)
        row, to = writer.row(rows, given[0], given[1]), writer.row(found, given[3], given[4])
        shape = writer.shape(matrix, given[2], 0), writer.shape(matrix, given[2], 1)
        _product(writer, row, lambda k: writer.row(matrix, given[2], k), shape, to, given[5])
        return _nothing(writer)

    return types.void(rows, types.int64, matrix, found, types.int64, types.boolean), write


@_written
def sum_of_rows(_: Any, factors: Any, places: Any, begin: Any, end: Any, rows: Any, found: Any, j: Any) -> Any:
    """found[j] = Σ factors[k] · rows[places[k]] over k from begin to end; the width is a multiple of eight."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer, integers = _Writer(context, builder, rows.dtype), _Writer(context, builder, places.dtype)
        first = given[2]
        numbers = builder.add(writer.row(factors, given[0], _WORD(0)), builder.mul(first, _WORD(writer.size)))
        listed = builder.add(writer.row(places, given[1], _WORD(0)), builder.mul(first, _WORD(integers.size)))

        def line(k: Any) -> Any:
            place = integers.load(_WORD, listed, builder.mul(k, _WORD(integers.size)))
            return writer.row(rows, given[4], place)

        shape = builder.sub(given[3], first), writer.shape(rows, given[4], 1)
        _product(writer, numbers, line, shape, writer.row(found, given[5], given[6]), _BIT(0))
        return _nothing(writer)

    return types.void(factors, places, types.int64, types.int64, rows, found, types.int64), write


@_written
def bent_row(_: Any, rows: Any, i: Any, before: Any, after: Any, j: Any, tilt: Any, width: Any) -> Any:
    """rows[i] becomes max(now, tilt · now) − after[j] with now = before[j] + rows[i]; returns whether anything is left."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = _Writer(context, builder, rows.dtype)
        here = writer.row(rows, given[0], given[1])
        was, became = writer.row(before, given[2], given[4]), writer.row(after, given[3], given[4])
        some = cgutils.alloca_once_value(builder, _BIT(0), name="some")
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


@_written
def rectify_row(_: Any, rows: Any, i: Any, tilt: Any, width: Any) -> Any:
    """rows[i] becomes the larger of itself and tilt times itself."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = _Writer(context, builder, rows.dtype)
        here = writer.row(rows, given[0], given[1])
        for kind, offset in writer.pieces(given[3]):
            value = writer.load(kind, here, offset)
            tilted = builder.fmul(value, writer.spread(kind, given[2]))
            writer.store(builder.select(builder.fcmp_ordered(">", value, tilted), value, tilted), here, offset)
        return _nothing(writer)

    return types.void(rows, types.int64, rows.dtype, types.int64), write


@_written
def rectified_slope(_: Any, to: Any, i: Any, rows: Any, j: Any, tilt: Any, width: Any) -> Any:
    """to[i] is multiplied by `tilt` where rows[j] is not positive."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = _Writer(context, builder, to.dtype)
        here, there = writer.row(to, given[0], given[1]), writer.row(rows, given[2], given[3])
        for kind, offset in writer.pieces(given[5]):
            value, row = writer.load(kind, here, offset), writer.load(kind, there, offset)
            tilted = builder.fmul(value, writer.spread(kind, given[4]))
            above = builder.fcmp_ordered(">", row, writer.zeros(kind))
            writer.store(builder.select(above, value, tilted), here, offset)
        return _nothing(writer)

    return types.void(to, types.int64, rows, types.int64, to.dtype, types.int64), write
