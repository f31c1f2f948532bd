"""`EdgewiseExplainer` is an algorithm of `torch_geometric.explain.Explainer` like PyG's own."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, ExplainerAlgorithm, fidelity

import edgewise as ew
import zoo
from checks import METHODS, assert_close, node_problem
from edgewise.adapters.to_pyg import EdgewiseExplainer

SETTINGS = {"gnn_explainer": {"epochs": 3}, "integrated_gradients": {"steps": 3}}
IN_UNIT = ("gnn_explainer", "gnn_explainer_fast", "positive_gradient", "full", "random")
PYG_MODE = {"multiclass": "multiclass_classification", "binary": "binary_classification", "regression": "regression"}


def explainer(
    model, method="gradient", *, mode="multiclass", task="node", kind="model", returns="raw", level="input", **settings
):
    return Explainer(
        model,
        EdgewiseExplainer(method, level=level, **settings),
        explanation_type=kind,
        edge_mask_type="object",
        model_config={"mode": PYG_MODE[mode], "task_level": task, "return_type": returns},
    )


def test_it_is_an_algorithm_of_pyg():
    assert isinstance(EdgewiseExplainer("gradient"), ExplainerAlgorithm)


@pytest.mark.parametrize("method", METHODS)
def test_the_edge_mask_is_our_score(method):
    _, model, data, _ = node_problem("gcn", "everything")
    found = explainer(model, method, **SETTINGS.get(method, {}))(data.x, data.edge_index, index=4)
    expected = ew.explain(model, data, index=4, method=method, **SETTINGS.get(method, {}))
    assert_close(found.edge_mask, expected.scores, 1e-12)
    assert "layer_edge_mask" not in found


@pytest.mark.parametrize("method", METHODS)
def test_at_the_layer_level_it_is_the_sum_over_the_layers_or_the_largest_of_masks(method):
    _, model, data, _ = node_problem("gcn", "everything")
    found = explainer(model, method, level="layer", **SETTINGS.get(method, {}))(data.x, data.edge_index, index=4)
    expected = ew.explain(model, data, index=4, method=method, level="layer", **SETTINGS.get(method, {}))
    assert_close(found.layer_edge_mask, expected.scores.t(), 1e-12)
    together = expected.scores.amax(dim=0) if method in IN_UNIT else expected.scores.sum(dim=0)
    assert_close(found.edge_mask, together, 1e-12)


@pytest.mark.parametrize("index", [4, torch.tensor([4]), torch.tensor(4)])
def test_an_index_may_be_a_number_or_a_tensor(index):
    _, model, data, _ = node_problem("gcn", "directed")
    found = explainer(model)(data.x, data.edge_index, index=index)
    assert_close(found.edge_mask, ew.explain(model, data, index=4).scores, 1e-12)


@pytest.mark.parametrize("case_name", ["gcn", "binary", "regression", "gine"])
def test_every_mode_explains_what_explain_explains(case_name):
    case, model, data, _ = node_problem(case_name, "directed")
    extras = {"edge_attr": data.edge_attr} if case_name == "gine" else {}
    for index in (0, 1, 4):
        found = explainer(model, mode=case.mode)(data.x, data.edge_index, index=index, **extras)
        assert_close(found.edge_mask, ew.explain(model, data, index=index, **case.arguments).scores, 1e-12)


def test_edge_attributes_reach_the_model_by_name():
    _, model, data, _ = node_problem("basic_gat", "directed")
    found = explainer(model)(data.x, data.edge_index, index=1, edge_attr=data.edge_attr)
    assert_close(found.edge_mask, ew.explain(model, data, index=1).scores, 1e-12)
    without = ew.explain(model, Data(x=data.x, edge_index=data.edge_index), index=1)
    assert (found.edge_mask - without.scores).abs().max() > 1e-4


def test_a_phenomenon_explains_the_class_that_is_given():
    _, model, data, _ = node_problem("gcn", "directed")
    labels = torch.tensor([2, 0, 1, 1, 0, 2, 0])
    inside = explainer(model, kind="phenomenon")
    for index in range(7):
        found = inside(data.x, data.edge_index, target=labels, index=index)
        assert_close(found.edge_mask, ew.explain(model, data, index=index, target=int(labels[index])).scores, 1e-12)


@pytest.mark.parametrize("label", [0, 1])
def test_a_phenomenon_of_one_logit_has_the_sign_of_its_label(label):
    _, model, data, _ = node_problem("binary", "directed")
    found = explainer(model, mode="binary", kind="phenomenon")(
        data.x, data.edge_index, target=torch.full((7,), label), index=4
    )
    expected = ew.explain(model, data, index=4, target=1).scores
    assert_close(found.edge_mask, expected if label else -expected, 1e-12)


@pytest.mark.parametrize("case_name", ["mean_pool", "pooled_binary", "pooled_regression", "pooled_with_attributes"])
@pytest.mark.parametrize("level", ["input", "layer"])
def test_graphs_are_explained_too(case_name, level):
    case, data = zoo.GRAPH_BY_NAME[case_name], zoo.GRAPHS["everything"]()
    model = case.build()
    extras = {"batch": torch.zeros(data.num_nodes, dtype=torch.long)}
    if case_name == "pooled_with_attributes":
        extras["edge_attr"] = data.edge_attr
    found = explainer(model, mode=case.mode, task="graph", level=level)(data.x, data.edge_index, **extras)
    expected = ew.explain(model, data, task="graph", level=level, **case.arguments).scores
    assert_close(found.edge_mask, expected if level == "input" else expected.sum(dim=0), 1e-12)


@pytest.mark.parametrize("label", [0, 1, 2])
def test_a_phenomenon_of_a_graph_explains_the_class_that_is_given(label):
    case, data = zoo.GRAPH_BY_NAME["mean_pool"], zoo.GRAPHS["directed"]()
    model = case.build()
    batch = torch.zeros(data.num_nodes, dtype=torch.long)
    found = explainer(model, task="graph", kind="phenomenon")(
        data.x, data.edge_index, target=torch.tensor([label]), batch=batch
    )
    assert_close(found.edge_mask, ew.explain(model, data, task="graph", target=label).scores, 1e-12)


@pytest.mark.parametrize(("returns", "squash"), [("probs", torch.softmax), ("log_probs", torch.log_softmax)])
def test_a_model_that_returns_probabilities_is_explained_by_what_it_returns(returns, squash):
    class Squashed(zoo.Chain):
        def forward(self, x, edge_index):
            return squash(super().forward(x, edge_index), dim=-1)

    _, plain, data, _ = node_problem("gcn", "directed")
    model = Squashed(*plain.convs)
    found = explainer(model, returns=returns)(data.x, data.edge_index, index=4)
    expected = ew.explain(plain, data, index=4, of="prob" if returns == "probs" else "log_prob").scores
    assert_close(found.edge_mask, expected, 1e-9)


def test_pyg_can_slice_list_and_measure_the_result():
    _, model, data, _ = node_problem("gcn", "directed")
    inside = explainer(model, "gnn_explainer", level="layer", epochs=3)
    found = inside(data.x, data.edge_index, index=4)
    assert {"edge_mask", "layer_edge_mask"} <= set(found.available_explanations)
    part = found.get_explanation_subgraph()
    kept = int((found.edge_mask > 0).sum())
    assert part.edge_index.shape[1] == kept == part.layer_edge_mask.shape[0]
    positive, negative = fidelity(inside, found)
    assert 0 <= positive <= 1
    assert 0 <= negative <= 1


def test_the_model_is_left_in_the_mode_it_was_in():
    model, data = zoo.BY_NAME["gcn"].build(), zoo.GRAPHS["directed"]()
    keys = {name: set(vars(module)) for name, module in model.named_modules()}
    explainer(model)(data.x, data.edge_index, index=1)
    assert {name: set(vars(module)) for name, module in model.named_modules()} == keys
    assert not model.training


@pytest.mark.parametrize(
    "arguments",
    [
        {"method": "guess"},
        {"method": "gradient", "level": "edge"},
        {"method": "gradient", "epochs": 3},
        {"features": "shap"},
        {"scale": "percent"},
    ],
)
def test_a_typing_error_fails_when_the_algorithm_is_made(arguments):
    with pytest.raises(ew.EdgewiseError):
        EdgewiseExplainer(**arguments)
