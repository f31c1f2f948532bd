"""Large contents are told apart by sums of their bits, the same on any number of threads and on every device."""

import time

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import edgewise as ew
from edgewise.model.bit_sums import bit_sums

LONG = 3 * 2**20 + 77


def numbers(size=LONG, dtype=torch.float32):
    return torch.randn(size, generator=torch.Generator().manual_seed(0)).to(dtype)


def test_the_number_of_threads_does_not_matter():
    x, before, found = numbers(), torch.get_num_threads(), set()
    try:
        for threads in (1, 2, 3, 16):
            torch.set_num_threads(threads)
            found.add(bit_sums(x))
    finally:
        torch.set_num_threads(before)
    assert len(found) == 1


@pytest.mark.parametrize("size", [0, 1, 2, 1023, 8192, 8193, LONG])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.bool, torch.complex64, torch.uint8]
)
def test_every_size_and_type_has_its_sums_and_copies_have_the_same(size, dtype):
    x = numbers(size, dtype)
    assert bit_sums(x) == bit_sums(x.clone())
    if size > 1:  # the tail must not be read from elsewhere, nor the beginning
        assert bit_sums(x[1:]) == bit_sums(x[1:].clone())
        assert bit_sums(x[1:]) != bit_sums(x)
        assert bit_sums(torch.stack([x, x], dim=1)[:, 0]) == bit_sums(x)


def test_any_single_bit_that_changes_is_seen():
    x = numbers().view(torch.int32)
    before = bit_sums(x)
    for place in (0, 1, 2047, 2048, 2**20 - 1, LONG - 1):
        for bit in range(32):
            x[place] ^= (1 << bit) - (1 << 32 if bit == 31 else 0)
            assert bit_sums(x) != before
            x[place] ^= (1 << bit) - (1 << 32 if bit == 31 else 0)
    assert bit_sums(x) == before


SAME_SIZE = {
    "all signs": lambda x: x.neg(),
    "two signs": lambda x: x.index_copy(0, torch.tensor([4, 8]), -x[[4, 8]]),
    "two rows that change places": lambda x: (
        x.view(-1, 7).index_select(0, torch.tensor([1, 0, *range(2, x.numel() // 7)])).view(-1)
    ),
    "everything backwards": lambda x: x.flip(0),
    "a zero that gets a sign": lambda x: x.index_fill(0, torch.tensor([0]), -0.0),
    "missing": lambda x: x.index_fill(0, torch.tensor([9]), float("nan")),
    "infinite": lambda x: x.index_fill(0, torch.tensor([9]), float("inf")),
    "a number moved from one to another": lambda x: (
        x + torch.zeros_like(x).index_copy(0, torch.tensor([2, 3]), torch.tensor([1.0, -1.0]))
    ),
    "rolled by a row of sums": lambda x: x.roll(2048),
}


def test_changes_that_sums_of_numbers_would_not_see_are_seen():
    x = numbers(7 * 2**17).index_fill(0, torch.tensor([0]), 0.0)
    found = {name: bit_sums(change(x)) for name, change in SAME_SIZE.items()} | {"none": bit_sums(x)}
    assert len(set(found.values())) == len(found)


def test_numbers_that_are_missing_in_another_way_are_another_content():
    bits = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert bool(bits.isnan().all())
    assert bit_sums(bits[:1]) != bit_sums(bits[1:])


def test_pairs_of_changed_signs_never_cancel():
    """The top bits of two words: a sum with odd weights alone misses every such pair."""
    x = numbers(4096, torch.float64)
    found = {bit_sums(x)}
    for other in range(1, 400):
        y = x.clone()
        y[[0, other]] *= -1
        found.add(bit_sums(y))
    assert len(found) == 400


def test_a_gigabyte_takes_less_than_a_second():
    x = numbers(2**24)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        bit_sums(x)
        seconds.append(time.perf_counter() - start)
    assert x.nbytes / min(seconds) > 5e8  # 2.5e9 on a machine that does nothing else


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("size", [0, 5, 8192, LONG])
def test_a_gpu_gives_the_same_sums(size):
    x = numbers(size)
    assert bit_sums(x.cuda()) == bit_sums(x)
    if size:
        assert bit_sums(x.cuda()[1:]) == bit_sums(x[1:])


def test_a_held_question_about_a_large_cut_is_answered_on_any_number_of_threads():
    draw = torch.Generator().manual_seed(0)
    nodes, features = 5000, 900  # more numbers than are copied
    data = Data(
        x=torch.randn(nodes, features, generator=draw), edge_index=torch.randint(0, nodes, (2, 40_000), generator=draw)
    )
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        ask = ew.Question(GCN(features, 8, 3, 3).eval(), data, range(50))
        for threads in (2, 7, 16):
            torch.set_num_threads(threads)
            ask.explain()
    finally:
        torch.set_num_threads(before)
    data.x[int(ask.index[0]), 5] *= -1
    with pytest.raises(ew.StaleQuestionError, match=r"data\.x"):
        ask.explain()
