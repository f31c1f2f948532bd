"""Every file under examples/ runs, and says something."""

import json
import os
import runpy
import shutil
from pathlib import Path

import pytest

import edgewise as ew
from command_line import call
from places import ROOT

EXAMPLES = ROOT / "examples"
DATA = {"cora_compare.py": "Cora"}
ASKED_BELOW = ("fraud.py", "mutag_page.py", "my_model.py")
SCRIPTS = sorted({path.name for path in EXAMPLES.glob("*.py")} - set(ASKED_BELOW))


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    """A folder to write into, pictures without a window, and a stand-in where the page is not there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    if not hasattr(ew, "write_page"):
        monkeypatch.setattr(
            ew, "write_page", lambda path, *_, **__: Path(path).write_text("a page") and path, raising=False
        )


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_runs(name, capsys, monkeypatch, request):
    if name in DATA:
        monkeypatch.setenv("EDGEWISE_DATA", request.getfixturevalue("raw_data")(DATA[name]))
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_the_fraud_example_finds_the_payments_that_were_planted():
    found = runpy.run_path(str(EXAMPLES / "fraud.py"))
    assert sum(found["right"]) > 0.9 * len(found["right"]) > 0


def test_the_mutag_example_writes_its_page(monkeypatch, raw_data):
    monkeypatch.setenv("EDGEWISE_DATA", raw_data("MUTAG"))
    runpy.run_path(str(EXAMPLES / "mutag_page.py"))
    assert Path("mutag.html").is_file()


def test_the_notebook_is_stored_without_output_and_its_cells_run_in_order(capsys):
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec("".join(cell["source"]), names)
    assert "→" in capsys.readouterr().out
    assert names["why"]._repr_html_().startswith("<")


def test_a_newcomer_gets_a_page_with_one_command():
    shutil.copy(EXAMPLES / "my_model.py", "my_model.py")
    runpy.run_path("my_model.py", run_name="__main__")
    command = (EXAMPLES / "my_model.py").read_text().split("    edgewise ")[1].split("\n")[0]
    done = call(*command.split())
    assert Path("why.html").is_file()
    assert "node" in done.stdout
    assert sorted(os.listdir()) == ["graph.npz", "my_model.py", "weights.pt", "why.html"]
