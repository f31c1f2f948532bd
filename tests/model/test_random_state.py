"""The global random generators stay where they are, and nobody else's draws are rewound."""

import random
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from edgewise.model.global_state import quiet_run, random_draws_undone
from footprint import global_state

TORCH_DRAWS = {
    "rand": lambda: torch.rand(3),
    "randn": lambda: torch.randn(2, 2),
    "randint": lambda: torch.randint(5, (3,)),
    "randperm": lambda: torch.randperm(4),
    "rand_like": lambda: torch.rand_like(torch.ones(3)),
    "normal": lambda: torch.normal(0.0, 1.0, (3,)),
    "normal_": lambda: torch.ones(3).normal_(),
    "uniform_": lambda: torch.ones(3).uniform_(),
    "exponential_": lambda: torch.ones(3).exponential_(),
    "bernoulli": lambda: torch.bernoulli(torch.full((3,), 0.5)),
    "multinomial": lambda: torch.multinomial(torch.ones(3), 2),
    "poisson": lambda: torch.poisson(torch.ones(3)),
    "dropout": lambda: F.dropout(torch.ones(8), 0.5, training=True),
    "dropout with gradients": lambda: F.dropout(torch.ones(8, requires_grad=True), 0.5, training=True),
    "dropout module": lambda: nn.Dropout(0.5).train()(torch.ones(8)),
    "rrelu": lambda: F.rrelu(-torch.ones(8), training=True),
    "gumbel": lambda: F.gumbel_softmax(torch.ones(4)),
    "attention": lambda: F.scaled_dot_product_attention(*[torch.ones(1, 2, 4)] * 3, dropout_p=0.5),
    "lstm": lambda: nn.LSTM(2, 2, num_layers=2, dropout=0.5),
    "distribution": lambda: torch.distributions.Gamma(torch.ones(2), torch.ones(2)).sample(),
    "init": lambda: nn.init.xavier_uniform_(torch.ones(3, 3)),
}


@pytest.mark.parametrize("name", TORCH_DRAWS)
def test_every_way_to_draw_with_torch_is_seen_and_undone(name):
    torch.manual_seed(1)
    before = global_state()
    TORCH_DRAWS[name]()
    assert global_state() != before, "it draws nothing: the test could not fail"
    torch.manual_seed(1)
    with random_draws_undone() as draws:
        TORCH_DRAWS[name]()
    assert global_state() == before
    assert draws
    assert draws.operations[0].startswith("aten.")


@pytest.mark.parametrize("draw", [random.random, lambda: random.gauss(0, 1), np.random.rand, np.random.standard_normal])
def test_draws_of_python_and_numpy_are_seen_and_undone(draw):
    before = global_state(), random.getstate(), repr(np.random.get_state())
    with random_draws_undone() as draws:
        draw()
    assert (global_state(), random.getstate(), repr(np.random.get_state())) == before
    assert draws.operations in (["random"], ["numpy.random"])


def test_draws_within_the_block_go_on_and_do_not_repeat():
    with random_draws_undone():
        first, second = torch.rand(4), torch.rand(4)
    assert not torch.equal(first, second)
    assert torch.equal(torch.rand(4), first)


def test_a_pass_that_draws_nothing_draws_nothing():
    with random_draws_undone() as draws:
        F.dropout(torch.ones(8), 0.5, training=False)
        torch.ones(3).softmax(0)
        torch.rand(3, generator=torch.Generator())
        torch.empty(3).normal_(generator=torch.Generator())
    assert not draws


def test_another_thread_that_draws_is_not_rewound():
    torch.manual_seed(3)
    expected = torch.rand(6)
    torch.manual_seed(3)
    other = []
    with random_draws_undone() as draws:
        thread = threading.Thread(target=lambda: other.append(torch.rand(3)))
        thread.start()
        thread.join()
        torch.ones(3).relu()
    assert not draws
    assert torch.equal(torch.cat([*other, torch.rand(3)]), expected)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_generators_are_given_back_after_an_exception(error):
    def draw():
        with random_draws_undone():
            torch.rand(3), random.random(), np.random.rand()
            raise error

    before = global_state()
    with pytest.raises(error):
        draw()
    assert global_state() == before
    assert torch._C._len_torch_dispatch_stack() == 0


def test_a_quiet_run_is_repeated_only_if_somebody_drew():
    calls = []
    assert quiet_run(lambda: calls.append(1))[1].operations == []
    assert calls == [1]
    before = global_state()
    result, draws = quiet_run(lambda: (calls.append(1), torch.rand(2))[1])
    assert draws.operations == ["aten.rand.default"]
    assert len(calls) == 3
    assert global_state() == before
    assert torch.equal(result, torch.rand(2))


def test_a_quiet_run_does_not_rewind_another_thread():
    torch.manual_seed(3)
    expected = torch.rand(9)
    torch.manual_seed(3)
    other = []

    def run():
        thread = threading.Thread(target=lambda: other.append(torch.rand(3)))
        thread.start()
        thread.join()

    assert not quiet_run(run)[1]
    assert len(other) == 2
    assert torch.equal(torch.cat([*other, torch.rand(3)]), expected)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_quiet_run_that_fails_is_quiet_too(error):
    def draw():
        torch.rand(3), random.random(), np.random.rand()
        raise error

    before = global_state()
    with pytest.raises(error):
        quiet_run(draw)
    assert global_state() == before
