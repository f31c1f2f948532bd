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
from malformed import JUNK, Problem, parameters

EXAMPLES = int(os.environ.get("EDGEWISE_FUZZ", "60"))


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    """The calls, in a folder of their own: a text is a good name for a file."""
    folder, before = tmp_path_factory.mktemp("malformed"), Path.cwd()
    os.chdir(folder)
    yield Problem(folder)
    os.chdir(before)


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
