"""Values of growing coalitions in compiled loops, against a run of the program for every coalition."""

import importlib.util

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import edgewise as ew
from chains import MixedChain, chain_data
from checks import assert_close
from edgewise.algorithms import shapley as shapley_values
from edgewise.algorithms.occlusion import Repeated, players
from edgewise.score import Score

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="numba is not installed (extra `fast`)"
)


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """However little the work is."""
    monkeypatch.setattr("edgewise.program.kernels._WORTH_IT", 0)


def block(model, data, nodes, level, **options):
    """The score of some nodes, its players, three orders of them, and how many steps the longest takes."""
    score = Score(model.double().eval(), data, nodes, **options)
    inside = players(score, level)
    orders = shapley_values._Orders(score, inside, 0)
    return score, inside, orders.of(torch.arange(3)), int(orders.count.max())


@given(
    st.lists(st.sampled_from(["gcn", "sage", "sum", "graph"]), min_size=1, max_size=4),
    st.sampled_from([torch.relu, torch.nn.LeakyReLU(0.2), lambda h: h]),
    st.sampled_from(["input", "layer"]),
    st.integers(0, 10**6),
)
def test_every_coalition_has_the_value_of_a_run(names, between, level, seed):
    score, inside, rank, steps = block(MixedChain(names, between), chain_data(seed), [3, 0, 3, 5], level)
    with torch.no_grad():
        loops = score.growing(1)
        assert loops is not None
        found, usual = loops.run(inside, rank, steps), shapley_values._values(Repeated(score, 64), inside, rank, steps)
    assert_close(found, usual, 1e-9)


def test_other_questions_are_run_coalition_by_coalition():
    for names, between, options in (
        (["gat"], torch.relu, {}),
        (["gcn", "gcn"], torch.tanh, {}),
        (["gcn"], torch.relu, {"of": "prob"}),
        (["gcn"] * 7, torch.relu, {}),
    ):
        score, *_ = block(MixedChain(names, between), chain_data(0), [0, 1], "input", **options)
        assert score.growing(1) is None


def test_shapley_values_are_the_same_in_both_ways(monkeypatch):
    model, data = MixedChain(["gcn", "sage"], torch.relu).double().eval(), chain_data(3)
    fast = ew.explain(model, data, [0, 1, 2], method="shapley", samples=7)
    monkeypatch.setattr(Score, "growing", lambda *a: None)
    for one, other in zip(fast, ew.explain(model, data, [0, 1, 2], method="shapley", samples=7), strict=True):
        assert_close(one.scores, other.scores, 1e-9)
        assert_close(one.standard_errors, other.standard_errors, 1e-7)
