"""The example package with a method of its own is installed, as users would, and stands beside ours everywhere."""

import json
import os
import subprocess
import sys

import pytest

from places import ROOT

PACKAGE = ROOT / "examples" / "own_method"


def run(*arguments, **options):
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=300, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A folder that the package was installed into, without a network, and the environment that has it."""
    folder = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source") / "own_method"  # building leaves files beside the source
    source.mkdir()
    for path in PACKAGE.iterdir():
        if path.is_file():
            (source / path.name).write_bytes(path.read_bytes())
    without_network = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    run("-m", "pip", "install", "--quiet", *without_network, "--target", folder, source)
    return folder, {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "src")])}


USE = """
import json, warnings
import edgewise as ew
from edgewise.examples import path_model
model, data = path_model(gains=[2.0, 3.0])
warnings.simplefilter("error")
row = ew.methods()["smooth_gradient"]
why = ew.explain(model, data, 2, method="smooth_gradient", spread=0.0)
compared = ew.compare(model, data, [1, 2], methods=["smooth_gradient", "gradient"], levels="layer")
print(json.dumps({
    "settings": dict(row.settings), "reference": row.reference, "scores": why.scores.tolist(),
    "compared": [one.method for one in compared.running],
}))
"""


def test_it_is_in_the_table_in_explain_and_in_compare(elsewhere):
    found = json.loads(run("-c", USE, env=elsewhere[1]))
    assert found["settings"] == {"samples": 8, "spread": 0.1}
    assert found["reference"] == "package smooth_edges:smooth_gradient"
    assert found["scores"] == pytest.approx([6.0, 6.0])  # z = 6·ω₀·ω₁, without noise the gradient
    assert found["compared"][:2] == ["smooth_gradient", "gradient"]


@pytest.mark.slow
def test_it_is_in_the_command_line(elsewhere, tmp_path):
    assert "smooth_gradient" in run("-m", "edgewise", "methods", env=elsewhere[1], cwd=tmp_path)
    asked = ("--data", "infection", "--index", "3", "--method", "smooth_gradient", "--set", "samples=2", "--json")
    found = json.loads(run("-m", "edgewise", "explain", *asked, env=elsewhere[1], cwd=tmp_path))
    assert found["method"] == "smooth_gradient"
    assert found["targets"][0]["edges"]


def test_the_example_is_as_short_as_its_page_says():
    lines = sum(len(path.read_text().splitlines()) for path in PACKAGE.iterdir() if path.is_file())
    assert lines <= 32
