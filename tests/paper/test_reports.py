"""Published numbers, verdicts, tables and pages."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from edgewise.errors import MissingExtraError
from edgewise_paper.comparison import ResultView, compare, published
from edgewise_paper.report import reasons
from edgewise_paper.report.document import (
    Document,
    FigureBlock,
    Heading,
    Items,
    Paragraph,
    TableBlock,
    as_markdown,
    as_page,
    depth_table,
    full_table,
)
from edgewise_paper.report.write import write_report
from edgewise_paper.runner import Reproduction
from edgewise_paper.task import PaperOptions, Row, Task, TaskOutcome
from edgewise_paper.verdicts import (
    INSIDE,
    OUTSIDE,
    TOO_FEW,
    TOO_WIDE,
    HeldPoint,
    ShareOfNetworks,
    prediction_interval,
)


def rows(*values, experiment="node-classification", quantity="cosine", dataset="Cora", layers=2, **columns):
    where = {"architecture": "GCN", "level": "input", "method": "gnn_explainer", "reference": "positive_gradient"}
    if quantity == "accuracy":
        where = {"architecture": "GCN"}
    return [
        Row(experiment, quantity, value, dataset=dataset, layers=layers, seed=seed, **(where | columns))
        for seed, value in enumerate(values)
    ]


# Published numbers ####################################################################################################


def test_every_published_number_of_the_paper_is_there():
    numbers = published()
    by_experiment = {}
    for key in numbers:
        by_experiment.setdefault((key[0], key[1]), []).append(key)
    assert len(by_experiment["node-classification", "accuracy"]) == 5 * 3 * 5
    assert len(by_experiment["graph-classification", "AUROC"]) == 3 * 3 * 5
    assert len(by_experiment["node-classification", "cosine"]) == 5 * 3 * 5 * (5 + 4) + 1  # and the example node
    assert len(by_experiment["graph-classification", "cosine"]) == 3 * 3 * 5 * (5 + 4)
    assert len(by_experiment["node-classification", "sign flips"]) == 5 * 3 * 5 * 3
    assert len(by_experiment["infection", "cosine"]) == 15 + 4 * 15
    assert all(not math.isnan(number.value) for number in numbers.values())


def test_published_numbers_are_those_of_the_paper():
    numbers = published()
    key = ("infection", "cosine", "Infection", "GraphSAGE", 4, "input", 0, "gnn_explainer", "positive_gradient", "")
    assert (numbers[key].value, numbers[key].deviation) == (0.8472, 0.0672)
    assert numbers["graph-classification", "AUROC", "MUTAG", "GIN", 3, "", 0, "", "", "code"].value == 0.8846
    assert numbers["sgc", "cosine", "Cora", "linear GCN", 5, "layer", 0, "full", "occlusion", "code"].value == 0.0989340


# Verdicts #############################################################################################################


def test_the_interval_of_one_more_seed_is_students_on_fishers_scale():
    from scipy.stats import t

    values = [0.80, 0.85, 0.90]
    there = np.arctanh(values)
    reach = t.ppf(0.975, 2) * there.std(ddof=1) * math.sqrt(4 / 3)
    expected = np.tanh([there.mean() - reach, there.mean() + reach])
    assert prediction_interval(values, "cosine") == pytest.approx(tuple(expected), abs=1e-9)
    there = np.log(np.array([0.2, 0.3, 0.4]) / (1 - np.array([0.2, 0.3, 0.4])))
    reach = t.ppf(0.975, 2) * there.std(ddof=1) * math.sqrt(4 / 3)
    expected = 1 / (1 + np.exp(-np.array([there.mean() - reach, there.mean() + reach])))
    assert prediction_interval([0.2, 0.3, 0.4], "sign flips", 100) == pytest.approx(tuple(expected), abs=1e-9)


def test_one_more_seed_lies_inside_the_interval_19_times_in_20_and_inside_the_range_9_times_in_11():
    drawn = np.tanh(np.random.default_rng(0).normal(0.8, 0.05, size=(2000, 11)))
    judged = [HeldPoint.of(row[10], row[:10].tolist(), "cosine") for row in drawn]
    assert np.mean([one.verdict == INSIDE for one in judged]) == pytest.approx(0.95, abs=0.015)
    assert np.mean([one.in_range for one in judged]) == pytest.approx(9 / 11, abs=0.03)


def test_there_is_no_verdict_from_few_seeds_or_from_a_wide_interval():
    assert HeldPoint.of(0.5, [0.5] * 9, "cosine").verdict == TOO_FEW
    assert HeldPoint.of(0.5, [0.1, 0.9] * 5, "cosine").verdict == TOO_WIDE
    assert HeldPoint.of(0.5, [0.5, 0.51] * 5, "cosine").verdict == INSIDE
    assert HeldPoint.of(0.6, [0.5, 0.51] * 5, "cosine").verdict == OUTSIDE
    assert HeldPoint.of(0.0, [0.0] * 10, "sign flips").verdict == INSIDE


def test_shares_are_counted_by_network():
    good, bad = HeldPoint.of(0.5, [0.5, 0.51] * 5, "cosine"), HeldPoint.of(0.9, [0.5, 0.51] * 5, "cosine")
    found = ShareOfNetworks.of([[good, good, good], [bad]])
    assert (found.networks, found.points, found.inside, found.seeds) == (2, 4, 0.5, 10)
    assert found.expected_in_range == pytest.approx(9 / 11)
    assert ShareOfNetworks.of([[HeldPoint.of(0.5, [0.5], "cosine")]]) is None


def test_seeds_are_averaged_and_their_spread_is_kept():
    (one,) = compare(rows(0.8, 1.0, math.nan)).values()
    assert (one.mean, one.low, one.high, one.seeds) == (pytest.approx(0.9), 0.8, 1.0, 3)
    assert one.spread == pytest.approx(0.1)
    assert one.difference == pytest.approx(0.9 - 0.89574)


# Reasons ##############################################################################################################


def sentences(made, reasons):
    task = Task("node-classification", "any", {})
    return " ".join(reasons(ResultView(Reproduction(PaperOptions(Path("out")), [], [(task, TaskOutcome(made))], []))))


def test_occlusion_without_signs_is_measured_against_the_published_curves():
    where = {"experiment": "graph-classification", "dataset": "MUTAG"}
    made = rows(0.5, method="occlusion", **where) + rows(0.746, method="occlusion", variant="code", **where)
    text = sentences(made, reasons.of_graphs)
    assert "published input-level curves is 0.009, with them 0.255" in text  # published 0.7553


# Tables and pages #####################################################################################################


def test_a_table_has_published_ours_and_the_difference():
    (line,) = full_table(compare(rows(0.9)).values(), "", lambda one: one.method).rows
    assert line == ("gnn_explainer", "0.8957", "0.900", "", "1", "+0.004")


def test_a_depth_table_has_a_column_for_each_depth():
    found = list(compare([*rows(0.9), *rows(0.5, layers=3)]).values())
    table = depth_table(found, "", lambda one: one.method)
    assert table.columns == ["", "2 layers", "3 layers"]
    assert table.rows == [["gnn_explainer", "0.900 (0.896)", "0.500 (0.846)"]]


REPORT = Document(
    [
        Heading("A <b>title</b>", 1),
        Paragraph("1 < 2"),
        Items(["<i>"]),
        TableBlock(["a|b", "verdict"], [["<script>", "as claimed"]], "caption & more"),
        TableBlock(["x"], [["0.5 ✗"]], "folded", folded=True),
        FigureBlock("a-figure", 'what "it" shows'),
    ]
)


def test_texts_are_escaped_on_the_page():
    page = as_page(REPORT, "t & u")
    assert "<script>" not in page
    assert "<b>" not in page
    for part in (
        "&lt;script&gt;",
        "1 &lt; 2",
        "<title>t &amp; u</title>",
        "figures/a-figure.svg",
        "<details>",
        'class="agrees"',
    ):
        assert part in page
    assert 'class="differs">0.5 ✗' in page


def test_markdown_has_everything():
    text = as_markdown(REPORT)
    for part in (
        "# A <b>title</b>",
        "- <i>",
        "| a\\|b | verdict |",
        "| --- | --- |",
        "figures/a-figure.png",
        "caption & more",
    ):
        assert part in text


def test_a_report_is_written_from_whatever_is_there(tmp_path):
    from edgewise_paper.registry import choose

    task = Task("node-classification", "input similarity", {"dataset": "Cora"})
    run = Reproduction(
        PaperOptions(tmp_path), choose([]), [(task, TaskOutcome(rows(0.9, 0.95)))], ["a note"], unfinished=3
    )
    paths = write_report(run)
    assert [path.name for path in paths] == ["report.md", "report.html", "results.parquet"]
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "a note" in text
    assert "Without a result: 3 tasks." in text
    assert "0.925±0.025 (0.896)" in text
    assert (tmp_path / "figures" / "real-input-similarity.png").stat().st_size > 1000
    assert not (tmp_path / "figures" / "few-passes.png").exists()
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(tmp_path / "results.parquet").to_pylist()
    assert [line["value"] for line in table] == [0.9, 0.95]


def test_a_report_of_nothing_can_be_written(tmp_path):
    from edgewise_paper.registry import choose

    assert write_report(Reproduction(PaperOptions(tmp_path), choose(["sgc"]), [], []))


def test_the_page_has_contents_and_every_heading_can_be_linked_to():
    page = as_page(Document([Heading("All", 1), Heading("One & two")]), "t")
    assert '<a href="#one-two">One &amp; two</a>' in page
    assert '<h2 id="one-two">One &amp; two</h2>' in page


def test_a_missing_package_of_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"jinja2.*edgewise\[paper\]"):
        as_page(REPORT, "t")
