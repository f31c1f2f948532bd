"""Occlusion receiver after receiver in compiled loops, against the passes over blocks of slots that they stand for."""

import importlib.util

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.nn import GCN

import edgewise as ew
from chains import MixedChain, chain_data
from checks import always_spread, assert_same_scores
from edgewise.program import slot_drops
from footprint import Footprint

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="numba is not installed (extra `fast`)"
)


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """However little the work is."""
    monkeypatch.setattr(slot_drops, "_MANY", 1)
    monkeypatch.setattr(slot_drops, "_WORK", 0)
    monkeypatch.setattr("edgewise.program.kernels._WORTH_IT", 0)


def both(model, data, index, level, **options):
    """By the loops, and with their door shut; and whether the loops were used."""
    ask = ew.Question(model.double().eval(), data, index, **options)
    with pytest.MonkeyPatch.context() as patch:
        used = []
        run = slot_drops.SlotDrops.run
        patch.setattr(slot_drops.SlotDrops, "run", lambda *a, **k: used.append(1) or run(*a, **k))
        fast = ask.explain("occlusion", level=level)
        patch.setattr(slot_drops.SlotDrops, "suits", staticmethod(lambda *a: False))
        slow = ask.explain("occlusion", level=level)
    return fast, slow, bool(used)


@given(
    st.lists(st.sampled_from(["gcn", "sage", "sum", "graph"]), min_size=1, max_size=4),
    st.sampled_from([torch.relu, torch.nn.LeakyReLU(0.2), lambda h: h]),
    st.sampled_from(["input", "layer"]),
    st.integers(0, 10**6),
)
def test_the_loops_give_what_blocks_of_slots_give(names, between, level, seed):
    data = chain_data(seed)
    fast, slow, used = both(MixedChain(names, between), data, [3, 0, 3, 5], level)
    assert used
    assert_same_scores(fast, slow)


@given(
    st.sampled_from(["gcn", "sage", "sum", "graph"]),
    st.sampled_from(["input", "layer"]),
    st.integers(1, 40),
    st.sampled_from([2**22, 200, 1]),
    st.integers(0, 10**6),
)
def test_a_receiver_of_many_messages_takes_several_bundles(name, level, degree, numbers, seed):
    """With little room for numbers bundles are of fewer messages, down to one; some messages come twice, one from itself."""
    data = chain_data(seed, nodes=7)
    data.edge_index = torch.cat([data.edge_index, torch.stack([torch.arange(degree) % 7, torch.full((degree,), 2)])], 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slot_drops, "_NUMBERS", numbers)
        fast, slow, used = both(MixedChain([name] * 3, torch.relu), data, [2, 4, 2], level)
    assert used
    assert_same_scores(fast, slow)


@pytest.mark.parametrize("width", [8, 30, 40, 100])
def test_rows_of_any_width(width):
    torch.manual_seed(width)
    model = GCN(5, width, 3, 11).double()
    fast, slow, used = both(model, chain_data(3), range(8), "layer")
    assert used
    assert_same_scores(fast, slow)


@pytest.mark.parametrize("level", ["input", "layer"])
def test_a_node_that_is_asked_about_twice_with_other_classes(level):
    fast, slow, used = both(MixedChain(["gcn", "gcn"], torch.relu), chain_data(1), [3, 3, 2], level, target=[0, 1, 1])
    assert used
    assert_same_scores(fast, slow)


@pytest.mark.parametrize("name", ["gcn", "sage", "sum", "graph"])
def test_several_classes_are_explained_at_once(name):
    fast, slow, used = both(MixedChain([name] * 3, torch.relu), chain_data(5), range(6), "input", target=[0, 1, 2] * 2)
    assert used
    assert_same_scores(fast, slow)


@pytest.mark.parametrize(
    ("names", "between", "options"),
    [
        (["gat", "gcn"], torch.relu, {}),
        (["gcn", "gcn"], torch.tanh, {}),
        (["gcn", "gcn"], torch.relu, {"of": "prob"}),
        (["gcn"] * 7, torch.relu, {}),
    ],
    ids=["attention", "no ReLU", "a probability", "seven layers"],
)
def test_other_questions_take_the_other_way(names, between, options):
    _, _, used = both(MixedChain(names, between), chain_data(0), [0, 1, 2], "input", **options)
    assert not used


def test_several_threads_give_the_same_bits(monkeypatch):
    monkeypatch.setattr(slot_drops, "_RECEIVERS_A_CORE", 2)
    parts = always_spread(monkeypatch, slot_drops)
    ask = ew.Question(MixedChain(["gcn", "sage"], torch.relu).double().eval(), chain_data(4), None)
    one, three = (ask.explain("occlusion", level="layer", threads=n) for n in (1, 3))
    assert min(parts) == 1
    assert max(parts) > 2  # on three
    for a, b in zip(one, three, strict=True):
        assert torch.equal(a.scores, b.scores)
        assert torch.equal(a.self_scores, b.self_scores)


def test_model_and_data_are_left_as_they_were():
    model, data = MixedChain(["gcn", "sage"], torch.relu).double().eval(), chain_data(2)
    before = Footprint(model, data)
    ew.explain(model, data, [0, 1, 2], method="occlusion", level="layer")
    before.assert_unchanged()


def test_what_a_held_question_keeps_is_not_used_for_other_targets():
    model, data = MixedChain(["gcn", "sage"], torch.relu).double().eval(), chain_data(4)
    ask = ew.Question(model, data, [3, 0, 5])
    first = ask.explain("occlusion")
    assert_same_scores(ask.explain("occlusion"), first)
    for index, target in (([5, 3], None), ([3, 0, 5], [1, 0, 0])):
        other = ask.of(index, target=target) if target else ask.of(index)
        assert_same_scores(
            other.explain("occlusion"), ew.explain(model, data, index, method="occlusion", target=target)
        )
    assert_same_scores(ask.explain("occlusion"), first)


def test_a_model_that_changed_is_refused_by_a_question_that_kept_something():
    model, data = MixedChain(["gcn", "gcn"], torch.relu).double().eval(), chain_data(4)
    ask = ew.Question(model, data, [3, 0, 5])
    ask.explain("occlusion")
    with torch.no_grad():
        next(model.parameters()).add_(1)
    with pytest.raises(ew.StaleQuestionError):
        ask.explain("occlusion")
