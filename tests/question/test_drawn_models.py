"""Random models against the slow twin (`model_fuzz.py`): a few of each kind here, ten thousand by `make fuzz-models`."""

import warnings

import pytest
import torch

import edgewise as ew
import model_fuzz
from drawn_cases import draw_case
from model_fuzz import FOREIGN, REFUSED, RIGHT, WRONG, run_case, run_many, summary

ONCE_WRONG = {
    500008: "own messages along loops of a single node",
    500257: "own messages in front of a linear readout of a graph",
    500504: "own messages behind units that are off",
    500525: "own messages that do not reach the pair that was asked about",
    500146: "a maximum over all nodes that another node takes over",
    500207: "a small part of a gradient stops",
    500780: "a gradient stops at one node",
    1075: "a part of a product stops, and is taken for a kink of the features",
}
"""Seeds of models that were answered wrong without a word."""
ONCE_REFUSED = {
    500339: "one column, and a model that reads all nodes",
    501149: "the same on a cut",
}
"""Seeds of models that were refused without cause."""


def test_models_of_the_grammar_are_right_or_refused():
    reports = list(run_many(range(30), workers=1))
    text, passed = summary(reports)
    assert passed, "\n".join([text, *(model_fuzz.told(r) for r in reports if r.outcome in (WRONG, FOREIGN))])
    assert sum(report.outcome == RIGHT for report in reports) > 15


@pytest.mark.slow
def test_more_models_of_the_grammar_are_right_or_refused():
    reports = list(run_many(range(1000, 1300), workers=1))
    text, passed = summary(reports)
    assert passed, "\n".join([text, *(model_fuzz.told(r) for r in reports if r.outcome in (WRONG, FOREIGN))])


@pytest.mark.parametrize("seed", ONCE_WRONG, ids=ONCE_WRONG.get)
def test_what_was_answered_wrong_is_so_no_longer(seed):
    report = run_case(seed)
    assert report.outcome not in (WRONG, FOREIGN), model_fuzz.told(report)


@pytest.mark.parametrize("seed", ONCE_REFUSED, ids=ONCE_REFUSED.get)
def test_what_was_refused_without_cause_is_answered(seed):
    report = run_case(seed)
    assert all(found.outcome not in (WRONG, FOREIGN, REFUSED) for found in report.findings), model_fuzz.told(report)


@pytest.mark.parametrize("how", ["a number is off", "a class is another", "something else is raised"])
def test_a_wrong_answer_is_found(how, monkeypatch):
    """The net itself: a library that errs a little is caught by the first models."""
    original = ew.explain

    def spoilt(*args, **kwargs):
        found = original(*args, **kwargs)
        if how == "something else is raised":
            raise KeyError("x")
        return [Spoilt(one, how) for one in found]

    class Spoilt:
        def __init__(self, one, how):
            self.value, self.target = one.value, one.target + (how == "a class is another")
            self.scores = one.scores * 1.001 if how == "a number is off" else one.scores

    monkeypatch.setattr(ew, "explain", spoilt)
    outcomes = {run_case(seed).outcome for seed in range(6)}
    assert outcomes & ({FOREIGN} if how == "something else is raised" else {WRONG})


def test_the_twin_is_the_model():
    """Its output is that of the drawn model, and at ω = 1 its messages are the model's."""
    for seed in range(8):
        case = draw_case(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert model_fuzz.runs(case) == ""
        graph, twin = case.double(0), case.twin
        if case.task != "link":
            ones = torch.ones_like(twin.ones(graph))
            weighted, plain = (twin.run(graph, case.sketch.arguments, omega)[0] for omega in (ones, None))
            assert torch.allclose(weighted, plain)
