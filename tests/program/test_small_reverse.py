"""The reverse pass in numpy for one small neighbourhood, against the one in torch that it stands for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import edgewise as ew
from chains import MixedChain, chain_data
from checks import assert_close
from edgewise.program.reverse import ReversePass
from edgewise.program.small_reverse import is_small, small_gradients


def engine_of(model, data, node):
    posed = ew.Question(model.double().eval(), data, node)._posed
    return posed.engine(torch.tensor([0])), posed.target


def both(engine, target):
    known = (engine.program, engine.levels, engine.prepared, engine.known, engine.slopes)
    with torch.no_grad():
        return small_gradients(*known, target.slope), ReversePass(*known).run(target.slope)


@given(
    st.lists(st.sampled_from(["gcn", "sage", "sum", "graph", "gin"]), min_size=1, max_size=3),
    st.sampled_from([nn.ReLU(), nn.Tanh(), nn.LeakyReLU(0.2), nn.Identity()]),
    st.integers(0, 10**6),
    st.integers(0, 7),
)
def test_both_passes_give_the_same_gradients_of_edges_and_own_terms(names, between, seed, node):
    data = chain_data(seed)
    engine, target = engine_of(MixedChain(names, between), data, node)
    if is_small(engine.program, engine.levels, engine.known, engine.slopes):
        for small, usual in zip(*both(engine, target), strict=True):
            assert_close(small, usual, 1e-9)
    else:  # a network inside a GIN is no element-wise function
        assert "gin" in names


def test_chains_of_affine_layers_take_it():
    for names in (["gcn", "gcn"], ["sage", "graph", "sum"]):
        engine, _ = engine_of(MixedChain(names, nn.ReLU()), chain_data(0), 1)
        assert is_small(engine.program, engine.levels, engine.known, engine.slopes), names


@pytest.mark.parametrize(
    ("names", "residual"),
    [(["gat", "gcn"], False), (["gcn", "gcn", "gcn"], True)],
    ids=["attention", "a value read twice"],
)
def test_other_programs_do_not(names, residual):
    engine, _ = engine_of(MixedChain(names, nn.Tanh(), residual=residual), chain_data(0), 1)
    assert not is_small(engine.program, engine.levels, engine.known, engine.slopes)


def test_large_neighbourhoods_do_not():
    engine, _ = engine_of(MixedChain(["gcn"] * 4, nn.ReLU()), chain_data(0, nodes=5000, edges=100_000), 1)
    assert not is_small(engine.program, engine.levels, engine.known, engine.slopes)
