"""The numbers of `--published` as a file, and the pages that are printed from it."""

from pathlib import Path

import pytest

from edgewise_paper.authors_code.audit import audit_page
from edgewise_paper.authors_code.experiments import run
from edgewise_paper.authors_code.pages import DATA_FILE, published_page
from edgewise_paper.authors_code.summary import collect, read
from edgewise_paper.context import Context
from edgewise_paper.data import NODE_SETS
from edgewise_paper.registry import choose
from edgewise_paper.task import PaperOptions, Row
from missing import skip_or_fail
from places import data_root

DOCS = Path(__file__).parents[2] / "docs"


def rows(values, **columns):
    where = {
        "quantity": "cosine", "dataset": "Cora", "architecture": "GCN", "layers": 2, "level": "layer",
        "method": "gnn_explainer", "reference": "occlusion",
    }  # fmt: skip
    where = {"experiment": "published-nodes", **where, **columns}
    return [Row(seed=seed, value=value, **where) for seed, value in enumerate(values)]


def test_numbers_are_read_as_they_were_written(tmp_path):
    found = collect([*rows([0.5, 0.25]), *rows([0.125], layers=3)])
    found.write(tmp_path / DATA_FILE)
    again = read(tmp_path / DATA_FILE)
    assert [one.columns for one in again.numbers] == [one.columns for one in found.numbers]
    assert [one.values for one in again.numbers] == [{0: 0.5, 1: 0.25}, {0: 0.125}]
    assert published_page(again) == published_page(found)


def test_a_number_finds_its_published_point_whatever_the_experiment_is_called():
    (one,) = collect(rows([0.55])).numbers
    assert one.published == pytest.approx(0.551, abs=1e-3)
    (corrected,) = collect(rows([0.2], dataset="MUTAG", reference="occlusion")).numbers
    assert corrected.published is None  # what was published is a cosine to gradients
    flips = {"quantity": "sign flips", "level": "", "method": "all", "reference": "any gradient"}
    (other,) = collect(rows([0.2], variant="weights 1 to 0", **flips)).numbers
    assert other.published is None


def test_points_of_one_network_are_counted_as_one():
    found = collect(
        [*rows([0.55, 0.552] * 5), *rows([0.1, 0.101] * 5, method="full"), *rows([0.4, 0.42] * 5, layers=3)]
    )
    share = found.share(dataset="Cora")
    assert (share.networks, share.points) == (2, 3)
    assert share.inside == pytest.approx((0.5 + 1) / 2)  # 0.551 inside, 0.282 outside; 0.417 inside


def test_the_pages_in_docs_are_those_that_their_command_prints():
    summary = read(DOCS / "reproduction" / DATA_FILE)
    assert (DOCS / "published.md").read_text(encoding="utf-8") == published_page(summary)
    assert (DOCS / "audit.md").read_text(encoding="utf-8") == audit_page(summary)


def test_what_must_hold_holds_in_the_stored_numbers():
    summary = read(DOCS / "reproduction" / DATA_FILE)
    share = summary.share(architecture="GCN", level="layer", method="gnn_explainer", dataset=NODE_SETS)
    assert share.points == 25
    assert share.inside >= 0.8
    for search, published in (("dag", 0.9908), ("amp_ave_additive", 0.9113)):
        one = summary.one(dataset="Infection", quantity="path recovery", method=search, variant="")
        assert one.values[0] == pytest.approx(published, abs=0.015)
    for layer, published in enumerate((0.670, 0.789, 0.798, 0.810), start=1):
        pair = {"method": "gnn_explainer", "reference": "positive_gradient"}
        one = summary.one(dataset="Infection", level="layer", layer=layer, **pair)
        assert one.values[0] == pytest.approx(published, abs=0.05)


def test_published_experiments_are_those_of_the_code_alone():
    names = {experiment.name for experiment in choose([], published=True)}
    assert names == {"published-planted", "published-linear", "published-nodes", "published-graphs"}
    assert not names & {experiment.name for experiment in choose([])}


def test_a_quick_run_trains_a_little_and_has_every_quantity(tmp_path):
    if not (data_root() / "cornell").is_dir():
        skip_or_fail(f"no cornell in {data_root()}")
    options = PaperOptions(tmp_path, data_root(), quick=True, published=True)
    tasks = [task for experiment in choose([], published=True) for task in experiment.tasks(options)]
    assert [task.settings["layers"] for task in tasks] == [1, 2]
    outcome = run(tasks[1], Context(options))
    quantities = {(row.quantity, row.level, row.variant) for row in outcome.rows}
    assert {
        ("accuracy", "", ""),
        ("cosine", "input", ""),
        ("cosine", "layer", ""),
        ("sign flips", "", ""),
    } <= quantities
    assert ("sign flips", "", "weights 1 to 0") in quantities
