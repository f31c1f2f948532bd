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
from malformed import JUNK, Problem, parameters

EXAMPLES = int(os.environ.get("EDGEWISE_FUZZ", "60"))


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


def test_the_calls_work_as_they_are(problem):
    for name, (function, arguments) in problem.calls().items():
        assert refusal(function, arguments) is None, name


@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_a_malformed_call_is_refused_by_an_exception_of_ours(problem, data):
    calls = problem.calls()
    name = data.draw(st.sampled_from(sorted(calls)), label="function")
    function, arguments = calls[name]
    known = parameters(function) if name.endswith("[]") else [*parameters(function), "no_such_argument"]
    wrong = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=2, unique=True), label="arguments")
    junk = {key: data.draw(st.sampled_from(sorted(JUNK)), label=key) for key in wrong}
    text = refusal(function, {**arguments, **{key: JUNK[kind]() for key, kind in junk.items()}})
    assert text is None or (text and len(text) < 1500), (name, junk, text)


@pytest.mark.parametrize(
    ("name", "argument", "kind"),
    [
        ("Question.explain", "method", "an unprintable object"),
        ("area", "x", "a mask"),
        ("datasets.load", "seed", "-1"),
        ("Question.page", "path", "long text"),
    ],
)
def test_a_call_that_once_raised_a_foreign_error_is_refused(problem, name, argument, kind):
    function, arguments = problem.calls()[name]
    assert refusal(function, {**arguments, argument: JUNK[kind]()})


@pytest.mark.slow
def test_every_argument_with_every_kind_of_junk_is_refused_or_answered(problem):
    calls, shard, shards = problem.calls(), *map(int, os.environ.get("EDGEWISE_SHARD", "0/1").split("/"))
    every = [(name, key, kind) for name in sorted(calls) for key in parameters(calls[name][0]) for kind in sorted(JUNK)]
    foreign = []
    for name, key, kind in every[shard::shards]:
        function, arguments = problem.calls()[name]
        try:
            text = refusal(function, {**arguments, key: JUNK[kind]()})
        except Exception as error:
            foreign.append((name, key, kind, repr(error)[:200]))
        else:
            if text is not None and not 0 < len(text) < 1500:
                foreign.append((name, key, kind, "no text"))
    assert not foreign, foreign
