"""Products of rows in vector registers: with rows, with matrices, and sums of rows with factors.

    dot_rows(a, i, b, j, width)                    a[i, :width] · b[j, :width]
    dot_and_add(a, i, b, j, to, k, factor, width)  the same product, and to[k, :width] += factor * a[i, :width]
    row_product(rows, i, matrix, found, j, add)    found[j] = rows[i] · matrix, or += with `add`
    rows_product(rows, i, step, count, matrix, found, j, add)
        the same for `count` rows: row r begins `step` numbers behind the one before, and what is found as many as the matrix
        has columns
    sum_of_rows(factors, places, begin, end, rows, found, j)
        found[j] = Σ factors[k] · rows[places[k]] over k from begin to end

The columns of `matrix`, of the rows that `sum_of_rows` adds up, and of the row that gets the result, are filled up with zeros
to a multiple of eight. As in `row_vectors.py`, arrays are float32 or float64, and numbers of rows are not checked.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError

from edgewise.program.kernels.row_vectors import BIT, LANES, WORD, Writer, written

_SUMS = 8
"""Vectors of a product that are added up side by side."""
_COLUMNS = 4
"""Vectors of columns that are gone through at once."""


class _Sum:
    """A sum of products of pieces, added up in registers."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.found = cgutils.alloca_once_value(writer.builder, writer.zeros(writer.number), name="sum")
        self.vector = cgutils.alloca_once_value(writer.builder, writer.zeros(writer.vector), name="sums")

    def add(self, a: Any, b: Any) -> None:
        writer, builder = self.writer, self.writer.builder
        if a.type == writer.vector:
            builder.store(writer.plus_product(builder.load(self.vector), a, b), self.vector)
        else:
            builder.store(writer.plus(builder.load(self.found), writer.total(builder.fmul(a, b))), self.found)

    def total(self) -> Any:
        writer, builder = self.writer, self.writer.builder
        return writer.plus(builder.load(self.found), writer.total(builder.load(self.vector)))


@written
def dot_rows(_: Any, a: Any, i: Any, b: Any, j: Any, width: Any) -> Any:
    """a[i, :width] · b[j, :width]."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = Writer(context, builder, a.dtype)
        here, there, found = writer.row(a, given[0], given[1]), writer.row(b, given[2], given[3]), _Sum(writer)
        for kind, offset in writer.pieces(given[4]):
            found.add(writer.load(kind, here, offset), writer.load(kind, there, offset))
        return found.total()

    return a.dtype(a, types.int64, b, types.int64, types.int64), write


@written
def dot_and_add(_: Any, a: Any, i: Any, b: Any, j: Any, to: Any, k: Any, factor: Any, width: Any) -> Any:
    """a[i, :width] · b[j, :width], and to[k, :width] += factor * a[i, :width]."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = Writer(context, builder, a.dtype)
        here, there, found = writer.row(a, given[0], given[1]), writer.row(b, given[2], given[3]), _Sum(writer)
        back = writer.row(to, given[4], given[5])
        for kind, offset in writer.pieces(given[7]):
            row = writer.load(kind, here, offset)
            found.add(row, writer.load(kind, there, offset))
            more = writer.plus_product(writer.load(kind, back, offset), row, writer.spread(kind, given[6]))
            writer.store(more, back, offset)
        return found.total()

    signature = a.dtype(a, types.int64, b, types.int64, to, types.int64, a.dtype, types.int64)
    return signature, write


def _product_block(
    writer: Writer,
    rows: list[Any],
    line: Callable[[Any], Any],
    length: Any,
    to: list[Any],
    offset: Any,
    count: int,
    add: Any,
) -> None:
    """Rows times so many vectors of columns of a matrix, from an offset in bytes on: the sums stay in registers.

    A sum cannot be added to before the last addition is done, which takes four steps of the processor, while it could begin
    two in each. So with few rows every `ways`-th number of a row goes into a sum of its own.
    """
    builder, kind = writer.builder, writer.vector
    ways = 1 << max(_SUMS // (count * len(rows)), 1).bit_length() - 1
    offsets = [builder.add(offset, WORD(place * LANES * writer.size)) for place in range(count)]
    sums = [[[cgutils.alloca_once(builder, kind, name="sum") for _ in offsets] for _ in rows] for _ in range(ways)]
    for way, of_rows in enumerate(sums):
        for some, found in zip(of_rows, to, strict=True):
            for total, place in zip(some, offsets, strict=True):
                here = writer.zeros(kind)
                builder.store(here if way else builder.select(add, writer.load(kind, found, place), here), total)

    def step(index: Any, of_rows: list[list[Any]]) -> None:
        columns, at = line(index), builder.mul(index, WORD(writer.size))
        matrix = [writer.load(kind, columns, place) for place in offsets]
        for row, some in zip(rows, of_rows, strict=True):
            factor = writer.spread(kind, writer.load(writer.number, row, at))
            for total, numbers in zip(some, matrix, strict=True):
                builder.store(writer.plus_product(builder.load(total), factor, numbers), total)

    even = builder.sub(length, builder.urem(length, WORD(ways)))
    with cgutils.for_range_slice(builder, WORD(0), even, WORD(ways), WORD) as (index, _):
        for way, of_rows in enumerate(sums):
            step(builder.add(index, WORD(way)), of_rows)
    if ways > 1:
        with cgutils.for_range_slice(builder, even, length, WORD(1), WORD) as (index, _):
            step(index, sums[0])
    for number, found in enumerate(to):
        for column, place in enumerate(offsets):
            total = builder.load(sums[0][number][column])
            for way in range(1, ways):
                total = writer.plus(total, builder.load(sums[way][number][column]))
            writer.store(total, found, place)


def _product(
    writer: Writer, rows: list[Any], line: Callable[[Any], Any], shape: tuple[Any, Any], to: list[Any], add: Any
) -> None:
    """The numbers of rows times the lines of a table of this shape, added up: as many columns at a time as registers hold."""
    builder, (length, width) = writer.builder, shape

    def block(begin: Any, count: int) -> None:
        offset = builder.mul(begin, WORD(writer.size))
        _product_block(writer, rows, line, length, to, offset, count, add)

    done = builder.and_(width, WORD(-_COLUMNS * LANES))
    with cgutils.for_range_slice(builder, WORD(0), done, WORD(_COLUMNS * LANES), WORD) as (begin, _):
        block(begin, _COLUMNS)
    rest = builder.sub(width, done)
    for count in range(_COLUMNS - 1, 0, -1):
        with builder.if_then(builder.icmp_unsigned("==", rest, WORD(count * LANES))):
            block(done, count)


def _called(writer: Writer, name: str, body: Callable[..., None], given: list[Any]) -> None:
    """Call a function of these words, which `body` writes: once for all places of a loop that call it.

    It is as long as a loop of thirty lines, and the compiler goes over every copy of it several times.
    """
    kind = ir.FunctionType(ir.VoidType(), [value.type for value in given])
    name = f"edgewise_{name}_{8 * writer.size}"
    function = cgutils.get_or_insert_function(writer.builder.module, kind, name)
    if function.is_declaration:
        function.linkage = "linkonce_odr"
        function.attributes.add("noinline")
        inside = writer.within(ir.IRBuilder(function.append_basic_block("entry")))
        body(inside, *function.args)
        inside.builder.ret_void()
    writer.builder.call(function, given)


def _lines(writer: Writer, begin: Any, size: Any) -> Callable[[Any], Any]:
    """The address of each line of a table that begins there, with lines of so many bytes."""
    return lambda k: writer.builder.add(begin, writer.builder.mul(k, size))


def _row_times(writer: Writer, row: Any, table: Any, length: Any, width: Any, to: Any, add: Any) -> None:
    """A row times a table, all by their addresses."""
    line = _lines(writer, table, writer.builder.mul(width, WORD(writer.size)))
    _product(writer, [row], line, (length, width), [to], add)


def _rows_times(
    writer: Writer, row: Any, step: Any, count: Any, table: Any, length: Any, width: Any, to: Any, add: Any
) -> None:
    """Several rows, so many numbers apart, times a table: two at a time."""
    builder, size = writer.builder, WORD(writer.size)
    of_rows, of_table = builder.mul(step, size), builder.mul(width, size)

    def some(first: Any, number: int) -> None:
        numbers = [builder.add(first, WORD(more)) for more in range(number)]
        here, there = (list(map(_lines(writer, *of), numbers)) for of in ((row, of_rows), (to, of_table)))
        _product(writer, here, _lines(writer, table, of_table), (length, width), there, add)

    even = builder.and_(count, WORD(-2))
    with cgutils.for_range_slice(builder, WORD(0), even, WORD(2), WORD) as (first, _):
        some(first, 2)
    with builder.if_then(builder.icmp_unsigned("!=", even, count)):
        some(even, 1)


def _sum_times(writer: Writer, factors: Any, places: Any, count: Any, table: Any, width: Any, to: Any) -> None:
    """Factors times lines of a table at places."""
    builder, line = writer.builder, _lines(writer, table, writer.builder.mul(width, WORD(writer.size)))

    def of_place(k: Any) -> Any:
        return line(writer.load(WORD, places, builder.mul(k, WORD(WORD.width // 8))))

    _product(writer, [factors], of_place, (count, width), [to], BIT(0))


@written
def row_product(_: Any, rows: Any, i: Any, matrix: Any, found: Any, j: Any, add: Any) -> Any:
    """found[j] = rows[i] · matrix `[k, width]`, or with `add` found[j] += that; the width is a multiple of eight."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = Writer(context, builder, rows.dtype)
        row, to = writer.row(rows, given[0], given[1]), writer.row(found, given[3], given[4])
        _called(writer, "row", _row_times, [row, *writer.table(matrix, given[2]), to, given[5]])
        return writer.nothing()

    return types.void(rows, types.int64, matrix, found, types.int64, types.boolean), write


@written
def rows_product(_: Any, rows: Any, i: Any, step: Any, count: Any, matrix: Any, found: Any, j: Any, add: Any) -> Any:
    """found[j + r · width] = rows[i + r · step] · matrix for r below `count`, or with `add` += that."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer = Writer(context, builder, rows.dtype)
        row, to = writer.row(rows, given[0], given[1]), writer.row(found, given[5], given[6])
        _called(writer, "rows", _rows_times, [row, *given[2:4], *writer.table(matrix, given[4]), to, given[7]])
        return writer.nothing()

    word = types.int64
    return types.void(rows, word, word, word, matrix, found, word, types.boolean), write


@written
def sum_of_rows(_: Any, factors: Any, places: Any, begin: Any, end: Any, rows: Any, found: Any, j: Any) -> Any:
    """found[j] = Σ factors[k] · rows[places[k]] over k from begin to end; the width is a multiple of eight."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        writer, (first, end) = Writer(context, builder, rows.dtype), given[2:4]
        numbers, listed = (writer.row(kind, given[at], first) for at, kind in enumerate((factors, places)))
        table, _, width = writer.table(rows, given[4])
        to = writer.row(found, given[5], given[6])
        _called(writer, "sum", _sum_times, [numbers, listed, builder.sub(end, first), table, width, to])
        return writer.nothing()

    if places.dtype.bitwidth != WORD.width:
        raise TypingError(f"Places must be whole numbers of 64 bits, got {places.dtype}. Use numpy.int64.")
    return types.void(factors, places, types.int64, types.int64, rows, found, types.int64), write
