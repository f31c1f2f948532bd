"""Whatever is passed to a public function, it answers or refuses: one sentence, an exception of ours.

`make fuzz` draws many more calls (`EDGEWISE_FUZZ`, how many).
"""

import os
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import edgewise as ew
from edgewise import datasets
from malformed import JUNK, WRAPPINGS, Problem, junk, parameters

EXAMPLES = int(os.environ.get("EDGEWISE_FUZZ", "60"))
HOW = ["as it is"] * 3 + sorted(WRAPPINGS)

ONCE_FOREIGN = (
    ("molecule", "atoms", "as it is", "an iterator"),
    ("Question.explain", "method", "as it is", "an unprintable object"),
    ("area", "x", "as it is", "a mask"),
    ("infection_paths", "graph", "as it is", "empty data"),
    ("datasets.load", "seed", "as it is", "-1"),
    ("Question.page", "path", "as it is", "long text"),
    ("Job.page", "class_names", "as it is", "a class"),
    ("Job.page", "class_names", "as it is", "tensor 1.5"),
    ("explain types", "device", "as it is", "a class"),
    ("ExplanationSet[]", "item", "after a number", "data without features"),
    ("ExplanationSet.of", "index", "after a number", "data with half ends"),
    ("explain", "target", "after a number", "data of other widths"),
    ("jobs.run on a store", "target", "after a number", "NaN of six"),
    ("graph of graphs", "position", "as it is", "3"),
    ("top of one of types", "by", "as it is", "data with NaN"),
    ("plot of types", "marked", "under a name", "3"),
    ("explain links", "index", "as it is", "array of texts"),
    ("explain links", "index", "in a list", "tensor 1.5"),
    ("explain links", "index", "after a number", "10 to the 30"),
    ("compare", "methods", "as it is", "an empty typed graph"),
    ("draw_walks", "marked", "in a dict", "an empty typed graph"),
    ("infection_paths", "index", "as it is", "too many"),
    ("subgraph_relevance", "nodes", "after a number", "1j"),
    ("explain types by masks", "init", "as it is", "array of texts"),
    ("GNNExplainer", "epochs", "as it is", "10 to the 30"),
    ("walk_relevance", "walks", "in a list", "[1.5]"),
    ("path_recovery", "found", "in a list", "an empty typed graph"),
    ("sign_flips", "values", "as it is", "an empty typed graph"),
    ("molecule", "data", "as it is", "a mask"),
    ("molecule", "size", "after a number", "1.5"),
    ("[] of graphs", "item", "as it is", "an int that is none"),
    ("plot of types", "labels", "under a name", "a quantised tensor"),
    ("plot of links", "marked", "in a dict", "an endless range"),
    ("walk_relevance", "target", "as it is", "an endless range"),
    ("walk_relevance", "walks", "as it is", "an endless range"),
    ("sign_flips", "values", "as it is", "an endless range"),
    ("[] of links", "item", "as it is", "a hostile sequence"),
    ("Job.of", "index", "as it is", "a hostile sequence"),
    ("molecule", "data", "as it is", "a hostile sequence"),
    ("Question about links", "index", "in a list", "meta numbers"),
    ("Job.to_frame", "filters", "as it is", "a huge view"),
)


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    """The calls, in a folder of their own: a text is a good name for a file."""
    folder, before = tmp_path_factory.mktemp("malformed"), Path.cwd()
    known = datasets.registered()
    os.chdir(folder)
    yield Problem(folder)
    os.chdir(before)
    for name in [name for name in datasets.registered() if name not in known]:
        del datasets._registered[name]


def refusal(function, arguments):
    """The text of the refusal, or None if the call was answered; any other exception is a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function(**arguments)
        except ew.EdgewiseError as error:
            return str(error)
        finally:
            plt.close("all")
    return None


def slots(calls):
    """Every argument of every call."""
    return [(name, key) for name in sorted(calls) for key in parameters(*calls[name])]


def test_the_calls_work_as_they_are(problem):
    for name, (function, arguments) in problem.calls().items():
        assert refusal(function, arguments) is None, name


@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_a_malformed_call_is_refused_by_an_exception_of_ours(problem, data):
    calls = problem.calls()
    name, key = data.draw(st.sampled_from(slots(calls)), label="argument")
    function, arguments = calls[name]
    more = st.sampled_from(
        parameters(function, arguments) if "[]" in name else [*parameters(function, arguments), "no_such_argument"]
    )
    wrong = {key, *data.draw(st.lists(more, max_size=1), label="another one")}
    drawn = {key: data.draw(st.tuples(st.sampled_from(HOW), st.sampled_from(sorted(JUNK))), label=key) for key in wrong}
    text = refusal(function, {**arguments, **{key: junk(kind, how) for key, (how, kind) in drawn.items()}})
    assert text is None or (text and len(text) < 1500), (name, drawn, text)


def test_calls_that_once_raised_foreign_errors_are_refused(problem):
    calls = problem.calls()
    for name, argument, how, kind in ONCE_FOREIGN:
        function, arguments = calls[name]
        assert refusal(function, {**arguments, argument: junk(kind, how)}), (name, argument)


def test_a_refusal_names_the_method_by_the_class_that_the_user_holds(problem):
    with pytest.raises(ew.SettingError, match=r"ExplanationSet.save\(\) has no argument `pth`"):
        problem.some.save(pth="a.npz")


def test_a_refusal_cannot_act_in_a_terminal(problem):
    with pytest.raises(ew.SettingError) as refused:
        ew.explain(problem.model, problem.data, device="\x1b[31mcpu")
    assert "\x1b" not in str(refused.value)


def test_a_walk_through_half_a_node_is_refused(problem):
    walk = (1.5, 1, 2)
    with pytest.raises(ew.InputError, match="`walks` must be sequences of 3 nodes"):
        ew.walk_relevance(problem.model, problem.data, index=2, walks=[walk])


@pytest.mark.slow
def test_every_argument_with_every_kind_of_junk_is_refused_or_answered(problem):
    calls, shard, shards = problem.calls(), *map(int, os.environ.get("EDGEWISE_SHARD", "0/1").split("/"))
    every = [(name, key, kind) for name, key in slots(calls) for kind in sorted(JUNK)]
    foreign = []
    for name, key, kind in every[shard::shards]:
        function, arguments = problem.calls()[name]
        try:
            text = refusal(function, {**arguments, key: junk(kind)})
        except Exception as error:
            foreign.append((name, key, kind, repr(error)[:200]))
        else:
            if text is not None and not 0 < len(text) < 1500:
                foreign.append((name, key, kind, "no text"))
    assert not foreign, foreign
