"""Gradients target after target in compiled loops, against the reverse pass over all targets at once that they stand for."""

import importlib.util

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import edgewise as ew
from chains import MixedChain, chain_data
from checks import always_spread, assert_same_scores
from edgewise.algorithms import gradient as gradients
from edgewise.program import target_gradients
from footprint import Footprint

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="numba is not installed (extra `fast`)"
)


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """However little the work is."""
    monkeypatch.setattr(target_gradients, "_MANY", 1)
    monkeypatch.setattr(target_gradients, "_WORK", 0)
    monkeypatch.setattr("edgewise.program.kernels._WORTH_IT", 0)


def both(model, data, index, level, **options):
    """By the loops, and with their door shut; and whether the loops were used."""
    ask = ew.Question(model.double().eval(), data, index)
    with pytest.MonkeyPatch.context() as patch:
        used = []
        run = target_gradients.TargetGradients.run
        patch.setattr(target_gradients.TargetGradients, "run", lambda *a, **k: used.append(1) or run(*a, **k))
        fast = ask.explain(level=level, **options)
        patch.setattr(gradients, "lowered_gradient", lambda *a, **k: None)
        patch.setattr(target_gradients.TargetGradients, "of", staticmethod(lambda *a: None))
        slow = ask.explain(level=level, **options)
    return fast, slow, bool(used)


@given(
    st.lists(st.sampled_from(["gcn", "sage", "sum", "graph", "gin"]), min_size=1, max_size=4),
    st.sampled_from([torch.relu, torch.tanh, lambda h: h]),
    st.sampled_from(["input", "layer"]),
    st.integers(0, 10**6),
)
def test_the_loops_give_what_the_reverse_pass_gives(names, between, level, seed):
    data = chain_data(seed)
    torch.manual_seed(seed)
    fast, slow, used = both(MixedChain(names, between), data, [3, 0, 3, 7], level)
    assert used
    assert_same_scores(fast, slow)


@pytest.mark.parametrize("level", ["input", "layer"])
def test_of_a_part_of_a_graph_numbers_are_those_of_the_graph(level, monkeypatch):
    monkeypatch.setattr("edgewise.graph.cut.worth_cutting", lambda graph: True)
    monkeypatch.setattr("edgewise.question.node_question.worth_cutting", lambda graph: True, raising=False)
    data = chain_data(5, nodes=60, edges=70)
    torch.manual_seed(5)
    fast, slow, used = both(MixedChain(["gcn", "sage"], torch.relu), data, [41, 7], level)
    assert used
    assert_same_scores(fast, slow)


@pytest.mark.parametrize("options", [{"top": 3}, {"memory": "1KB"}, {"top": 2, "memory": "1KB"}])
def test_the_strongest_entries_and_small_blocks_are_the_same(options):
    torch.manual_seed(1)
    fast, slow, used = both(MixedChain(["sage", "gcn", "graph"], torch.relu), chain_data(1), None, "layer", **options)
    assert used
    assert_same_scores(fast, slow)


def test_graphs_without_edges_and_other_models_take_the_other_way():
    torch.manual_seed(2)
    none = chain_data(2, edges=0)
    assert_same_scores(*both(MixedChain(["gcn", "sage"], torch.relu), none, None, "layer")[:2])
    for names, residual in ((["gat", "gcn"], False), (["gcn", "gcn", "gcn"], True), (["gcn"] * 7, False)):
        fast, slow, used = both(MixedChain(names, torch.relu, residual=residual), chain_data(3), None, "layer")
        assert not used
        assert_same_scores(fast, slow)


@pytest.mark.parametrize("level", ["input", "layer"])
def test_any_number_of_threads_gives_the_same_bits(level, monkeypatch):
    torch.manual_seed(6)
    parts = always_spread(monkeypatch, target_gradients)
    model, data = MixedChain(["sage", "gcn", "graph"], torch.relu).double(), chain_data(6, nodes=40, edges=160)
    before = torch.get_num_threads()
    one, three = (ew.explain(model, data, level=level, threads=threads) for threads in (1, 3))
    assert torch.get_num_threads() == before
    assert parts == [1, 3]
    assert torch.equal(one.edges.score, three.edges.score)
    assert torch.equal(one.edges.place, three.edges.place)
    assert torch.equal(one.own.score, three.own.score)
    with pytest.raises(ew.SettingError, match="threads"):
        ew.explain(model, data, threads=0)


def test_the_loops_leave_no_trace():
    torch.manual_seed(4)
    model, data = MixedChain(["sage", "gcn"], torch.relu).double(), chain_data(4)
    before = Footprint(model, data)
    ew.explain(model, data, level="layer")
    before.assert_unchanged()
