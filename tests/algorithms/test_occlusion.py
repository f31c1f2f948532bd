"""`occlusion` is z − z with the message at weight 0, in one call (`layer`) or in all of them (`input`).

Both sides are differences of two outputs, each good to about 1e-15 times the model's size: 1e-9 is ample.
"""

import pytest
import torch

import edgewise as ew
import oracles
import zoo
from checks import (
    assert_close,
    assert_own_scores,
    assert_shared_own_scores,
    explain_graph,
    explain_nodes,
    graph_problem,
    node_problem,
    on_pairs,
    own_scores_of,
    scores_of,
)

on_every_model = on_pairs(zoo.node_pairs())


@on_every_model
def test_layer_occlusion_equals_its_definition(case_name, graph_name):
    case, model, data, numbers = node_problem(case_name, graph_name)
    found = explain_nodes(case, model, data, method="occlusion", level="layer")
    assert_close(scores_of(found), oracles.layer_occlusion(numbers), 1e-9)
    assert_own_scores(own_scores_of(found), oracles.layer_occlusion(numbers, "self"), case.own, 1e-9)


@on_every_model
def test_input_occlusion_equals_its_definition(case_name, graph_name):
    case, model, data, numbers = node_problem(case_name, graph_name)
    found = explain_nodes(case, model, data, method="occlusion")
    assert_close(scores_of(found), oracles.input_occlusion(numbers), 1e-9)
    assert_shared_own_scores(own_scores_of(found), oracles.input_occlusion(numbers, "self"), case.own, 1e-9)


@pytest.mark.parametrize(("case_name", "graph_name"), zoo.graph_pairs())
def test_occlusion_of_a_graph_model_equals_its_definition(case_name, graph_name):
    case, model, data, numbers = graph_problem(case_name, graph_name)
    by_layer = explain_graph(case, model, data, method="occlusion", level="layer")
    assert_close(by_layer.scores, oracles.layer_occlusion(numbers)[0], 1e-9)
    assert_own_scores(by_layer.self_scores.unsqueeze(0), oracles.layer_occlusion(numbers, "self"), case.own, 1e-9)
    by_input = explain_graph(case, model, data, method="occlusion")
    assert_close(by_input.scores, oracles.input_occlusion(numbers)[0], 1e-9)


@pytest.mark.parametrize("of", ["log_prob", "prob"])
def test_occlusion_is_that_of_the_number_asked_for(of):
    _, model, data, _ = node_problem("sage_mean", "everything")
    numbers = oracles.Numbers(model, data, of=of, target=2)
    found = ew.explain(model, data, method="occlusion", level="layer", of=of, target=2)
    assert_close(scores_of(found), oracles.layer_occlusion(numbers), 1e-9)


def test_occlusion_is_not_removal():
    # Degrees and softmax change when an edge leaves the graph; they stay when its message is silenced.
    _, model, data, _ = node_problem("gcn", "directed")
    column = 1
    kept = torch.arange(data.edge_index.shape[1]) != column
    receiver = int(data.edge_index[1, column])
    why = ew.explain(model, data, index=receiver, method="occlusion")
    with torch.no_grad():
        removed = model(data.x, data.edge_index[:, kept])[receiver, int(why.target)]
    assert abs(float(why.value) - float(removed) - float(why.scores[column])) > 1e-3


@pytest.mark.parametrize("level", ["input", "layer"])
def test_positive_gradients_are_the_indicator_of_gradients_above_epsilon(level):
    for case_name, graph_name in [("gcn", "everything"), ("sage_mean", "directed"), ("gat", "loops_on_some")]:
        case, model, data, _ = node_problem(case_name, graph_name)
        gradient = scores_of(explain_nodes(case, model, data, level=level))
        found = scores_of(explain_nodes(case, model, data, level=level, method="positive_gradient"))
        assert torch.equal(found, (gradient > 0).to(found.dtype))
        epsilon = float(gradient[gradient > 0].median())
        found = scores_of(explain_nodes(case, model, data, level=level, method="positive_gradient", epsilon=epsilon))
        assert torch.equal(found, (gradient > epsilon).to(found.dtype))
        assert 0 < found.sum() < (gradient > 0).sum()


@pytest.mark.parametrize("case_name", ["gcn", "sage_sum", "gat", "sgc", "gcn_used_twice"])
@pytest.mark.parametrize("graph_name", ["directed", "isolated", "no_in_edges", "no_edges", "loops_on_some"])
def test_full_is_one_on_exactly_the_computation_graph(case_name, graph_name):
    case, model, data, _ = node_problem(case_name, graph_name)
    for why in ew.explain(model, data, method="full", level="layer"):
        expected = oracles.reach(data.edge_index, int(why.index), case.layers)
        assert torch.equal(why.scores, expected.to(why.scores.dtype))
        alone = ew.explain(model, data, index=int(why.index), method="full")
        assert torch.equal(alone.scores, expected.any(dim=0).to(why.scores.dtype))
        assert why.self_scores is None


def test_random_is_uniform_on_every_edge_and_belongs_to_its_target():
    data = zoo.graph(zoo.random_edges(40, 400), 40)
    model = zoo.BY_NAME["sage_mean"].build()
    for level, shape in (("input", (400,)), ("layer", (3, 400))):
        found = ew.explain(model, data, index=[3, 8], method="random", level=level)
        assert all(tuple(why.scores.shape) == shape for why in found)
        draws = scores_of(found)
        assert draws.min() >= 0
        assert draws.max() <= 1
        assert abs(float(draws.double().mean()) - 0.5) < 0.06  # standard error of 800 draws: 0.01
        assert abs(float(draws.double().var()) - 1 / 12) < 0.02
        assert (draws > 0).all()  # also on edges that cannot reach the target
        assert len(draws.unique()) > draws.numel() * 0.9  # neither targets nor layers share their numbers
        assert torch.equal(draws, scores_of(ew.explain(model, data, index=[3, 8], method="random", level=level)))
        assert torch.equal(draws[1], ew.explain(model, data, index=8, method="random", level=level).scores)
        assert not torch.equal(
            draws, scores_of(ew.explain(model, data, index=[3, 8], method="random", level=level, seed=1))
        )
        assert found[0].self_scores is None
