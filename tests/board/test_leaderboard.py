"""The leaderboard: somebody's method and data set from the docs, going on, measures against slow twins, the page."""

import json
import re
import sys
from dataclasses import astuple
from importlib import import_module
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import edgewise as ew
from edgewise import datasets
from edgewise.algorithms import own_methods, registry
from edgewise.board.board import Board
from edgewise.board.entrants import read_entrants, without_loops
from edgewise.board.measures import measured
from edgewise.board.trained_network import make_network
from edgewise.cli.app import app
from places import ROOT

DOCS = (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
METHOD, DATA = (next(block for block in BLOCKS if word in block) for word in ("register_method(", "datasets.register("))


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with the two files of the docs; what they register is forgotten afterwards."""
    (tmp_path / "my_method.py").write_text(METHOD, encoding="utf-8")
    (tmp_path / "my_graphs.py").write_text(DATA, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "registered_methods", {})
    monkeypatch.setattr(own_methods, "registered_methods", registry.registered_methods)
    monkeypatch.setattr(datasets, "_registered", {})
    yield tmp_path
    for name in ("my_method", "my_graphs"):
        sys.modules.pop(name, None)


def plug(name, monkeypatch, workplace):
    monkeypatch.syspath_prepend(str(workplace))
    sys.modules.pop(name, None)
    import_module(name)


def lines(folder):
    return {path.name: path.read_text().count("\n") for path in sorted((folder / "networks").glob("*.jsonl"))}


def test_the_method_and_the_data_set_of_the_docs_stand_in_the_board(workplace):
    asked = ("--data", "red_neighbours", "--methods", "gradient,squared_gradient,walks:exact", "--networks", "3")
    plugins = ("--plugin", "my_method", "--plugin", "my_graphs")
    found = CliRunner().invoke(app, ["leaderboard", "--out", "board", *plugins, *asked, "--targets", "4", "--json"])
    assert found.exit_code == 0, found.output
    standings = json.loads(found.stdout)["standings"]
    kinds = {one["method"]: one["kind"] for one in standings}
    assert kinds["squared_gradient"] == "registered"
    assert {"gradient", "random", "full", "node_degree"} < kinds.keys()
    auroc = {o["method"]: o["mean"] for o in standings if (o["metric"], o["order"]) == ("auroc", "support")}
    assert auroc["gradient"] == 1.0  # the model is linear in the number of red neighbours
    assert auroc["full"] == 0.5
    page = (workplace / "board" / "index.html").read_text()
    assert "squared_gradient" in page
    assert "red_neighbours" in page
    assert not re.search(r"https?://(?!www\.w3\.org)", page)


def test_what_is_finished_is_not_measured_again_and_a_changed_method_is(workplace, monkeypatch):
    plug("my_graphs", monkeypatch, workplace)
    plug("my_method", monkeypatch, workplace)
    ask = {"data": ["red_neighbours"], "networks": 2, "targets": 3}
    ew.leaderboard("board", methods=["gradient"], **ask)
    assert set(lines(workplace / "board").values()) == {4}  # with three yardsticks
    board = ew.leaderboard("board", methods=["gradient", "squared_gradient"], **ask)
    assert set(lines(workplace / "board").values()) == {5}
    assert list(map(astuple, Board.read("board/results.parquet").standings)) == list(map(astuple, board.standings))
    again = ew.leaderboard("board", methods=["gradient", "squared_gradient"], **ask)
    assert set(lines(workplace / "board").values()) == {5}
    assert list(map(astuple, again.standings)) == list(map(astuple, board.standings))

    registry.registered_methods.pop("squared_gradient")
    (workplace / "my_method.py").write_text(METHOD.replace("slope.square().sum(dim=0)", "-slope.square().sum(dim=0)"))
    plug("my_method", monkeypatch, workplace)
    changed = ew.leaderboard("board", methods=["gradient", "squared_gradient"], **ask)
    assert set(lines(workplace / "board").values()) == {6}
    was, now = ({s.method: s.mean for s in one.of("red_neighbours")} for one in (board, changed))
    assert was["gradient"] == now["gradient"]
    assert was["squared_gradient"] == pytest.approx(1 - now["squared_gradient"])


def test_a_board_that_is_stopped_goes_on_and_processes_find_the_same(workplace, monkeypatch):
    plug("my_graphs", monkeypatch, workplace)
    calls = []

    def stopping(score, *, level, seed):
        calls.append(seed)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return score.ones()[0]

    ew.register_method("squared_gradient", stopping)
    ask = {"data": ["red_neighbours"], "networks": 2, "targets": 3, "methods": ["gradient", "squared_gradient"]}
    with pytest.raises(KeyboardInterrupt):
        ew.leaderboard("board", **ask)
    assert list(lines(workplace / "board").values()) == [5, 1]
    went_on = ew.leaderboard("board", **ask)
    assert len(calls) == 3
    assert list(lines(workplace / "board").values()) == [5, 5]
    whole = ew.leaderboard("other", **ask, engine="processes", workers=2)

    def numbers(board):
        return [{key: row[key] for key in row if key != "seconds"} for row in board.rows()]

    assert str(numbers(went_on)) == str(numbers(whole))


def test_a_method_that_fails_is_told_with_its_reason_and_the_others_stand(workplace, monkeypatch):
    plug("my_graphs", monkeypatch, workplace)

    def failing(score, *, level, seed):
        raise ValueError("no luck")

    ew.register_method("squared_gradient", failing)
    board = ew.leaderboard("board", data=["red_neighbours"], methods=["squared_gradient"], networks=1, targets=3)
    assert "no luck" in board.refusals["red_neighbours", "squared_gradient"]
    assert "no luck" in repr(board)
    assert {s.method for s in board.of("red_neighbours")} == {"random", "full", "node_degree"}


def test_another_number_of_targets_is_refused_in_the_same_folder(workplace, monkeypatch):
    plug("my_graphs", monkeypatch, workplace)
    ask = {"data": ["red_neighbours"], "networks": 1, "methods": ["gradient"]}
    ew.leaderboard("board", targets=3, **ask)
    with pytest.raises(ew.FileError, match="targets 3, and now it is 4"):
        ew.leaderboard("board", targets=4, **ask)
    (workplace / "full").mkdir()
    (workplace / "full" / "letter.txt").write_text("hello")
    with pytest.raises(ew.FileError, match="other files"):
        ew.leaderboard("full", targets=3, **ask)
    for wrong in ({"data": "infection"}, {"data": []}, {"networks": 0}, {"targets": 1}, {"methods": ["walks:fast"]}):
        with pytest.raises(ew.SettingError):
            ew.leaderboard("board", **{**ask, "targets": 3, **wrong})


def test_rankings_are_those_of_recovery_where_edges_have_a_direction(workplace, monkeypatch):
    plug("my_graphs", monkeypatch, workplace)
    network = make_network("red_neighbours", 0, 6)
    assert not network.both_ways
    for entrant in read_entrants(["gnn_explainer"])[:2]:
        answer = entrant.answer(network.ask, 0)
        wanted = ew.metrics.recovery(answer.explained, torch.stack(list(network.truth)))
        found = measured(network, answer, "support")
        for name, other in (("auroc", wanted.auroc), ("average_precision", wanted.average_precision)):
            assert found[name] == pytest.approx(other.value.tolist(), abs=1e-6, nan_ok=True)
        assert found["precision"] == pytest.approx(wanted.precision_at_k.value.tolist(), abs=1e-6, nan_ok=True)


def test_both_directions_of_an_edge_are_ranked_as_one_where_the_truth_is_the_same(monkeypatch):
    monkeypatch.setattr("edgewise.datasets.motifs.NODE_EPOCHS", 30)
    network = make_network("tree_cycles", 0, 6)
    assert network.both_ways
    answer = read_entrants(["gradient"])[0].answer(network.ask, 0)
    found = measured(network, answer, "support")["auroc"]
    for place, why in enumerate(answer.explained):
        assert found[place] == pytest.approx(slow_auroc(why, network.truth[place]), abs=1e-6, nan_ok=True)


def slow_auroc(why, truth):
    """From the formula, edge by edge: means over the columns that can reach the target, then all pairs."""
    hops = {why.index: 0}
    for step in range(1, 3):  # three layers: receivers up to two hops away
        for source, receiver in why.edge_index.t().tolist():
            if hops.get(receiver) == step - 1:
                hops.setdefault(source, step)
    units = {}
    for column, (source, receiver) in enumerate(why.edge_index.t().tolist()):
        if receiver in hops:
            units.setdefault(frozenset((source, receiver)), []).append((float(why.scores[column]), int(truth[column])))
    true = [sum(s for s, _ in one) / len(one) for one in units.values() if one[0][1]]
    other = [sum(s for s, _ in one) / len(one) for one in units.values() if not one[0][1]]
    pairs = [(a > b) + 0.5 * (a == b) for a in true for b in other]
    return sum(pairs) / len(pairs) if pairs else float("nan")


def test_degrees_are_those_of_the_ends(workplace, monkeypatch):
    plug("my_graphs", monkeypatch, workplace)
    network = make_network("red_neighbours", 0, 3)
    explained = read_entrants(["gradient"])[-1].answer(network.ask, 0).explained
    degree = torch.bincount(network.data.edge_index.reshape(-1), minlength=60)
    why = explained[0]
    arriving = network.data.edge_index[1] == why.index
    wanted = torch.where(arriving, degree[network.data.edge_index].sum(dim=0), 0)
    assert torch.equal(why.scores, wanted.to(why.scores.dtype))


def test_walks_are_compared_without_their_loops():
    assert without_loops((4, 4, 2, 4, 2, 1)) == (4, 2, 1)
    assert without_loops((1, 2, 3, 1)) == (1,)


def test_two_runs_write_the_same_bytes_and_times_beside_them(workplace, monkeypatch):
    plug("my_graphs", monkeypatch, workplace)
    ask = {"data": ["red_neighbours"], "methods": ["gradient"], "networks": 2, "targets": 3}
    first, again = (ew.leaderboard(folder, **ask) for folder in ("first", "again"))
    timed = {"times.parquet", "cost.html", "lock"}
    files = {
        folder: {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}
        for folder in ("first", "again")
    }
    assert files["first"].keys() == files["again"].keys()
    differing = {name for name in files["first"] if files["first"][name] != files["again"][name]}
    assert {name for name in differing if not name.startswith("times/")} <= timed
    assert {"results.parquet", "index.html", "board.json", "networks/red_neighbours-0000.jsonl"} <= set(files["first"])
    read = Board.read("first/results.parquet")
    assert read.seconds == first.seconds
    assert read.seconds != again.seconds
    assert "seconds" not in next(first.rows())
