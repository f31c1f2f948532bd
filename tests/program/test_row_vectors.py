"""Rows in vector registers, against the same arithmetic of numpy, for rows of any width."""

import importlib.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

if importlib.util.find_spec("numba") is None:
    pytest.skip("numba is not installed (extra `fast`)", allow_module_level=True)

from numba import njit
from numba.core.errors import TypingError

from edgewise.program.kernels import row_lanes as lanes
from edgewise.program.kernels import row_products as products
from edgewise.program.kernels import row_vectors as vectors


@njit
def _sums(to, i, rows, j, factor, width):
    vectors.add_scaled(to, i, rows, j, factor, width)


@njit
def _scaled(to, i, rows, j, factor, width):
    vectors.scaled_row(to, i, rows, j, factor, width)


@njit
def _products(to, i, rows, j, width):
    vectors.multiply_row(to, i, rows, j, width)


@njit
def _dot(to, i, rows, j, width):
    return products.dot_rows(to, i, rows, j, width)


@njit
def _gathered(factors, places, begin, end, rows, to, i):
    products.sum_of_rows(factors, places, begin, end, rows, to, i)


@njit
def _through(rows, j, matrix, to, i, add):
    products.row_product(rows, j, matrix, to, i, add)


@njit
def _several(rows, i, step, count, matrix, to, j, add):
    products.rows_product(rows, i, step, count, matrix, to, j, add)


@njit
def _turned(rows, step, to, width):
    lanes.turned_rows(rows, step, to, width)


@njit
def _taken(rows, i, to, j):
    kept = lanes.taken_lanes(rows, i, to, j)
    return kept, lanes.num_bits(kept)


@njit
def _dot_and_add(a, i, b, j, to, k, factor, width):
    return products.dot_and_add(a, i, b, j, to, k, factor, width)


@njit
def _bent(to, i, before, after, j, tilt, width):
    return vectors.bent_row(to, i, before, after, j, tilt, width)


@njit
def _rectified(to, i, tilt, width):
    vectors.rectify_row(to, i, tilt, width)


@njit
def _slope(to, i, rows, j, tilt, width):
    vectors.rectified_slope(to, i, rows, j, tilt, width)


def after(function, table, *args):
    """The table behind a call on a copy of it; only row 2 may have changed, and only its first columns."""
    found = table.copy()
    function(found, 2, *args)
    assert np.array_equal(np.delete(found, 2, 0), np.delete(table, 2, 0))
    return found[2]


@given(st.integers(0, 41), st.integers(0, 3), st.integers(0, 10**6))
def test_every_operation_on_rows_gives_what_numpy_gives(width, spare, seed):
    draw = np.random.default_rng(seed)
    table, rows = draw.normal(size=(4, width + spare)), draw.normal(size=(5, width + spare))
    mine, other, rest = table[2, :width], rows[3, :width], table[2, width:]

    def check(found, expected):
        assert np.allclose(found, np.concatenate([expected, rest]), rtol=1e-12, atol=1e-12)

    check(after(_sums, table, rows, 3, 0.3, width), mine + 0.3 * other)
    check(after(_scaled, table, rows, 3, 0.3, width), 0.3 * other)
    check(after(_products, table, rows, 3, width), mine * other)
    check(after(_rectified, table, 0.2, width), np.maximum(mine, 0.2 * mine))
    check(after(_slope, table, rows, 3, 0.2, width), np.where(other > 0, mine, 0.2 * mine))
    assert np.isclose(_dot(table, 2, rows, 3, width), mine @ other, rtol=1e-12, atol=1e-12)
    more = table.copy()
    assert np.isclose(_dot_and_add(rows, 3, table, 2, more, 2, 0.3, width), mine @ other, rtol=1e-12, atol=1e-12)
    check(more[2], mine + 0.3 * other)


@given(st.integers(1, 9), st.integers(1, 9), st.booleans(), st.integers(0, 10**6))
def test_a_row_times_a_matrix_of_whole_vectors_is_the_product(length, vectors_of_columns, add, seed):
    draw = np.random.default_rng(seed)
    matrix = draw.normal(size=(length, 8 * vectors_of_columns))
    rows, table = draw.normal(size=(3, length)), draw.normal(size=(3, matrix.shape[1]))
    found = table.copy()
    _through(rows, 1, matrix, found, 2, add)
    assert np.allclose(found[2], rows[1] @ matrix + (table[2] if add else 0), rtol=1e-12, atol=1e-12)
    assert np.array_equal(found[:2], table[:2])


@given(st.integers(0, 8), st.integers(1, 9), st.integers(1, 6), st.booleans(), st.integers(0, 10**6))
def test_several_rows_times_a_matrix_are_the_products_of_each(count, length, vectors_of_columns, add, seed):
    draw = np.random.default_rng(seed)
    matrix = draw.normal(size=(length, 8 * vectors_of_columns))
    rows, before = draw.normal(size=(count + 1, length + 2)), draw.normal(size=(count + 2, matrix.shape[1]))
    found = before.reshape(-1).copy()
    _several(rows.reshape(-1), length + 2, length + 2, count, matrix, found, matrix.shape[1], add)
    expected = before.copy()
    expected[1:-1] = rows[1:, :length] @ matrix + (before[1:-1] if add else 0)
    assert np.allclose(found.reshape(before.shape), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [8, 24])
def test_turned_rows_stand_side_by_side(dtype, width):
    rows, found = np.arange(8.0 * (width + 8), dtype=dtype).reshape(8, -1), np.zeros((width, 8), dtype)
    _turned(rows.reshape(-1), width + 8, found.reshape(-1), width)
    assert np.array_equal(found, rows[:, :width].T)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lanes_that_are_taken_leave_zeros_and_say_which_were_none(dtype):
    rows, found = np.array([7, 0, 1, 0, -2, np.nan, 0, 0, 3, 7], dtype), np.full(10, 5, dtype)
    assert _taken(rows, 1, found, 2) == (0b10011010, 4)
    assert np.array_equal(found, np.array([5, 5, 0, 1, 0, -2, np.nan, 0, 0, 3], dtype), equal_nan=True)
    assert rows.tolist() == [7, *[0] * 8, 7]


@given(st.integers(0, 12), st.integers(1, 6), st.integers(0, 10**6))
def test_rows_at_places_are_added_up_with_their_factors(count, vectors_of_columns, seed):
    draw = np.random.default_rng(seed)
    rows, table = draw.normal(size=(5, 8 * vectors_of_columns)), draw.normal(size=(3, 8 * vectors_of_columns))
    factors, places = draw.normal(size=count + 4), draw.integers(0, 5, count + 4)
    found = table.copy()
    _gathered(factors, places, 2, 2 + count, rows, found, 1)
    expected = factors[2 : 2 + count] @ rows[places[2 : 2 + count]]
    assert np.allclose(found[1], expected, rtol=1e-12, atol=1e-12)
    assert np.array_equal(found[[0, 2]], table[[0, 2]])


@pytest.mark.parametrize("width", [1, 4, 8, 13, 21])
def test_a_change_through_a_bend_says_whether_anything_is_left(width):
    before = np.linspace(-1, 1, width).reshape(1, -1)
    bent = np.maximum(before, 0.1 * before)
    for change, left in ((np.zeros((1, width)), False), (np.eye(width)[:1], True), (np.eye(width)[-1:], True)):
        found = change.copy()
        assert _bent(found, 0, before, bent, 0, 0.1, width) is left
        now = before + change
        assert np.allclose(found, np.maximum(now, 0.1 * now) - bent, rtol=1e-12, atol=1e-12)


def test_a_table_whose_rows_are_not_in_one_piece_is_refused_when_the_loop_is_compiled():
    by_columns = np.asfortranarray(np.ones((3, 8)))
    with pytest.raises(TypingError, match="Rows must lie in one piece"):
        _through(np.ones((1, 8)), 0, by_columns, np.zeros((1, 8)), 0, False)
