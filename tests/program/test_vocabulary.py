"""One vocabulary: what an operation is called, and whether a no-op stands beside it, changes no answer."""

from functools import cache
from itertools import product

import pytest
import torch
from torch.nn import functional

import edgewise as ew
import spellings
import zoo
from checks import one_in
from edgewise.trust import certify
from spellings import NO_OPS, RECTIFIERS

RULES = ("gradient", "lrp-epsilon", "lrp-gamma")
FEW = {"epochs": 3, "passes": 2, "steps": 3, "samples": 2}
PLACES = {
    "before the activation": lambda no_op, act: {"act": lambda x: act(no_op(x))},
    "behind the activation": lambda no_op, act: {"act": lambda x: no_op(act(x))},
    "before the first layer": lambda no_op, act: {"act": act, "before": no_op},
    "inside a GIN": lambda no_op, act: {"act": lambda x: no_op(act(no_op(x))), "kind": "gin"},
    "before a layer with a residual": lambda no_op, act: {"act": act, "before": no_op, "residual": True},
}


def graph():
    data = zoo.graph(zoo.random_edges(7, 16, seed=1), 7, seed=1)
    data.x = data.x.abs()
    return data


def answers(**model):
    """Scores of deterministic methods and the best walks under each rule."""
    built, data = spellings.build(**model), graph()
    found = {}
    for method in ("gradient", "occlusion", "lrp"):
        answer = ew.explain(built, data, 3, method=method, level="layer")
        found[method] = answer.scores
        found[f"{method}, selves"] = answer.self_scores
    found["goat_walks"] = ew.explain(built, data, 3, method="goat_walks").scores
    for rule in RULES:
        walks = ew.walks(built, data, 3, k=6, rule=rule)
        found[f"{rule}, walks"] = torch.tensor([walk.nodes for walk in walks])
        found[f"{rule}, scores"] = torch.tensor([walk.score for walk in walks])
    return found


@cache
def plain_answers(kind, residual):
    return answers(act=torch.tanh, kind=kind, residual=residual)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if value is None:
            assert found[name] is None
        else:
            torch.testing.assert_close(
                found[name], value, rtol=1e-9, atol=1e-10, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}"
            )


@pytest.mark.parametrize(("place", "name"), one_in(2, product(sorted(PLACES), sorted(NO_OPS))))
def test_a_no_op_changes_no_score_and_no_walk(name, place):
    model = PLACES[place](NO_OPS[name], torch.tanh)
    assert_same(answers(**model), plain_answers(model.get("kind", "gcn"), model.get("residual", False)))


def test_a_detach_is_looked_through_by_rules_and_walks():
    model = PLACES["before the activation"](lambda x: x.detach(), torch.tanh)
    assert_same(answers(**model), plain_answers("gcn", False))


@pytest.mark.parametrize("method", sorted(set(ew.methods()) - {"random"}))
def test_no_method_sees_a_no_op(method):
    row, data = ew.methods()[method], graph()
    settings = {key: FEW[key] for key in row.settings if key in FEW} | ({"seed": 5} if row.seeded else {})
    several = NO_OPS["several"]
    for level in row.levels:
        plain = ew.explain(spellings.build(torch.tanh), data, [3, 5], method=method, level=level, **settings)
        spelled = spellings.build(lambda x: several(torch.tanh(several(x))), several)
        found = ew.explain(spelled, data, [3, 5], method=method, level=level, **settings)
        torch.testing.assert_close(found.of(3).scores, plain.of(3).scores, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(found.of(5).scores, plain.of(5).scores, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", sorted(RECTIFIERS))
def test_every_spelling_of_a_relu_has_the_same_scores_and_walks(name):
    assert_same(answers(act=RECTIFIERS[name]), relu_answers())


@cache
def relu_answers():
    return answers(act=functional.relu)


@pytest.mark.parametrize(("place", "name"), one_in(2, product(sorted(PLACES), sorted(NO_OPS))))
def test_a_no_op_changes_no_certificate(name, place):
    model = PLACES[place](NO_OPS[name], torch.relu)
    found = certify(spellings.build(**model), graph(), [3])
    expected = plain_certificate(model.get("kind", "gcn"), model.get("residual", False))
    for part in ("keeps", "flips", "vanishes"):
        assert torch.equal(getattr(found, part), getattr(expected, part))


@cache
def plain_certificate(kind, residual):
    found = certify(spellings.build(torch.relu, kind=kind, residual=residual), graph(), [3])
    assert found.reason is None
    assert found.keeps.any()
    return found


@pytest.mark.parametrize("name", ["clamp", "threshold", "maximum of zeros", "leaky with slope 0", "float after"])
def test_a_check_counts_every_spelling_of_a_relu(name):
    reports = [ew.check(spellings.build(act), graph(), [3, 5]) for act in (functional.relu, RECTIFIERS[name])]
    plain, found = ([(layer.activations, str(layer.rate)) for layer in report.layers] for report in reports)
    assert found == plain
