"""`degree`: what came through an edge, and the rest, as two streams that add up; a slow twin is in `stream_twin.py`."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

import edgewise as ew
import lift_twin
import stream_twin
import zoo
from checks import assert_close, explain_graph, explain_nodes, graph_problem, node_problem, scores_of
from edgewise.algorithms.degree import degree
from edgewise.program.domains import interpret
from edgewise.program.stream_program import StreamProgram
from footprint import Footprint

BY_HAND = {
    "gcn": (stream_twin.gcn, np.tanh),
    "gcn_relu": (stream_twin.gcn, lift_twin.relu),
    "gin_trained_epsilon": (stream_twin.gin, np.tanh),
    "gat": (stream_twin.gat, np.tanh),
}


def assert_twin(model, data, make, act, level):
    """Every score is the target stream of the twin, whose two streams add up to the model's output."""
    with torch.no_grad():
        output = model(data.x, data.edge_index)
    found = scores_of(ew.explain(model, data, method="degree", level=level))
    target = output.argmax(dim=1)
    rows, layers = torch.arange(data.num_nodes), range(len(model.convs))
    for column in range(data.edge_index.size(1)):
        for layer in layers if level == "layer" else [None]:
            marks = {(one, column) for one in layers if layer in (None, one)}
            mine, rest = (torch.from_numpy(part) for part in stream_twin.streams(data, model, make, act, marks))
            assert_close(mine + rest, output, 1e-10, "the sum of the streams")
            assert_close(found[:, column] if layer is None else found[:, layer, column], mine[rows, target], 1e-9)


@pytest.mark.parametrize("level", ["input", "layer"])
@pytest.mark.parametrize("case_name", BY_HAND)
def test_scores_equal_the_slow_twin(case_name, level):
    _, model, data, _ = node_problem(case_name, "parallel")
    assert_twin(model, data, *BY_HAND[case_name], level)


@given(st.integers(0, 10_000))
def test_on_random_graphs_they_do(seed):
    generator = torch.Generator().manual_seed(seed)
    nodes = int(torch.randint(3, 7, (), generator=generator))
    edges = torch.randint(nodes, (2, int(torch.randint(1, 9, (), generator=generator))), generator=generator)
    x = torch.randn(nodes, zoo.FEATURES, generator=generator).double()
    data = Data(x=x, edge_index=edges[:, edges[0] != edges[1]])
    model = zoo.randomise(zoo.chain(GCNConv, 2, act=torch.relu), seed)
    assert_twin(model, data, stream_twin.gcn, lift_twin.relu, ["input", "layer"][seed % 2])


ADD_UP = ["gine", "gatv2_with_attributes", "gat_residual", "sage_normalised", "layer_norm_of_nodes", "batch_norm"]


@pytest.mark.parametrize("case_name", [*ADD_UP, "residual_linear", "jumping_max", "jumping_cat", "binary_vector"])
def test_the_streams_add_up_to_the_output_and_without_marks_all_is_background(case_name):
    case, model, data, _ = node_problem(case_name, "everything")
    score = ew.Score(model, data, **case.arguments)
    engine = score.stepwise("degree")
    with torch.no_grad():
        for marked in (torch.zeros_like(score.ones()), score.ones(), (torch.rand_like(score.ones()) < 0.5).double()):
            rows = interpret(engine.program.steps, StreamProgram(engine, marked), {})[engine.program.output]
            assert_close(rows.total[: score.num_targets], score.output(score.ones()), 1e-12)
            if marked.any():
                assert rows.target.any()
                assert bool(torch.isfinite(rows.target).all())
            if not marked.any():
                assert rows.target is None or not rows.target.any()


LINEAR = sorted(zoo.LINEAR_CONVS)


@pytest.mark.parametrize("name", LINEAR)
def test_on_linear_networks_without_biases_it_is_occlusion(name):
    model, data = zoo.randomise(zoo.chain(zoo.LINEAR_CONVS[name], 2, act=lambda x: x), 1), zoo.GRAPHS["everything"]()
    for level in ("input", "layer"):
        expected = scores_of(ew.explain(model, data, method="occlusion", level=level))
        assert_close(scores_of(ew.explain(model, data, method="degree", level=level)), expected, 1e-10)


@pytest.mark.parametrize("case_name", ["mean_pool", "sum_pool", "pooled_with_attributes"])
def test_graphs_have_scores_that_do_not_depend_on_their_neighbours_in_a_batch(case_name):
    case, model, data, _ = graph_problem(case_name, "everything")
    alone = explain_graph(case, model, data, method="degree")
    both = ew.explain(model, [data, zoo.GRAPHS["directed"]()], task="graph", method="degree", **case.arguments)
    assert_close(both[0].scores, alone.scores, 1e-10)
    assert alone.scores.any()


def test_a_model_that_takes_one_graph_at_a_time_is_followed_too():
    case, model, data, _ = graph_problem("pooled_without_batch", "everything")
    assert explain_graph(case, model, data, method="degree").scores.any()


@pytest.mark.parametrize("case_name", ["sage_max", "transformer"])
def test_models_without_rules_are_refused_with_another_method(case_name):
    case, model, data, _ = node_problem(case_name, "everything_once")
    with pytest.raises(ew.ModelError, match="occlusion"):
        explain_nodes(case, model, data, method="degree")


def test_probabilities_are_refused():
    _, model, data, _ = node_problem("gcn", "directed")
    with pytest.raises(ew.SettingError, match="Leave `of` out"):
        ew.explain(model, data, 0, method="degree", of="prob")


def test_results_do_not_depend_on_blocks_and_the_model_is_left_alone():
    case, model, data, _ = node_problem("gat", "everything")
    before = Footprint(model, data)
    together = scores_of(explain_nodes(case, model, data, method="degree"))
    alone = scores_of(explain_nodes(case, model, data, method="degree", batch_size=1))
    assert_close(together, alone, 1e-12)
    before.assert_unchanged()


def test_many_turns_in_small_passes_are_the_same(monkeypatch):
    _, model, data, _ = node_problem("gcn", "everything")
    score = ew.Score(model, data)
    expected = degree(score, "layer").edge
    monkeypatch.setattr("edgewise.algorithms.occlusion._PASS", 3 * score.pass_bytes)
    assert_close(degree(score, "layer").edge, expected, 1e-12)
