"""Every file under examples/ runs, and says something."""

import json
import os
import runpy
import shutil
from pathlib import Path

import pytest
import torch

import edgewise as ew
from command_line import call
from places import ROOT

EXAMPLES = ROOT / "examples"
DATA = {"cora_compare.py": "Cora"}
ASKED_BELOW = ("fraud.py", "molecules.py", "mutag_page.py", "my_model.py", "recommender.py", "typed_fraud.py")
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


def test_the_notebook_is_stored_with_small_pictures_and_its_cells_run_in_order(capsys):
    text = (EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8")
    assert len(text) < 200_000
    names: dict = {}
    pictures = 0
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"]  # docs/store_notebook.py stores them
            pictures += sum("image/png" in one.get("data", ()) for one in cell["outputs"])
            exec("".join(cell["source"]), names)
    assert pictures >= 2
    assert "→" in capsys.readouterr().out
    assert names["why"]._repr_html_().startswith("<")


def test_the_recommender_finds_the_ratings_that_were_planted_and_makes_a_page_with_one_command(capsys):
    shutil.copy(EXAMPLES / "recommender.py", "recommender.py")
    made = runpy.run_path("recommender.py")
    found, told = made["main"]()
    assert "rated movie" in capsys.readouterr().out
    right = []
    for why in found:
        user, movie = why.index[1]
        rated = [int(m) for u, m in zip(told["user"], told["movie"], strict=True) if u == user and m != movie]
        if any(told["genre"][other] == told["genre"][movie] for other in rated):  # there is something to find
            best = next(one for one in why.top(50) if one[2] == ("user", user))
            right.append(bool(told["genre"][best[1][1]] == told["genre"][movie]))
    assert sum(right) >= 0.8 * len(right) > 5
    command = (EXAMPLES / "recommender.py").read_text().split("    edgewise ")[1].split("\n")[0]
    done = call(*command.split())
    assert Path("cinema.html").is_file()
    assert "user U0 : movie M" in done.stdout


def test_a_newcomer_gets_a_page_with_one_command():
    shutil.copy(EXAMPLES / "my_model.py", "my_model.py")
    runpy.run_path("my_model.py", run_name="__main__")
    command = (EXAMPLES / "my_model.py").read_text().split("    edgewise ")[1].split("\n")[0]
    done = call(*command.split())
    assert Path("why.html").is_file()
    assert "node" in done.stdout
    assert sorted(os.listdir()) == ["graph.npz", "my_model.py", "weights.pt", "why.html"]


def commands_of(name):
    """The commands in the docstring of an example."""
    return [part.split("\n")[0].split() for part in (EXAMPLES / name).read_text().split("    edgewise ")[1:]]


def test_the_typed_fraud_example_goes_from_tables_to_a_page_that_names_what_was_planted():
    shutil.copy(EXAMPLES / "typed_fraud.py", "typed_fraud.py")
    names = runpy.run_path("typed_fraud.py")
    names["main"]()
    (command,) = commands_of("typed_fraud.py")
    done = call(*command, "--set", "epochs=10")
    assert "card C11" in done.stdout
    assert "user" not in done.stdout
    page = Path("fraud.html").read_text(encoding="utf-8")
    assert "merchant \\u2013charged\\u2192 card" in page
    torch.manual_seed(0)
    data, suspicious = names["made_up"]()
    model = names["Detector"]().eval()
    model.load_state_dict(torch.load("fraud_weights.pt", weights_only=True))
    predicted = model(data.x_dict, data.edge_index_dict)["account"].argmax(dim=1)
    caught = ((data["account"].y == 0) & (predicted == 0)).nonzero().view(-1)
    assert len(caught) > 15
    found = ew.explain(model, data, ("account", caught), target=0)
    strongest = [int(why.scores[names["CHARGED"]].argmax()) for why in found]
    assert float(suspicious[strongest].float().mean()) > 0.9


def test_the_molecule_example_names_atoms_and_their_features(capsys):
    shutil.copy(EXAMPLES / "molecules.py", "molecules.py")
    runpy.run_path("molecules.py", run_name="__main__")
    said = capsys.readouterr().out
    assert "mutagenic: charge of N" in said
    page, features = commands_of("molecules.py")
    done = call(*features)
    assert "charge" in done.stdout
    shown = call(*page, "--method", "gradient", "--level", "input")
    assert "N8 → C3" in shown.stdout
    assert "N8" in Path("atoms.html").read_text(encoding="utf-8")
    assert "N8" in Path("nitro.html").read_text(encoding="utf-8")
