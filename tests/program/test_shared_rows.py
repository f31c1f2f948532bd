"""Values of coalitions that share rows, against a run of the program for every coalition."""

import importlib.util

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool

import edgewise as ew
from chains import MixedChain, chain_data
from checks import assert_close, graph_problem, node_problem
from edgewise.algorithms.coalitions import CoalitionValues, distinct
from edgewise.program import shared_rows
from edgewise.score import Score

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="numba is not installed (extra `fast`)"
)


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """However little the work is."""
    monkeypatch.setattr("edgewise.program.kernels._WORTH_IT", 0)


class Pooled(nn.Module):
    """A chain, a ReLU, a readout of all nodes, and a linear map."""

    def __init__(self, names, pool):
        super().__init__()
        self.chain, self.pool, self.head = MixedChain(names, torch.relu), pool, nn.Linear(3, 2)

    def forward(self, x, edge_index, batch):
        return self.head(self.pool(self.chain(x, edge_index).relu(), batch))


def drawn(score, count=60):
    """Coalitions of all sizes, with some twice."""
    share = torch.rand(count, 1)
    on = torch.rand(count, len(score.edge_id)) < share
    return torch.cat([on, on[:5]])


def assert_like_runs(score, on, shared=None):
    shared = score.shared_rows(1) if shared is None else shared
    assert shared is not None
    with torch.no_grad():
        usual = torch.cat([score(one.double().expand(score.num_layers, -1)) for one in on])
        assert_close(shared.values(on), usual, 1e-10)


@given(
    st.lists(st.sampled_from(["gcn", "sage", "sum", "graph", "gin", "sgc"]), min_size=1, max_size=3),
    st.sampled_from([torch.relu, torch.tanh, lambda h: h]),
    st.booleans(),
    st.sampled_from(["logit", "prob"]),
    st.integers(0, 10**6),
)
def test_every_coalition_of_a_node_has_the_value_of_a_run(names, between, residual, of, seed):
    model = MixedChain(names, between, residual=residual).double().eval()
    score = Score(model, chain_data(seed), [3], of=of)
    assert_like_runs(score, drawn(score))


@given(
    st.lists(st.sampled_from(["gcn", "sage", "sum", "graph", "gin"]), min_size=1, max_size=3),
    st.sampled_from([global_add_pool, global_mean_pool]),
    st.integers(0, 10**6),
)
def test_so_has_every_coalition_of_a_graph(names, pool, seed):
    score = Score(Pooled(names, pool).double().eval(), chain_data(seed), task="graph")
    assert_like_runs(score, drawn(score))


@pytest.mark.parametrize("name", ["residual", "residual_after", "long_skip", "jumping_cat", "batch_norm", "binary"])
@pytest.mark.parametrize("graph", ["parallel", "everything"])
def test_values_of_earlier_calls_are_read_where_they_belong(name, graph):
    case, model, data, _ = node_problem(name, graph)
    torch.manual_seed(0)
    score = Score(model, data, [1], **case.arguments)
    assert_like_runs(score, drawn(score))


def test_rows_are_kept_from_one_question_to_the_next(monkeypatch):
    torch.manual_seed(0)
    score = Score(Pooled(["gcn", "gin", "sage"], global_add_pool).double().eval(), chain_data(1, 12, 40), task="graph")
    shared = score.shared_rows(1)
    for _ in range(3):
        assert_like_runs(score, drawn(score), shared)
    monkeypatch.setattr(shared_rows, "_AT_ONCE", 100)  # two coalitions at a time
    assert_like_runs(score, drawn(score), shared)
    monkeypatch.setattr(shared_rows, "_KEPT", 0)  # and nothing is kept
    assert_like_runs(score, drawn(score), shared)


def test_a_table_that_is_full_becomes_larger(monkeypatch):
    monkeypatch.setattr(shared_rows, "_FIRST", 64)
    torch.manual_seed(0)
    score = Score(MixedChain(["gcn"] * 3, torch.relu).double().eval(), chain_data(2, 8, 30), [0])
    shared = score.shared_rows(1)
    assert_like_runs(score, drawn(score), shared)
    assert len(shared._table) > 64


def test_other_models_are_run_coalition_by_coalition():
    data = chain_data(0)
    for model, options in (
        (MixedChain(["gat", "gcn"], torch.relu), {"index": [0]}),
        (Pooled(["gcn"], global_max_pool), {"task": "graph"}),
        (MixedChain(["gcn"], torch.relu), {"index": [0, 1]}),
    ):
        assert Score(model.double().eval(), data, **options).shared_rows(1) is None


def test_both_ways_give_the_same_subgraph(monkeypatch):
    _, model, data, _ = graph_problem("sum_pool", "everything")
    fast = ew.subgraph_x(model, data, task="graph", max_nodes=3)
    monkeypatch.setattr(Score, "shared_rows", lambda *a: None)
    slow = ew.subgraph_x(model, data, task="graph", max_nodes=3)
    assert (fast.nodes.tolist(), fast.evaluations) == (slow.nodes.tolist(), slow.evaluations)
    assert fast.shapley == pytest.approx(slow.shapley, abs=1e-9)


@given(st.integers(0, 9), st.integers(0, 70), st.integers(0, 10**6))
def test_equal_rows_are_found_in_both_ways(count, width, seed):
    torch.manual_seed(seed)
    rows = (torch.rand(count, width) < 0.5)[torch.randint(0, max(count, 1), (3 * count,))]
    for worth_it in (0, 10**9):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("edgewise.program.kernels._WORTH_IT", worth_it)
            different, place = distinct(rows)
        assert torch.equal(different[place], rows)
        assert len(different) == len({tuple(row) for row in rows.tolist()})


def test_what_is_asked_and_what_is_run_are_counted():
    score = Score(MixedChain(["gcn"], torch.relu).double().eval(), chain_data(0), [3])
    coalitions = CoalitionValues(score)
    on = torch.zeros(4, len(score.edge_id), dtype=torch.bool)
    on[0] = True
    coalitions.values(on)
    assert (coalitions.asked, coalitions.run) == (4, 2)
