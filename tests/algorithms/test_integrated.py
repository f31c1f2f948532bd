"""`integrated_gradients` is ∫₀¹ ∂z/∂ω dt at ω = t·1 (all messages together from 0 to 1, self terms on) with 50 steps.

The rule is the library's choice, so it is compared with a fine midpoint sum. With 50 steps the midpoint rule is off by
f''/(24·50²), Gauss and trapezoid are of that order or better, a one-sided Riemann sum is off by (f(1) − f(0))/100. On
smooth models 2e-3 of the largest score tells them apart. The self terms stay on, so their weight does not move.
"""

from functools import cache

import pytest
import torch

import edgewise as ew
import oracles
from checks import (
    assert_close,
    explain_graph,
    explain_nodes,
    graph_problem,
    node_problem,
    one_in,
    own_scores_of,
    scores_of,
)

SMOOTH = ["gcn", "sage_mean", "gin", "graph_conv_with_weights", "transformer", "sgc", "cheb", "residual", "jumping_cat"]
SMOOTH += ["batch_norm", "layer_norm_of_nodes", "layer_norm_of_graphs", "binary", "regression"]
# A ReLU in the messages or a leaky one in the attention puts a kink on the path: any rule loses an order there.
KINKED = ["gat", "gatv2_with_attributes", "takes_data"]
RULE = {**dict.fromkeys(SMOOTH, 2e-3), **dict.fromkeys(KINKED, 1e-2)}
on_every_case = pytest.mark.parametrize("case_name", RULE)


@cache
def fine_sum(case_name, graph_name):
    *_, numbers = node_problem(case_name, graph_name)
    return oracles.integrated_gradients(numbers, steps=150)


def relative(found, expected):
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("case_name", one_in(2, RULE))
def test_integrated_gradients_equal_a_fine_sum_along_the_path(case_name):
    case, model, data, _ = node_problem(case_name, "everything")
    expected, _ = fine_sum(case_name, "everything")
    found = scores_of(explain_nodes(case, model, data, method="integrated_gradients", level="layer"))
    assert found.shape == expected.shape
    assert relative(found, expected) < RULE[case_name]


@on_every_case
def test_at_the_input_level_they_are_the_sum_over_the_layers(case_name):
    case, model, data, _ = node_problem(case_name, "everything")
    by_layer = scores_of(explain_nodes(case, model, data, method="integrated_gradients", level="layer"))
    by_input = scores_of(explain_nodes(case, model, data, method="integrated_gradients"))
    assert_close(by_input, by_layer.sum(dim=1), 1e-9)


@on_every_case
def test_they_sum_to_what_all_messages_together_change(case_name):
    case, model, data, numbers = node_problem(case_name, "everything")
    edge, own = numbers.ones()
    with torch.no_grad():
        change = numbers(edge, own) - numbers(torch.zeros_like(edge), own)
    found = scores_of(explain_nodes(case, model, data, method="integrated_gradients"))
    assert float((found.sum(dim=1) - change).abs().max()) < RULE[case_name] * float(change.abs().max())


@pytest.mark.parametrize("case_name", ["gcn", "sage_mean", "gin", "gat"])
def test_self_terms_are_on_along_the_path(case_name):
    # Their weight does not move, so either they have no share or the mean of their gradient along the path.
    case, model, data, _ = node_problem(case_name, "everything")
    _, mean = fine_sum(case_name, "everything")
    found = own_scores_of(explain_nodes(case, model, data, method="integrated_gradients", level="layer"))
    assert found.shape == mean.shape
    assert bool((found == 0).all()) or relative(found, mean) < RULE[case_name]


def test_more_steps_come_closer():
    case, model, data, _ = node_problem("gcn", "everything")
    expected, _ = fine_sum("gcn", "everything")
    errors = [
        relative(
            scores_of(explain_nodes(case, model, data, method="integrated_gradients", level="layer", steps=steps)),
            expected,
        )
        for steps in (2, 10, 50)
    ]
    assert errors[0] > 4 * errors[1]
    assert errors[2] <= max(errors[1], 1e-5)  # the fine sum itself is off by some 1e-6


def test_on_a_graph_without_edges_there_is_nothing_to_integrate():
    _, model, data, _ = node_problem("gcn", "no_edges")
    why = ew.explain(model, data, index=2, method="integrated_gradients", level="layer")
    assert tuple(why.scores.shape) == (3, 0)


@pytest.mark.parametrize("case_name", ["mean_pool", "sum_pool", "pooled_binary", "pooled_layer_norm"])
def test_integrated_gradients_of_a_graph_model_equal_a_fine_sum(case_name):
    case, model, data, numbers = graph_problem(case_name, "everything")
    expected, _ = oracles.integrated_gradients(numbers, steps=150)
    found = explain_graph(case, model, data, method="integrated_gradients", level="layer")
    assert relative(found.scores, expected[0]) < 2e-3
