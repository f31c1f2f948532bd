"""`edgewise reproduce`: runs, is interrupted, goes on, and gives the same rows again."""

import os
import signal

import pytest
import torch
from typer.testing import CliRunner

from command_line import read_until, running
from edgewise.cli.app import app
from edgewise.jobs.passage import WorkerAnswer
from edgewise_paper import node_classification, runner
from edgewise_paper.context import Context
from edgewise_paper.node_classification import parts_on_nodes
from edgewise_paper.runner import plan, reproduce
from edgewise_paper.store import Store
from edgewise_paper.task import PaperOptions, Task, TaskOutcome
from edgewise_paper.training.networks import LINEAR, Recipe, network_tasks
from edgewise_paper.workers import work
from missing import skip_or_fail
from places import data_root


def numbers(outcomes):
    """Rows without what differs from run to run."""
    rows = [row.plain() | {"seconds": None} for _, outcome in outcomes for row in outcome.rows]
    return [str(row) for row in rows if row["quantity"] not in ("seconds", "seconds per target")]


# The command line #####################################################################################################


def test_help_names_every_experiment_and_option():
    shown = CliRunner().invoke(app, ["reproduce", "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    for part in (
        "negative-evidence-multiclass",
        "theorems",
        "--seeds",
        "--out",
        "--data",
        "--device",
        "--quick",
        "--flip-edges",
    ):
        assert part in shown


def test_a_misspelt_experiment_is_an_error_with_a_guess(tmp_path):
    result = CliRunner().invoke(app, ["reproduce", "theorem", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "Did you mean 'theorems'?" in result.output
    assert not any(tmp_path.iterdir())


def test_a_missing_data_folder_is_an_error_before_any_work(tmp_path):
    result = CliRunner().invoke(
        app, ["reproduce", "sgc", "--data", str(tmp_path / "no"), "--out", str(tmp_path / "out")]
    )
    assert result.exit_code == 1
    assert "--data" in result.output


def test_a_folder_that_cannot_be_written_is_an_error_without_a_traceback(tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["reproduce", "theorems", "--quick", "--out", str(tmp_path / "file" / "inside")])
    assert result.exit_code == 1
    assert "Nothing can be written into" in result.output
    assert "--out" in result.output
    assert "Traceback" not in result.output


def test_the_version_is_printed():
    assert CliRunner().invoke(app, ["--version"]).output.startswith("edgewise ")


# Running ##############################################################################################################


class Inline:
    """A pool that works at once, in this process."""

    def __init__(self, passage, workers, patience):
        (options,) = passage.make.args
        self.context = Context(options)

    def __class_getitem__(cls, _):
        return cls

    def answers(self, take):
        while (task := take()) is not None:
            report = work(task, self.context)
            yield task, WorkerAnswer({"seconds": report.seconds, "problem": report.problem}, [])


@pytest.fixture
def inline(monkeypatch):
    monkeypatch.setattr(runner, "WorkerPool", Inline)


def test_theorems_run_from_the_command_line_and_every_one_is_as_claimed(tmp_path, inline):
    result = CliRunner().invoke(app, ["reproduce", "theorems", "--quick", "--workers", "1", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert text.count("| as claimed |") == len(plan(["theorems"], PaperOptions(tmp_path, quick=True))[1])
    assert "left" in result.stderr


def test_a_second_run_computes_nothing_and_fresh_rows_are_those_that_were_kept(tmp_path, monkeypatch, inline):
    options = PaperOptions(tmp_path / "one", quick=True, workers=1)
    _, tasks, _ = plan(["theorems"], options)
    first = reproduce(["theorems"], options)
    events = []
    monkeypatch.setattr(runner, "WorkerPool", None)  # no worker may be started
    again = reproduce(["theorems"], options, events.append)
    assert numbers(first.outcomes) == numbers(again.outcomes)
    assert [event.kind for event in events] == ["planned"]
    context = Context(PaperOptions(tmp_path / "two", quick=True))
    for task in tasks[:3]:
        assert not work(task, context).problem
        assert numbers([(task, context.store.result(task))]) == numbers([(task, Store(options.out).result(task))])


def test_a_task_that_fails_is_reported_and_the_others_are_done(tmp_path, monkeypatch, inline):
    good = Task("theorems", "Sensitivity-n, linear", {"trials": 1, "seed": 0})
    bad = Task("theorems", "no such statement", {"trials": 1, "seed": 0})
    needs_bad = Task("theorems", "Proposition 5: GOAt as a sum over walks", {"trials": 1, "seed": 0}, after=bad)
    monkeypatch.setattr(runner, "plan", lambda *_: ([], [needs_bad, bad, good], []))
    run = reproduce([], PaperOptions(tmp_path, workers=1))
    assert [report.task.part for report in run.problems] == [bad.part, needs_bad.part]
    assert "KeyError" in run.problems[0].problem
    assert "no such statement" in run.problems[1].problem
    assert [task.part for task, _ in run.outcomes] == [good.part]
    assert run.unfinished == 2


def results(folder):
    return {path.name: path.stat().st_mtime_ns for path in (folder / "cache" / "results").glob("*.json")}


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_was(tmp_path):
    arguments = ["reproduce", "theorems", "--quick", "--workers", "1", "--out", tmp_path]
    with running(*arguments) as process:
        read_until(process, "[2/15]")
    done = results(tmp_path)
    assert done
    assert not (tmp_path / "report.md").exists()
    with running(*arguments) as again:
        _, errors = again.communicate()
    assert again.returncode == 0, errors
    assert (tmp_path / "report.md").exists()
    now = results(tmp_path)
    assert len(now) == len(plan(["theorems"], PaperOptions(tmp_path, quick=True))[1])
    assert {name: now[name] for name in done} == done, "something finished was computed again"
    assert not list((tmp_path / "cache").rglob(".*")), "a half-written file was left"


def test_ctrl_c_stops_the_workers_and_says_how_to_go_on(tmp_path):
    with running("reproduce", "theorems", "--quick", "--workers", "1", "--out", tmp_path) as process:
        read_until(process, "[1/15]")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process
        _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "Nothing is lost" in errors
    assert "Traceback" not in errors


# Planted data #########################################################################################################


@pytest.mark.parametrize(
    ("name", "signed"),
    [("negative-evidence", True), pytest.param("negative-evidence-multiclass", False, marks=pytest.mark.slow)],
)
def test_negative_evidence_is_reproduced(tmp_path, inline, name, signed):
    run = reproduce([name], PaperOptions(tmp_path, quick=True, workers=1))
    ((_, outcome),) = run.outcomes
    found = {(row.quantity, row.method, row.variant): row.value for row in outcome.rows}
    assert found["accuracy", "", ""] == 1.0
    assert found["cosine", "gnn_explainer", ""] >= 0.995
    if signed:
        assert found["cosine", "gnn_explainer − reversed", ""] >= 0.96
    picture = outcome.pictures["negative evidence"]
    assert len(picture["scores"]) == (3 if signed else 2)
    assert all(len(scores) == len(picture["colours"]) for scores in picture["scores"].values())
    gradients = dict(zip(picture["colours"], map(abs, picture["scores"]["edge gradients"]), strict=True))
    assert gradients["gray"] < 0.01 < max(gradients.values())


@pytest.mark.slow
def test_paths_of_infection_are_searched_in_every_way(tmp_path, inline):
    _, tasks, _ = plan(["infection"], PaperOptions(tmp_path))  # all nodes; a quick run takes each eighth
    (task,) = [one for one in tasks if one.part == "paths" and one.settings["seed"] == 0]
    context = Context(PaperOptions(tmp_path))
    assert not work(task, context).problem
    outcome = context.store.result(task)
    recovered = {(row.method, row.variant): row.value for row in outcome.rows if row.quantity == "path recovery"}
    assert set(recovered) == {
        (search, variant)
        for search in ("exact", "dag", "amp_ave", "amp_ave_additive", "emp_neu")
        for variant in ("", "code")
    }
    assert all(0.5 < share <= 1 for share in recovered.values())
    maximal = {row.method: row.value for row in outcome.rows if row.quantity == "walk is maximal"}
    assert maximal["exact"] == 1.0
    assert maximal["dag"] < 1.0, "Algorithm 1 is not exact for four layers"
    picture = outcome.pictures["infection paths"]
    infected, walks = picture["infected"], picture["walks"]
    assert walks["dag"][0] in infected
    assert walks["dag"][-1] == walks["amp_ave_additive"][-1] == picture["node"]
    assert len(set(walks["dag"])) == picture["class"] + 1


# Networks #############################################################################################################


@pytest.fixture
def cornell(tmp_path):
    if not (data_root() / "cornell").is_dir():
        skip_or_fail(f"no cornell in {data_root()}")
    return Context(PaperOptions(tmp_path, data_root(), flip_edges=60))


def test_the_four_tasks_of_a_network_find_what_the_figures_need_and_use_one_training(cornell, monkeypatch):
    recipe = Recipe("Cornell", "GCN", 2, 0, epochs=5)
    tasks = network_tasks("node-classification", recipe, lambda *_: 1.0, parts_on_nodes(60))
    outcomes = [node_classification.run(task, cornell) for task in tasks]
    assert len(list((cornell.store.folder / "models").iterdir())) == 1
    assert not list((cornell.store.folder / "checkpoints").iterdir())
    accuracy, near, layerwise, flips = (outcome.rows for outcome in outcomes)
    assert accuracy[0].count == 37
    text = {(row.method, row.variant) for row in near}
    assert text == {(m, "") for m in ("gnn_explainer", "gradient", "occlusion", "random", "full")} | {
        ("full", "computation graph")
    }
    assert {row.variant for row in layerwise if row.method == "gnn_explainer"} == {"", "one vector"}
    assert {row.variant for row in layerwise if row.method == "full"} == {"", "code"}
    assert len(flips) == 2 * 2 * 3
    assert all(row.settings["training"] == recipe.plain for row in [*near, *layerwise, *flips])
    assert all(-1 <= row.value <= 1 for row in [*near, *layerwise, *flips])
    monkeypatch.setattr("edgewise_paper.training.train.train_on_nodes", None)  # the kept one is read
    again = node_classification.run(tasks[1], cornell)
    assert numbers([(tasks[1], again)]) == numbers([(tasks[1], outcomes[1])])


def test_a_kept_model_is_the_trained_one(cornell):
    recipe = Recipe("Cornell", "GIN", 2, 0, epochs=3)
    (one, seconds), (other, again) = cornell.trained(recipe), cornell.trained(recipe)
    assert seconds == again
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_the_linear_network_has_layer_gradients_that_are_occlusion(cornell):
    recipe = Recipe("Cornell", LINEAR, 3, 0, epochs=20)
    _, _, layerwise, *_ = network_tasks("sgc", recipe, lambda *_: 1.0, parts_on_nodes(10))
    outcome = node_classification.run(layerwise, cornell)
    (row,) = [row for row in outcome.rows if row.method == "gradient" and row.variant == ""]
    assert row.value == pytest.approx(1.0, abs=1e-5)


def test_an_outcome_without_rows_is_an_outcome():
    assert TaskOutcome([]).pictures == {}


def test_a_quick_run_is_planned_for_two_minutes_and_a_published_seed_for_an_hour_on_two_cores(tmp_path):
    for options, limit in ((PaperOptions(tmp_path, quick=True), 120), (PaperOptions(tmp_path, published=True), 3600)):
        _, tasks, _ = plan(["all"], options)
        assert 0 < sum(task.cost for task in tasks) / 2 < limit
        assert max(task.cost for task in tasks) < limit
