"""Whatever the budget, the bound holds, and a proof is claimed only where there is one. Memory changes nothing."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import edgewise as ew
from edgewise.errors import InputError, SettingError
from walk_checks import SEARCHES, SIGNS, assert_bound, assert_top, crowded
from walk_models import stack, wide_stack
from walk_oracles import graph_twin, key_of, node_twin

BUDGETS = [1, 2, 4, 6, 9, 13, 20, 30, 50, 100, 1000]
DATA = crowded(9, 30, seed=1)


def network(kind, calls=4, seed=3):
    return stack(kind, calls, seed=seed, act=nn.functional.leaky_relu)


def assert_honest(found, scores, k, sign):
    """What is listed is real; what is not is bounded; the proof is a proof, and is not missing where the bound gives it."""
    assert all(abs(walk.score - scores[walk.nodes]) < 1e-9 for walk in found)
    assert all(key_of(walk.score, sign) > 0 for walk in found)
    assert_bound(found, scores, sign)
    assert found.upper_bound < 1e6
    if found.exact:
        assert_top(found, scores, k, sign)
    elif len(found) == k:
        assert found.upper_bound > key_of(found[-1].score, sign) - 1e-8, "the bound proves the list, exact denies it"


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("kind", ["gcn", "graph_conv", "gin", "gat"])
def test_the_bound_holds_for_every_budget(kind, sign):
    model = network(kind)
    scores = node_twin(model, DATA).walks()
    proven = []
    for budget in BUDGETS:
        found = ew.walks(model, DATA, k=5, sign=sign, budget=budget)
        for one, expected in zip(found, scores, strict=True):
            assert_honest(one, expected, 5, sign)
            assert one.expansions <= max(budget, model.num_calls), "one walk is always followed to its end"
        proven.append(sum(one.exact for one in found))
    assert proven[0] < len(scores)
    assert proven[-1] == len(scores)


class Clock:
    """A second passes whenever somebody looks."""

    def __init__(self):
        self.now = 0

    def perf_counter(self):
        self.now += 1
        return self.now


@pytest.mark.parametrize(("kind", "sign"), [("gcn", "positive"), ("gatv2", "magnitude")])
def test_the_bound_holds_whenever_time_is_over(kind, sign, monkeypatch):
    model = network(kind, 3)
    scores, proven = node_twin(model, DATA).walks(), []
    for seconds in (0.5, 3, 30, 10_000):
        monkeypatch.setattr("edgewise.api.walks.time", Clock())
        found = ew.walks(model, DATA, k=5, sign=sign, seconds=seconds, memory=2000)
        for one, expected in zip(found, scores, strict=True):
            assert_honest(one, expected, 5, sign)
            assert one.settings["seconds"] == seconds
        proven.append(sum(one.exact for one in found))
    assert proven[0] < proven[-1] == len(scores)


def test_enough_time_changes_nothing():
    model = network("graph_conv")
    for one, other in zip(ew.walks(model, DATA, k=5, seconds=1e6), ew.walks(model, DATA, k=5), strict=True):
        assert [(walk.nodes, walk.score) for walk in one] == [(walk.nodes, walk.score) for walk in other]
        assert one.exact


@pytest.mark.parametrize(
    ("seconds", "search"), [(0, "exact"), ("long", "exact"), (float("nan"), "exact"), (1.0, "dag")]
)
def test_a_time_that_cannot_be_kept_is_refused_before_the_model_runs(seconds, search):
    def never(*args):
        raise AssertionError("the model was run")

    with pytest.raises(SettingError, match="seconds"):
        ew.walks(network("gcn"), DATA, seconds=seconds, search=search, forward=never)


@pytest.mark.parametrize("sign", SIGNS)
def test_the_bound_holds_for_whole_graphs(sign):
    model = wide_stack("graph_conv", 3, seed=3, pool="sum", act=nn.functional.leaky_relu)
    (scores,) = graph_twin(model, DATA).walks()
    proven = []
    for budget in BUDGETS:
        (found,) = ew.walks(model, [DATA], task="graph", k=5, sign=sign, budget=budget)
        assert_honest(found, scores, 5, sign)
        assert found.expansions <= max(budget, model.num_calls)
        proven.append(found.exact)
    assert not proven[0]
    assert proven[-1]


@given(
    seed=st.integers(0, 999),
    budget=st.integers(1, 60),
    k=st.sampled_from([1, 3, 10]),
    sign=st.sampled_from(SIGNS),
    kind=st.sampled_from(["gcn", "sage_mean", "gin", "gine", "gatv2"]),
)
def test_the_bound_holds_on_random_graphs(seed, budget, k, sign, kind):
    data, model = crowded(7, 20, seed=seed), network(kind, 3, seed=seed)
    for one, expected in zip(
        ew.walks(model, data, k=k, sign=sign, budget=budget), node_twin(model, data).walks(), strict=True
    ):
        assert_honest(one, expected, k, sign)


def test_more_budget_never_makes_the_list_worse():
    model = network("gin")
    totals = [
        [sum(walk.score for walk in one) for one in ew.walks(model, DATA, k=5, budget=budget)] for budget in BUDGETS
    ]
    for less, more in pairwise(totals):
        assert all(b >= a - 1e-9 for a, b in zip(less, more, strict=True))


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("sign", SIGNS)
def test_every_search_has_a_bound_that_holds(search, sign):
    model = network("graph_conv", 3)
    for one, expected in zip(
        ew.walks(model, DATA, k=3, search=search, sign=sign), node_twin(model, DATA).walks(), strict=True
    ):
        if search == "emp_neu":
            assert all(walk.neurons is not None for walk in one)  # its bound is one of neuron-level walks
            continue
        assert_bound(one, expected, sign)
        assert all(abs(walk.score - expected.get(walk.nodes, 0.0)) < 1e-9 for walk in one)
        assert one.exact == (search in ("exact", "exhaustive"))


def assert_same(plenty, little):
    for one, other in zip(plenty, little, strict=True):
        assert [walk.nodes for walk in one] == [walk.nodes for walk in other]
        assert [walk.score for walk in one] == pytest.approx([walk.score for walk in other], rel=1e-12)
        assert one.exact == other.exact


@pytest.mark.parametrize("search", SEARCHES)
def test_little_memory_gives_the_same_walks(search):
    data, model = crowded(60, 240, seed=5), network("gcn", 3)
    for sign in SIGNS:
        plenty, little = (
            ew.walks(model, data, k=10, search=search, sign=sign, memory=memory) for memory in (None, "1MB")
        )
        assert_same(plenty, little)


def test_little_memory_gives_the_same_walks_of_many_graphs():
    graphs = [crowded(12, 40, seed=seed) for seed in range(12)]
    model = wide_stack("gin", 3, seed=3, pool="mean", act=nn.functional.leaky_relu)
    plenty, little = (ew.walks(model, graphs, task="graph", k=10, memory=memory) for memory in (None, "200KB"))
    assert_same(plenty, little)


def test_exhaustive_refuses_what_it_cannot_finish():
    model = network("gcn", 4)
    with pytest.raises(InputError, match=r"every walk.*`limit` is 100.*search='exact'.*limit="):
        ew.walks(model, DATA, search="exhaustive", limit=100)
    assert ew.walks(model, DATA, 0, search="exhaustive", limit=10_000).exact


def test_few_expansions_are_enough_where_walks_differ():
    """The point of the bounds: a small part of all prefixes."""
    data, model = crowded(60, 240, seed=5), network("gcn", 4)
    searches = (ew.walks(model, data, search=search) for search in ("exact", "exhaustive"))
    found, everything = (sum(one.expansions for one in some) for some in searches)
    assert 4 * found < everything
