"""Draws of a block come from a generator of its own, number by number as from torch's own."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from edgewise.own_draws import OwnDraws

DRAWS = {
    "rand": lambda: torch.rand(3),
    "rand of a type": lambda: torch.rand(3, dtype=torch.float64),
    "randn": lambda: torch.randn(20, 2),
    "randint": lambda: torch.randint(5, (3,)),
    "randint between": lambda: torch.randint(2, 5, (3,)),
    "randperm": lambda: torch.randperm(40),
    "rand_like": lambda: torch.rand_like(torch.ones(3)),
    "randn_like": lambda: torch.randn_like(torch.ones(3, dtype=torch.float64)),
    "randint_like": lambda: torch.randint_like(torch.ones(3), 7),
    "randint_like between": lambda: torch.randint_like(torch.ones(3), 2, 7),
    "normal": lambda: torch.normal(0.0, 1.0, (3,)),
    "normal of tensors": lambda: torch.normal(torch.zeros(3), torch.ones(3)),
    "normal_": lambda: torch.ones(3).normal_(),
    "exponential_": lambda: torch.ones(3).exponential_(),
    "bernoulli": lambda: torch.bernoulli(torch.full((3,), 0.5)),
    "multinomial": lambda: torch.multinomial(torch.ones(3), 2),
    "poisson": lambda: torch.poisson(torch.ones(3)),
    "dropout": lambda: F.dropout(torch.ones(8), 0.5, training=True),
    "dropout with gradients": lambda: F.dropout(torch.ones(8, requires_grad=True), 0.5, training=True),
    "init": lambda: nn.init.xavier_uniform_(torch.ones(3, 3)),
    "linear": lambda: nn.Linear(3, 2).weight,
    "distribution": lambda: torch.distributions.Normal(torch.zeros(2), torch.ones(2)).sample(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_the_numbers_are_those_of_torch_and_the_global_generator_does_not_move(name):
    draw = DRAWS[name]
    torch.manual_seed(5)
    expected = [draw(), draw()]
    before = torch.get_rng_state()
    with OwnDraws(5):
        found = [draw(), draw()]
    assert all(map(torch.equal, found, expected))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_that_is_given_is_taken():
    with OwnDraws(5):
        found = torch.rand(3, generator=torch.Generator().manual_seed(1))
    assert torch.equal(found, torch.rand(3, generator=torch.Generator().manual_seed(1)))


def test_python_and_numpy_are_left_alone():
    before = random.getstate(), repr(np.random.get_state())
    with OwnDraws(5):
        torch.rand(3)
    assert (random.getstate(), repr(np.random.get_state())) == before
