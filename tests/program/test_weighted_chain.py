"""Gradients by edge weights in compiled loops, against autograd through the program that they stand for."""

import importlib.util

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import edgewise as ew
from chains import MixedChain, chain_data
from checks import assert_close, assert_same_scores
from edgewise.algorithms.gnn_explainer import loss_gradient
from edgewise.algorithms.gradient import weight_gradients
from edgewise.program import weighted_chain

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="numba is not installed (extra `fast`)"
)


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """However little the work is."""
    monkeypatch.setattr(weighted_chain, "_WORK", 0)
    monkeypatch.setattr("edgewise.program.kernels._WORTH_IT", 0)


@given(
    st.lists(st.sampled_from(["gcn", "sage", "sum", "graph", "gin"]), min_size=1, max_size=4),
    st.sampled_from([torch.relu, torch.nn.LeakyReLU(0.2), lambda h: h]),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_the_loops_give_the_gradients_of_autograd_at_any_weights(names, between, by_layer, seed):
    torch.manual_seed(seed)
    score = ew.Score(MixedChain(names, between).double().eval(), chain_data(seed), [3, 0, 3, 7])
    mask = torch.rand(score.num_layers if by_layer else 1, len(score.edge_id), dtype=torch.double)
    chain = score.weighted_chain(1)
    assert chain is not None
    expected = loss_gradient(score, mask)
    assert_close(loss_gradient(score, mask, chain), expected, 1e-9)
    assert_close(loss_gradient(score, mask, chain), expected, 1e-9)  # nothing is left of the first time


@given(
    st.lists(st.sampled_from(["gcn", "sage", "sum", "graph", "gin"]), min_size=1, max_size=4),
    st.sampled_from([torch.relu, torch.nn.LeakyReLU(0.2), lambda h: h]),
    st.integers(0, 10**6),
)
def test_the_loops_give_the_gradients_of_own_terms_too(names, between, seed):
    torch.manual_seed(seed)
    score = ew.Score(MixedChain(names, between).double().eval(), chain_data(seed), [3, 0, 3, 7])
    weight = torch.rand(score.num_layers, len(score.edge_id), dtype=torch.double)
    chain = score.weighted_chain(1)
    assert chain is not None
    for found, expected in zip(
        chain.both_gradients(weight, score.target.slope),
        weight_gradients(score, weight, score.self_ones()),
        strict=True,
    ):
        assert_close(found, expected, 1e-9)


@pytest.mark.parametrize("level", ["input", "layer"])
@pytest.mark.parametrize("of", ["logit", "prob"])
def test_integrated_gradients_by_the_loops_are_those_of_autograd(level, of, monkeypatch):
    torch.manual_seed(0)
    model, data = MixedChain(["gcn", "sage", "gin"], torch.relu).double().eval(), chain_data(2)
    options = {"index": [1, 4, 5], "method": "integrated_gradients", "level": level, "of": of}
    fast = ew.explain(model, data, **options)
    monkeypatch.setattr(weighted_chain.WeightedChain, "of", staticmethod(lambda *a: None))
    assert_same_scores(fast, ew.explain(model, data, **options))


@pytest.mark.parametrize("level", ["input", "layer"])
@pytest.mark.parametrize("mode", ["multiclass", "regression"])
def test_masks_trained_by_the_loops_are_those_of_autograd(level, mode, monkeypatch):
    torch.manual_seed(0)
    model, data = MixedChain(["gcn", "sage"], torch.relu).double().eval(), chain_data(2)
    options = {"index": [1, 4, 5], "method": "gnn_explainer", "epochs": 20, "level": level, "mode": mode, "target": 1}
    used = []
    run = weighted_chain.WeightedChain.gradients
    monkeypatch.setattr(weighted_chain.WeightedChain, "gradients", lambda *a: used.append(1) or run(*a))
    fast = ew.explain(model, data, **options)
    assert len(used) == 20
    monkeypatch.setattr(weighted_chain.WeightedChain, "of", staticmethod(lambda *a: None))
    assert_same_scores(fast, ew.explain(model, data, **options))


def test_a_chain_with_another_function_between_its_layers_is_left_to_autograd():
    score = ew.Score(MixedChain(["gcn", "gcn"], torch.tanh).double().eval(), chain_data(1), [1, 2])
    assert score.weighted_chain(1) is None


def test_little_work_is_left_to_autograd(monkeypatch):
    monkeypatch.setattr(weighted_chain, "_WORK", 10**6)
    score = ew.Score(MixedChain(["gcn", "gcn"], torch.relu).double().eval(), chain_data(1), [1, 2])
    assert score.weighted_chain(10) is None
    assert score.weighted_chain(10**6) is not None
