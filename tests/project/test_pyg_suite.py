"""The script that runs PyG's own tests: what it counts, replaces, leaves out and says, on a checkout made for the purpose."""

import subprocess
import sys

import pytest
from torch_geometric import explain

import pyg_suite
from edgewise import EdgewiseExplainer
from places import ROOT
from pyg_suite import STAND_INS, Case, Suite, summary, uses_stand_in

SCRIPT = ROOT / "tests" / "support" / "pyg_suite.py"
TESTS = """
import pytest
from torch_geometric.explain import DummyExplainer, GNNExplainer, PGExplainer

@pytest.mark.parametrize("epochs", [2, 3])
def test_it_is_ours(epochs):
    assert type(GNNExplainer(epochs=epochs)).__name__ == "EdgewiseExplainer"

def test_that_fails():
    assert DummyExplainer() is None

def test_that_is_left_out():
    assert type(PGExplainer(epochs=2)).__name__ == "PGExplainer"
"""


def test_every_stand_in_has_the_name_of_an_algorithm_of_pyg():
    for name in STAND_INS:
        assert issubclass(getattr(explain.algorithm, name), explain.ExplainerAlgorithm)


def test_names_are_put_in_and_back():
    before, suite = explain.GNNExplainer, Suite()
    suite.put_in()
    try:
        assert isinstance(explain.GNNExplainer(epochs=7), EdgewiseExplainer)
        assert explain.algorithm.CaptumExplainer("IntegratedGradients").method == "integrated_gradients"
    finally:
        suite.put_back()
    assert explain.GNNExplainer is before


def test_a_case_counts_if_its_function_names_a_stand_in():
    def with_ours():
        return explain.DummyExplainer()

    def without():
        return explain.PGExplainer()

    assert uses_stand_in(with_ours)
    assert not uses_stand_in(without)


def test_what_does_not_pass_is_listed_with_its_reason():
    cases = [
        Case("t.py::test_fine"),
        Case("t.py::test_captum_explainer_supports[object]", "failed", "Failed: DID NOT RAISE ValueError"),
        Case("t.py::test_captum_explainer_supports[other]", "failed", "KeyError: 3"),
    ]
    text = summary(cases, 4)
    assert "3 cases in which EdgewiseExplainer stands in: 1 passed, 2 failed" in text
    assert "1 × The test wants these settings refused; ours supports them." in text
    assert "1 × NO REASON IS KNOWN\n    t.py::test_captum_explainer_supports[other]  KeyError: 3" in text


def test_a_path_without_tests_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="checkout of pytorch_geometric"):
        pyg_suite.run(tmp_path, [])


@pytest.mark.slow  # it starts a Python of its own
def test_a_checkout_is_run_and_left_as_it_is(tmp_path):
    folder = tmp_path / "test" / "explain"
    folder.mkdir(parents=True)
    (folder / "test_small.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), "--at-least", "2"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1  # one failed without a known reason
    assert "3 cases in which EdgewiseExplainer stands in: 2 passed, 1 failed" in done.stdout
    assert "1 cases of the same files" in done.stdout
    assert "test_that_fails" in done.stdout.split("NO REASON IS KNOWN")[1]
    assert [path.name for path in folder.iterdir()] == ["test_small.py"]
