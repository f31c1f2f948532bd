"""LRP rules against the formula, and what they keep: γ = ε = 0 is the gradient, nothing is lost without biases."""

import pytest
import torch
from torch import nn

import edgewise as ew
import zoo
from edgewise.errors import SettingError
from walk_checks import all_of, assert_alive, assert_walks, crowded
from walk_models import WITH_RULES, mlp, stack, wide_stack
from walk_oracles import node_twin
from walk_rules import Rule, rule_twin
from zoo import CLASSES, WIDTH


def positive(graph):
    """γ is meant for inputs that are not negative."""
    graph.x = graph.x.abs()
    return graph


def held(kind):
    return {"attention": "fixed"} if kind.startswith("gat") else {}


def rules(calls):
    """(options, the same for the oracle)."""
    gammas = [0.1 + 0.3 * call for call in range(calls)]
    return [
        ({"rule": "lrp-epsilon", "epsilon": 0.3}, Rule((0.0,) * calls, 0.3)),
        ({"rule": "lrp-epsilon"}, Rule((0.0,) * calls, 1e-9)),
        ({"rule": "lrp-gamma"}, Rule((0.25,) * calls)),
        ({"rule": "lrp-gamma", "gamma": gammas}, Rule(tuple(gammas))),
    ]


@pytest.mark.parametrize(("kind", "calls"), [("gcn", 1), ("gin", 1), *((kind, 3) for kind in WITH_RULES)])
def test_every_rule_gives_the_walks_of_its_formula(kind, calls):
    data, model = positive(zoo.GRAPHS["everything"]()), stack(kind, calls, seed=10 + calls)
    for options, rule in rules(calls):
        assert_walks(model, data, assert_alive(rule_twin(model, data, rule).walks()), ks=(5,), **options, **held(kind))


@pytest.mark.parametrize("head", [nn.Linear(WIDTH, CLASSES), mlp(WIDTH, CLASSES)])
@pytest.mark.parametrize("kind", ["sage_mean", "gin"])
def test_linear_maps_behind_the_last_call_follow_the_rule_of_that_call(kind, head):
    data, model = positive(crowded()), wide_stack(kind, 2, seed=12, head=head)
    for options, rule in rules(2):
        assert_walks(model, data, assert_alive(rule_twin(model, data, rule).walks()), ks=(5,), **options)


@pytest.mark.parametrize("pool", ["mean", "sum"])
@pytest.mark.parametrize("kind", ["gcn", "graph_conv", "gin", "gat"])
def test_rules_hold_for_whole_graphs(kind, pool):
    data = positive(zoo.GRAPHS["everything"]())
    model = wide_stack(kind, 2, seed=14, pool=pool, head=mlp(WIDTH, CLASSES))
    for options, rule in rules(2):
        scores = assert_alive(rule_twin(model, data, rule).walks())
        assert_walks(model, [data], scores, ks=(5,), task="graph", **options, **held(kind))


def test_behind_a_bent_activation_the_rule_is_a_quotient_and_not_a_slope():
    data, model = positive(crowded()), stack("sage_sum", 3, seed=2, act=torch.tanh)
    scores = assert_alive(rule_twin(model, data, Rule((0.0,) * 3)).walks())
    assert_walks(model, data, scores, ks=(5,), rule="lrp-epsilon", epsilon=0.0)
    assert scores[0] != pytest.approx(node_twin(model, data).walks()[0])


@pytest.mark.parametrize("options", [{"rule": "lrp-epsilon", "epsilon": 0.0}, {"rule": "lrp-gamma", "gamma": 0}])
@pytest.mark.parametrize("kind", [*WITH_RULES, "sage_mean_without_root", "gat_without_loops", "gat_residual", "sgc"])
def test_without_gamma_and_epsilon_a_rule_is_the_gradient(kind, options):
    data, model = zoo.GRAPHS["everything"](), stack(kind, 3, seed=13)
    scores = node_twin(model, data, attention=held(kind).get("attention", "full")).walks()
    assert_walks(model, data, assert_alive(scores), ks=(5,), **options, **held(kind))


@pytest.mark.parametrize("residual", ["before", "after", "linear"])
def test_without_gamma_and_epsilon_residuals_are_differentiated_as_ever(residual):
    data, model = crowded(), wide_stack("gcn", 3, seed=13, residual=residual)
    scores = assert_alive(node_twin(model, data).walks())
    assert_walks(model, data, scores, ks=(5,), rule="lrp-epsilon", epsilon=0.0)


@pytest.mark.parametrize("gamma", [0.0, 0.25, 5.0])
@pytest.mark.parametrize("kind", WITH_RULES)
def test_without_biases_relevance_is_conserved(kind, gamma):
    data, model = positive(zoo.GRAPHS["everything"]()), stack(kind, 3, seed=13, bias=False)
    total, value = all_of(model, data, rule="lrp-gamma", gamma=gamma, **held(kind))
    assert float(value.abs().max()) > 0
    assert torch.allclose(total, value, rtol=0, atol=1e-9)


def test_epsilon_and_biases_absorb_relevance():
    data = positive(zoo.GRAPHS["everything"]())
    plain, biased = stack("sage_sum", 3, seed=13, bias=False), stack("sage_sum", 3, seed=13)
    total, value = all_of(plain, data, rule="lrp-epsilon", epsilon=0.3)
    assert bool((total.abs() < value.abs())[value != 0].all())
    total, value = all_of(biased, data, rule="lrp-gamma")
    assert not torch.allclose(total, value, rtol=0, atol=1e-3)


@pytest.mark.parametrize(("kind", "options"), [("gine", {}), ("gat", {}), ("gatv2", {"attention": "full"})])
def test_layers_without_a_rule_are_named_with_what_to_type(kind, options):
    data, model = zoo.GRAPHS["everything"](), stack(kind, 2)
    with pytest.raises(SettingError, match=r"attention='fixed'.*rule='gradient'"):
        ew.walks(model, data, 1, rule="lrp-gamma", **options)
