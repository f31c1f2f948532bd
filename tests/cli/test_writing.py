"""What the command line writes: complete or not there, with its story beside it, and finished parts kept."""

import hashlib
import io
import json
import os
import signal
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.nn import global_add_pool

import edgewise as ew
from checks import scores_of
from command_line import MINE, call, error, network, printed, ring, running, workshop
from edgewise.cli.terminal import Voice
from edgewise.results.concatenation import joined

ENDINGS = ("parquet", "npz", "csv")


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    """The current folder is a user's, with a model, weights and data; the model."""
    monkeypatch.chdir(tmp_path)
    return workshop(tmp_path)


@pytest.fixture
def pages(monkeypatch):
    """Calls of `write_page`, which writes its settings instead of a page."""
    calls = []

    def write_page(path, model, data, index, **options):
        calls.append({"index": index, **options})
        Path(path).write_text(f"edgewise {options['settings']}")
        return Path(path)

    monkeypatch.setattr(ew, "write_page", write_page, raising=False)
    return calls


def files():
    return sorted(path.name for path in Path().iterdir() if path.name.startswith(("result", ".result", "why", ".why")))


# Results ##############################################################################################################


@pytest.mark.parametrize("level", ["input", "layer"])
@pytest.mark.parametrize("ending", ENDINGS[:2])
def test_a_result_file_holds_what_the_library_computes(mine, ending, level):
    call("explain", *MINE, "--out", f"result.{ending}", "--level", level, "--quiet")
    found, expected = ew.load(f"result.{ending}"), ew.explain(mine, ring(), level=level)
    torch.testing.assert_close(scores_of(found), scores_of(expected))
    assert files() == ["result.json", f"result.{ending}"]


def test_a_csv_has_a_row_for_every_score(mine):
    call("explain", *MINE, "--out", "result.csv", "--index", "2,4")
    rows = np.genfromtxt("result.csv", delimiter=",", names=True)
    expected = ew.explain(mine, ring(), [2, 4]).to_rows()
    assert [int(row["column"]) for row in rows] == [row["column"] for row in expected]
    assert rows["score"].tolist() == pytest.approx([row["score"] for row in expected], rel=1e-5)


def test_names_of_nodes_are_in_every_kind_of_result():
    named = [f"node {n}" for n in range(12)]
    np.savez("named.npz", **dict(np.load("graph.npz")), node_names=np.array(named))
    for ending in ENDINGS:
        call("explain", *MINE[:-1], "named.npz", "--out", f"result.{ending}", "--force", "--quiet")
    pandas = pytest.importorskip("pandas")
    for table in (pandas.read_parquet("result.parquet"), pandas.read_csv("result.csv")):
        assert (table["source_name"] == [named[n] for n in table["source"]]).all()
        assert (table["index_name"] == [named[n] for n in table["index"]]).all()
    assert json.loads(np.load("result.npz")["node_names"].tobytes()) == named
    assert torch.equal(scores_of(ew.load("result.npz")), scores_of(ew.load("result.parquet")))


def test_walks_are_written_as_rows(mine):
    pandas = pytest.importorskip("pandas")
    expected = ew.walks(mine, ring(), range(12), k=2)
    for ending in ENDINGS:
        call("walks", *MINE, "--top", "2", "--out", f"result.{ending}", "--force", "--quiet")
    tables = [pandas.read_parquet("result.parquet"), pandas.read_csv("result.csv"), np.load("result.npz")]
    for table in tables:
        walks = list(zip(*(np.asarray(table[f"node_{place}"]).tolist() for place in range(3)), strict=True))
        assert walks == [walk.nodes for one in expected for walk in one]
        assert np.asarray(table["exact"]).all()


def test_the_manifest_tells_the_whole_story():
    call("explain", *MINE, "--out", "result.parquet", "--index", "test", "--seed", "3", "--method", "occlusion")
    story = json.loads(Path("result.json").read_text())
    asked = story["question"]
    assert (asked["index"], asked["seed"], asked["method"], asked["level"]) == ("test", 3, "occlusion", "input")
    assert asked["model_args"] == ["features=3"]
    for name, file in {"weights": "weights.pt", "data": "graph.npz", "model source": "net.py"}.items():
        assert story["hashes"][name] == hashlib.sha256(Path(file).read_bytes()).hexdigest()
    assert torch.__version__.startswith(story["versions"]["torch"])  # a build for CUDA may add +cu121
    assert story["finished"] == {"targets": 3, "of": 3}
    assert story["file"] == "result.parquet"
    assert story["seconds"] > 0


def full_disk(handle, mode, *, real=os.fdopen):
    """What `os.fdopen` gives when there is no space left; files are read as ever (`/dev/full` has no end)."""
    if mode == "rb":
        return real(handle, mode)
    os.close(handle)
    return Path("/dev/full").open(mode)


# Files that cannot be written #########################################################################################


@pytest.fixture
def no_work(monkeypatch):
    """Nothing long may begin."""
    monkeypatch.setattr(ew, "explain", lambda *_, **__: pytest.fail("the work began"))


def test_a_place_that_cannot_be_written_is_said_before_the_work(no_work, tmp_path):
    (tmp_path / "folder.csv").mkdir()
    cases = {
        "nowhere/result.csv": "There is no folder nowhere. Run: mkdir -p nowhere",
        "weights.pt/result.csv": "There is no folder weights.pt",
        "/proc/result.csv": "Nothing can be written into /proc",
        "result.xls": "--out must end in .parquet, .csv, .npz, got result.xls",
        "folder.csv": "folder.csv is a folder",
        "graph.npz": "graph.npz is an input of this command. Use another name",
    }
    for place, sentence in cases.items():
        assert sentence in error("explain", *MINE, "--out", place)
    assert "--page must end in .html, got why.pdf" in error("explain", *MINE, "--page", "why.pdf")
    assert "There is no folder nowhere" in error("explain", *MINE, "--page", "nowhere/why.html")


def test_a_missing_extra_is_said_before_the_work(no_work, monkeypatch):
    find = ew.cli.output.importlib.util.find_spec
    monkeypatch.setattr(
        ew.cli.output.importlib.util, "find_spec", lambda name: None if name in ("pyarrow", "bokeh") else find(name)
    )
    assert "pip install 'edgewise[table]'" in error("explain", *MINE, "--out", "result.parquet")
    assert "pip install 'edgewise[page]'" in error("explain", *MINE, "--page", "why.html")


def test_only_files_that_we_wrote_are_replaced(mine, tmp_path, pages):
    (tmp_path / "result.csv").write_text("precious")
    assert "result.csv exists and is not a result of this command. Use --force" in error(
        "explain", *MINE, "--out", "result.csv"
    )
    assert (tmp_path / "result.csv").read_text() == "precious"
    call("explain", *MINE, "--out", "result.csv", "--force")
    call("explain", *MINE, "--out", "result.csv", "--index", "3")
    assert {row.split(",")[1] for row in (tmp_path / "result.csv").read_text().splitlines()[1:]} == {"3"}
    (tmp_path / "why.html").write_text("precious")
    assert "why.html exists" in error("explain", *MINE, "--page", "why.html")
    call("explain", *MINE, "--page", "why.html", "--force")
    call("explain", *MINE, "--page", "why.html")


@pytest.mark.parametrize("ending", ENDINGS)
def test_on_a_full_disk_nothing_is_left_under_the_final_name(monkeypatch, ending):
    monkeypatch.setattr("edgewise.files.os.fdopen", full_disk)
    assert "could not be written: No space left on device" in error("explain", *MINE, "--out", f"result.{ending}")
    assert files() == []


def test_an_earlier_result_survives_a_full_disk(monkeypatch):
    call("explain", *MINE, "--out", "result.csv", "--index", "3")
    before = Path("result.csv").read_text(), Path("result.json").read_text()
    monkeypatch.setattr("edgewise.files.os.fdopen", full_disk)
    error("explain", *MINE, "--out", "result.csv")
    assert (Path("result.csv").read_text(), Path("result.json").read_text()) == before


# Interruptions ########################################################################################################


JOB = ".result.{}.job"


@pytest.fixture
def few(monkeypatch):
    """Shards of at most eight targets."""
    monkeypatch.setattr("edgewise.jobs.plan.MOST_TARGETS", 8)


@pytest.fixture
def interrupted(monkeypatch, few):
    """Ctrl-C after the first shard, once; how many targets each shard had."""
    explain, shards, stop = ew.explain, [], [KeyboardInterrupt()]

    def interrupting(*arguments, **options):
        if shards and stop:
            raise stop.pop()
        shards.append(len(arguments[2]))
        return explain(*arguments, **options)

    monkeypatch.setattr(ew, "explain", interrupting)
    return shards


@pytest.mark.parametrize("ending", ENDINGS)
def test_after_ctrl_c_finished_parts_are_kept_and_the_same_command_goes_on(mine, interrupted, ending):
    command = ("explain", *MINE, "--out", f"result.{ending}", "--level", "layer")
    stopped = call(*command, code=130)
    assert f"8 of 12 targets are finished and kept in {JOB.format(ending)}. The same command resumes" in stopped.stderr
    assert files() == [JOB.format(ending)]
    assert len(ew.load(f"{JOB.format(ending)}/shards/gradient-00000.npz")) == 8
    assert "Resuming from" in call(*command).stderr
    assert interrupted == [8, 4]
    assert files() == sorted(["result.json", f"result.{ending}"])
    if ending != "csv":
        torch.testing.assert_close(
            scores_of(ew.load(f"result.{ending}")), scores_of(ew.explain(mine, ring(), range(12), level="layer"))
        )


def test_several_methods_have_a_file_each_and_one_manifest(mine):
    call("explain", *MINE, "--method", "gradient,shapley", "--set", "samples=3", "--out", "result.npz", "--quiet")
    assert files() == ["result.gradient.npz", "result.json", "result.shapley.npz"]
    story = json.loads(Path("result.json").read_text())
    assert story["files"] == {"gradient": "result.gradient.npz", "shapley": "result.shapley.npz"}
    assert torch.equal(scores_of(ew.load("result.gradient.npz")), scores_of(ew.explain(mine, ring())))
    assert ew.load("result.shapley.npz").settings["samples"] == 3
    assert "None of gradient, full has a setting 'samples'" in error(
        "explain", *MINE, "--method", "gradient,full", "--set", "samples=3", "--out", "result.npz"
    )
    call("explain", *MINE, "--method", "gradient,shapley", "--out", "result.npz", "--quiet")  # they are ours


def test_parts_of_another_question_are_not_taken(interrupted):
    call("explain", *MINE, "--out", "result.npz", code=130)
    said = call("explain", *MINE, "--out", "result.npz", "--level", "layer").stderr
    assert "Resuming" not in said
    assert "Parts of another question in .result.npz.job are given up: question.level was 'input', is 'layer'" in said
    assert len(ew.load("result.npz")) == 12


def test_after_ctrl_c_walks_go_on_too(monkeypatch, few):
    walks, shards = ew.walks, []

    def interrupting(*arguments, **options):
        shards.append(len(arguments[2]))
        if len(shards) == 2:
            raise KeyboardInterrupt
        return walks(*arguments, **options)

    monkeypatch.setattr(ew, "walks", interrupting)
    stopped = call("walks", *MINE, "--out", "result.csv", code=130)
    assert "8 of 12 targets are finished and kept in .result.csv.job." in stopped.stderr
    call("walks", *MINE, "--out", "result.csv")
    assert shards == [8, 4, 4]
    resumed = Path("result.csv").read_bytes()
    call("walks", *MINE, "--out", "result.csv")
    assert Path("result.csv").read_bytes() == resumed
    assert files() == ["result.csv", "result.json"]


def test_after_ctrl_c_without_a_file_nothing_is_written(interrupted):
    assert "Stopped. Nothing was written." in call("explain", *MINE, "--json", code=130).stderr
    assert files() == []


def test_an_error_in_the_middle_keeps_finished_parts_too(monkeypatch, few):
    explain = ew.explain

    def failing(model, data, index, **options):
        if 9 in index:
            raise ew.ModelError("The model failed.")
        return explain(model, data, index, **options)

    monkeypatch.setattr(ew, "explain", failing)
    said = error("explain", *MINE, "--out", "result.csv")
    assert said == (
        "Error: The model failed. 8 of 12 targets are finished and kept in .result.csv.job. The same command resumes "
        "from there."
    )


@pytest.mark.parametrize("kill", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_ctrl_c_and_sigterm_on_the_real_command_end_in_one_sentence(tmp_path, kill):
    data = ring(5000)
    np.savez("large.npz", x=data.x.numpy(), edge_index=data.edge_index.numpy())
    slow = ("--method", "gnn_explainer", "--set", "epochs=200", "--out", "result.npz")
    with running("explain", *MINE[:-1], "large.npz", *slow, cwd=tmp_path) as process:
        journal = Path(".result.npz.job/journal.jsonl")
        while not (journal.is_file() and journal.stat().st_size) and process.poll() is None:
            time.sleep(0.01)  # until the first shard is finished
        process.send_signal(kill)
        _, said = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in said
    assert "targets are finished and kept in .result.npz.job. The same command resumes from there." in said
    assert files() == [".result.npz.job"]


METHODS = [{}, {"level": "layer"}, {"method": "random"}, {"method": "shapley", "samples": 3}, {"method": "full"}]
TARGETS = st.lists(st.integers(0, 11), min_size=1, max_size=8, unique=True)


@given(TARGETS, st.sets(st.integers(1, 7)), st.sampled_from(METHODS))
def test_pieces_together_are_the_whole(index, cuts, options):
    model, places = network(), [0, *sorted(cut for cut in cuts if cut < len(index)), len(index)]
    parts = [ew.explain(model, ring(), index[begin:end], **options) for begin, end in pairwise(places)]
    _assert_same(joined(parts), ew.explain(model, ring(), index, **options))


def test_pieces_of_graphs_together_are_the_whole(mine):
    graphs = [ring(5), ring(7, seed=1), ring(4, seed=2)]
    pooled = {"task": "graph", "forward": pooled_output}
    parts = [ew.explain(mine, graphs, index, **pooled) for index in ([2], [0, 1])]
    _assert_same(joined(parts), ew.explain(mine, graphs, [2, 0, 1], **pooled))


def pooled_output(model, data):
    return global_add_pool(model(data.x, data.edge_index), data.batch)


def _assert_same(ours, theirs):
    assert torch.equal(ours.index, theirs.index)
    assert torch.equal(ours.target, theirs.target)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one.edge_index, other.edge_index)
        torch.testing.assert_close(one.scores, other.scores)
        for name in ("self_scores", "standard_errors"):
            torch.testing.assert_close(getattr(one, name), getattr(other, name), equal_nan=True)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_a_bar_and_a_log_shows_a_line_when_it_takes_long(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("edgewise.progress.monotonic", lambda: now[0])
    for screen, shown in ((Terminal(), "5/12"), (io.StringIO(), "work: 4 of 12, about 20 s left\n")):
        monkeypatch.setattr(sys, "stderr", screen)
        with Voice(quiet=False).progress("work", 12) as tell:
            now[0] += 10
            tell(4)
            now[0] += 1
            tell(5)  # too soon for another line
        assert shown in screen.getvalue()
        assert "of 12, about 20 s left" not in screen.getvalue().replace(shown, "", 1)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Voice(quiet=True).progress("work", 12) as tell:
        tell(4)
    assert sys.stderr.getvalue() == ""


# Pages ################################################################################################################


def test_a_page_gets_the_question_the_names_and_the_story(mine, pages):
    found = printed("explain", *MINE, "--index", "3,5", "--page", "why.html")
    (given,) = pages
    assert found["page"] == "why.html"
    assert (given["index"], given["task"], given["target"]) == ([3, 5], "node", "predicted")
    assert not {"methods", "levels"} & set(given)  # the page's own
    assert given["settings"]["data"] == "graph.npz"
    assert given["settings"]["SHA-256 of weights"] == hashlib.sha256(Path("weights.pt").read_bytes()).hexdigest()
    call("explain", *MINE, "--method", "gradient,full", "--level", "layer", "--target", "label", "--page", "why.html")
    assert (pages[1]["methods"], pages[1]["levels"]) == (["gradient", "full"], ["layer"])
    assert pages[1]["target"] == ring().y.tolist()
    call("walks", *MINE, "--top", "7", "--page", "why.html")
    assert pages[2]["walks"] == 7


def test_a_page_shows_some_dozens_and_says_so(pages, monkeypatch):
    monkeypatch.setattr("edgewise.cli.session.PAGE_TARGETS", 4)
    assert "The page shows the first 4 of 12 targets" in call("explain", *MINE, "--page", "why.html").stderr
    assert pages[0]["index"] == [0, 1, 2, 3]
