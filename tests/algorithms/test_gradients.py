"""`gradient` is ∂z/∂ω at ω = 1, whatever the model and the graph: compared with central finite differences.

The tolerance 1e-6 is the promise of the library; the differences themselves are good to about 1e-8 (see the oracle).
"""

from functools import cache

import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Data

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
    quietly,
    scores_of,
)

on_every_model = on_pairs(zoo.node_pairs())
on_every_graph_model = pytest.mark.parametrize(("case_name", "graph_name"), zoo.graph_pairs())


@cache
def layer_gradients(case_name, graph_name):
    case, model, data, _ = node_problem(case_name, graph_name)
    return explain_nodes(case, model, data, level="layer")


@cache
def input_gradients(case_name, graph_name):
    case, model, data, _ = node_problem(case_name, graph_name)
    return explain_nodes(case, model, data)


@on_every_model
def test_the_layer_gradient_equals_finite_differences(case_name, graph_name):
    *_, numbers = node_problem(case_name, graph_name)
    expected = oracles.finite_difference_layer_gradient(numbers)
    assert_close(scores_of(layer_gradients(case_name, graph_name)), expected, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@on_every_model
def test_so_it_does_for_other_weights(case_name, graph_name, seed):
    case, model, data, numbers = node_problem(case_name, graph_name, seed)
    found = explain_nodes(case, model, data, level="layer")
    assert_close(scores_of(found), oracles.finite_difference_layer_gradient(numbers), 1e-6)
    assert_own_scores(own_scores_of(found), oracles.finite_difference_layer_gradient(numbers, "self"), case.own, 1e-6)


@on_every_model
def test_the_self_gradient_equals_finite_differences_of_the_own_terms(case_name, graph_name):
    case, *_, numbers = node_problem(case_name, graph_name)
    expected = oracles.finite_difference_layer_gradient(numbers, "self")
    assert_own_scores(own_scores_of(layer_gradients(case_name, graph_name)), expected, case.own, 1e-6)
    assert_shared_own_scores(own_scores_of(input_gradients(case_name, graph_name)), expected.sum(dim=1), case.own, 1e-6)


@on_every_model
def test_the_input_gradient_is_the_sum_of_the_layer_gradients(case_name, graph_name):
    by_layer = scores_of(layer_gradients(case_name, graph_name))
    assert_close(scores_of(input_gradients(case_name, graph_name)), by_layer.sum(dim=1), 1e-9)


@on_every_model
def test_the_value_is_the_output_of_the_predicted_class(case_name, graph_name):
    case, *_, numbers = node_problem(case_name, graph_name)
    found = layer_gradients(case_name, graph_name)
    assert [int(why.target) for why in found] == numbers.target.tolist()
    assert [int(why.index) for why in found] == list(range(len(numbers.target)))
    with torch.no_grad():
        assert_close(torch.tensor([float(why.value) for why in found], dtype=torch.float64), numbers(), 1e-9, "value")
    assert found[0].scores.dtype == torch.float64
    assert len(found[0].scores) == case.layers


_SLOW_HERE = [pytest.param(name, marks=pytest.mark.slow) for name in ("sage_mean", "graph_conv", "transformer")]


@pytest.mark.parametrize("case_name", ["gcn", "gin", "gat", "pna", "cheb", *_SLOW_HERE])
@pytest.mark.parametrize(
    "graph_name", ["directed", "everything", pytest.param("no_in_edges", marks=pytest.mark.slow), "isolated"]
)
@pytest.mark.parametrize(
    "method", ["gradient", "positive_gradient", "occlusion", "integrated_gradients", "gnn_explainer", "full"]
)
def test_an_edge_that_cannot_reach_the_target_scores_exactly_zero(case_name, graph_name, method):
    case, model, data, _ = node_problem(case_name, graph_name)
    settings = {"epochs": 3} if method == "gnn_explainer" else {}
    for level in ("layer", "input"):
        for why in explain_nodes(case, model, data, level=level, method=method, **settings):
            can = oracles.reach(data.edge_index, int(why.index), case.layers)
            can = can if level == "layer" else can.any(dim=0)
            assert (why.scores[~can] == 0).all(), f"{level}, target {why.index}"


@pytest.mark.parametrize(
    "case_name", ["gcn", "sage_sum", "gat", "gcn_against_the_arrows", "layer_norm_of_graphs", "sgc_cached"]
)
@pytest.mark.parametrize("index", [1, 5, 7])
def test_one_target_alone_gets_the_same_gradient(case_name, index):
    case, model, data, _ = node_problem(case_name, "everything")
    with quietly(case):
        why = ew.explain(model, data, index=index, level="layer", **case.arguments)
    assert isinstance(why, ew.Explanation)
    together = layer_gradients(case_name, "everything")[index]
    assert_close(why.scores, together.scores, 1e-9)
    assert_close(why.self_scores, together.self_scores, 1e-9)


@pytest.mark.parametrize("case_name", ["gcn", "binary", "binary_vector", "sage_mean"])
@pytest.mark.parametrize("of", ["logit", "log_prob", "prob"])
@pytest.mark.parametrize("target", [None, 0, 1])
def test_the_gradient_is_that_of_the_number_asked_for(case_name, of, target):
    case, model, data, _ = node_problem(case_name, "directed")
    numbers = oracles.Numbers(model, data, mode=case.mode, of=of, target=target)
    found = ew.explain(model, data, level="layer", of=of, target=target)
    assert_close(scores_of(found), oracles.finite_difference_layer_gradient(numbers), 1e-6)
    assert [int(why.target) for why in found] == numbers.target.tolist()
    with torch.no_grad():
        assert_close(torch.tensor([float(why.value) for why in found], dtype=torch.float64), numbers(), 1e-9, "value")


def test_a_class_can_be_asked_for_each_target():
    _, model, data, _ = node_problem("gcn", "directed")
    classes = [2, 0, 1]
    found = ew.explain(model, data, index=[4, 1, 3], target=classes)
    assert [int(why.target) for why in found] == classes
    for why in found:
        alone = ew.explain(model, data, index=int(why.index), target=int(why.target))
        assert_close(why.scores, alone.scores, 1e-9)
    from_tensor = ew.explain(model, data, index=[4, 1, 3], target=torch.tensor(classes))
    assert_close(scores_of(from_tensor), scores_of(found), 1e-12)


def test_the_reversed_class_of_one_logit_reverses_every_score():
    _, model, data, _ = node_problem("binary", "everything")
    yes, no = (ew.explain(model, data, target=target) for target in (1, 0))
    assert_close(scores_of(no), -scores_of(yes), 1e-12)
    assert scores_of(yes).abs().max() > 1e-3


@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("case_name", ["gcn_cached", "sgc_cached"])
def test_what_a_cached_conv_remembers_changes_nothing(case_name, filled):
    case, _, data, numbers = node_problem(case_name, "everything")
    model = case.build()
    if filled:
        with torch.no_grad():
            model(data.x, data.edge_index)
    found = ew.explain(model, data, level="layer", index=[1, 6])
    expected = oracles.finite_difference_layer_gradient(numbers)[[1, 6]]
    assert_close(scores_of(found), expected, 1e-6)


def test_dropout_is_off_although_the_model_is_in_training_mode():
    _, _, data, _ = node_problem("gcn", "directed")
    model = zoo.randomise(zoo.Chain(zoo.GCNConv(5, 4), zoo.GCNConv(4, 3), norms=[torch.nn.Dropout(0.5)]))
    calm = ew.explain(model, data, level="layer")
    assert_close(scores_of(ew.explain(model.train(), data, level="layer")), scores_of(calm), 0.0)


def test_scores_follow_their_edges_when_columns_and_nodes_are_renamed():
    _, model, data, _ = node_problem("gcn", "directed")
    generator = torch.Generator().manual_seed(3)
    columns = torch.randperm(data.edge_index.shape[1], generator=generator)
    names = torch.randperm(data.num_nodes, generator=generator)
    renamed = zoo.Data(x=data.x[names.argsort()], edge_index=names[data.edge_index][:, columns])
    for index in (1, 4):
        found = ew.explain(model, renamed, index=int(names[index]), level="layer")
        assert_close(found.scores, ew.explain(model, data, index=index, level="layer").scores[:, columns], 1e-9)


# The function of edge weights itself ##################################################################################


@on_pairs([pair for pair in zoo.node_pairs() if zoo.NO not in zoo.BY_NAME[pair[0]].own])
def test_the_score_equals_the_weighted_model_at_any_weights(case_name, graph_name):
    case, model, data, numbers = node_problem(case_name, graph_name)
    index = list(range(data.num_nodes))[::-1][:3]
    with quietly(case):
        score = ew.Score(model, data, index, **case.arguments)
        generator = torch.Generator().manual_seed(1)
        layers, edges, nodes = case.layers, data.edge_index.shape[1], data.num_nodes
        assert score.num_layers == layers
        weight = torch.rand(len(index), layers, edges, generator=generator, dtype=torch.float64) * 1.5
        own = torch.rand(len(index), layers, nodes, generator=generator, dtype=torch.float64) * 1.5
        edge_weight = weight[score.owner, :, score.edge_id].t()
        with torch.no_grad():
            found = score(edge_weight)
            expected = torch.stack([numbers(weight[position])[node] for position, node in enumerate(index)])
        assert_close(found, expected, 1e-9, "score(ω)")
        if zoo.OPEN not in case.own:
            self_weight = own[score.self_owner, :, score.self_node].t()
            with torch.no_grad():
                found = score(edge_weight, self_weight)
                expected = torch.stack([numbers(weight[p], own[p])[node] for p, node in enumerate(index)])
            assert_close(found, expected, 1e-9, "score(ω, s)")


# Graph tasks ##########################################################################################################


@on_every_graph_model
def test_the_gradient_of_a_graph_model_equals_finite_differences(case_name, graph_name):
    case, model, data, numbers = graph_problem(case_name, graph_name)
    by_layer = explain_graph(case, model, data, level="layer")
    assert isinstance(by_layer, ew.Explanation)
    assert_close(by_layer.scores, oracles.finite_difference_layer_gradient(numbers)[0], 1e-6)
    expected = oracles.finite_difference_layer_gradient(numbers, "self")
    assert_own_scores(by_layer.self_scores.unsqueeze(0), expected, case.own, 1e-6)
    by_input = explain_graph(case, model, data)
    assert_close(by_input.scores, by_layer.scores.sum(dim=0), 1e-9)
    assert (int(by_layer.index), int(by_layer.target)) == (0, int(numbers.target[0]))
    assert float(by_layer.value) == pytest.approx(float(numbers().detach()), abs=1e-9)


def test_a_tensor_that_needs_gradients_is_explained_like_any_other():
    _, model, data, _ = node_problem("gcn", "directed")
    watched = data.clone()
    watched.x.requires_grad_()
    assert_close(scores_of(ew.explain(model, watched)), scores_of(input_gradients("gcn", "directed")), 0.0)
    assert watched.x.grad is None


def test_a_column_sorted_edge_index_object_is_explained_like_the_plain_tensor_or_refused():
    # PyG may fuse messages and aggregation on such an object; then no message can be weighted.
    _, model, data, _ = node_problem("graph_conv", "directed")
    order = data.edge_index[1].argsort(stable=True)
    plain = Data(x=data.x, edge_index=data.edge_index[:, order])
    columns = EdgeIndex(plain.edge_index, sparse_size=(7, 7), sort_order="col")
    expected = scores_of(ew.explain(model, plain, level="layer"))
    try:
        found = ew.explain(model, Data(x=data.x, edge_index=columns), level="layer")
    except ew.EdgewiseError as error:
        assert "fused" in str(error) or "EdgeIndex" in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert_close(scores_of(found), expected, 1e-9)
