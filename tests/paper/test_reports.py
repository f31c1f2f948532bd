"""Published numbers, verdicts, tables and pages."""

import math
import sys
from pathlib import Path

import pytest

from edgewise.errors import MissingExtraError
from edgewise_paper import comparison
from edgewise_paper.comparison import AGREES, DIFFERS, IN_RANGE, ResultView, compare, published
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
    share,
)
from edgewise_paper.report.write import write_report
from edgewise_paper.runner import Reproduction
from edgewise_paper.task import PaperOptions, Row, Task, TaskOutcome


def rows(*values, experiment="node-classification", quantity="cosine", dataset="Cora", layers=2, **columns):
    where = {"architecture": "GCN", "level": "input", "method": "gnn_explainer", "reference": "positive_gradient"}
    if quantity == "accuracy":
        where = {"architecture": "GCN"}
    return [
        Row(experiment, quantity, value, dataset=dataset, layers=layers, seed=seed, **(where | columns))
        for seed, value in enumerate(values)
    ]


def verdict(*values, **columns):
    (one,) = compare(rows(*values, **columns)).values()
    return one.verdict


# Published numbers ####################################################################################################


def test_every_published_number_of_the_paper_is_there():
    numbers = published()
    by_experiment = {}
    for key in numbers:
        by_experiment.setdefault((key[0], key[1]), []).append(key)
    assert len(by_experiment["node-classification", "accuracy"]) == 5 * 3 * 5
    assert len(by_experiment["graph-classification", "AUROC"]) == 3 * 3 * 5
    assert len(by_experiment["node-classification", "cosine"]) == 5 * 3 * 5 * (5 + 4)
    assert len(by_experiment["graph-classification", "cosine"]) == 3 * 3 * 5 * (5 + 4) - 2  # two points are hidden
    assert len(by_experiment["node-classification", "sign flips"]) == 5 * 3 * 5 * 3
    assert len(by_experiment["infection", "cosine"]) == 15 + 4 * 15
    assert all(not math.isnan(number.value) for number in numbers.values())


def test_published_numbers_are_those_of_the_paper():
    numbers = published()
    key = ("infection", "cosine", "Infection", "GraphSAGE", 4, "input", 0, "gnn_explainer", "positive_gradient", "")
    assert (numbers[key].value, numbers[key].deviation) == (0.8472, 0.0672)
    assert numbers["graph-classification", "AUROC", "MUTAG", "GIN", 3, "", 0, "", "", "code"].value == 0.8846
    assert numbers["sgc", "cosine", "Cora", "linear GCN", 5, "layer", 0, "full", "occlusion", "code"].value == 0.099


# Verdicts #############################################################################################################


def test_a_number_within_the_tolerance_agrees():
    assert verdict(0.896 + 0.079) == AGREES
    assert verdict(0.896 - 0.081) == DIFFERS


def test_a_published_number_inside_the_range_over_seeds_is_in_our_range():
    assert verdict(0.5, 0.99) == IN_RANGE
    assert verdict(0.5, 0.6) == DIFFERS


def test_a_point_that_was_read_off_is_inside_the_range_only_with_what_reading_costs():
    (one,) = compare(rows(0.60, 0.893)).values()  # published 0.896
    assert not one.inside_range()
    assert one.verdict == DIFFERS
    assert one.inside_range(0.005)


def test_where_one_more_seed_would_lie_is_students_interval():
    (one,) = compare(rows(0.80, 0.85, 0.90)).values()  # 0.85 ± 4.303 · 0.05 · √(4/3)
    assert one.inside_prediction
    (one,) = compare(rows(0.790, 0.800, 0.810)).values()  # ± 0.0497
    assert not one.inside_prediction
    (one,) = compare(rows(0.840, 0.850, 0.860)).values()
    assert one.inside_prediction
    assert not compare(rows(0.896))[one.key].inside_prediction  # one seed says nothing about another


def test_accuracies_of_few_nodes_have_the_interval_of_chance():
    assert verdict(0.60, quantity="accuracy", dataset="Cornell", count=37) == IN_RANGE  # published 0.4864
    assert verdict(0.60, quantity="accuracy", dataset="Cornell", count=3700) == DIFFERS
    assert verdict(0.81, quantity="accuracy", count=497) == AGREES


def test_without_a_published_number_there_is_no_verdict():
    assert verdict(0.5, layers=7) == ""
    assert verdict(math.nan) == ""


def test_seeds_are_averaged_and_their_spread_is_kept():
    (one,) = compare(rows(0.8, 1.0, math.nan)).values()
    assert (one.mean, one.low, one.high, one.seeds) == (pytest.approx(0.9), 0.8, 1.0, 3)
    assert one.spread == pytest.approx(0.1)
    assert one.difference == pytest.approx(0.9 - 0.896)


# Reasons ##############################################################################################################


def sentences(made, reasons):
    task = Task("node-classification", "any", {})
    return " ".join(reasons(ResultView(Reproduction(PaperOptions(Path("out")), [], [(task, TaskOutcome(made))], []))))


def test_the_start_of_the_layerwise_explainer_is_judged_on_large_and_small_graphs():
    where = {"level": "layer", "reference": "occlusion", "layers": 3}
    made = rows(0.617, variant="code", **where) + rows(0.427, variant="code, wide start", **where)  # published 0.417
    made += rows(0.458, variant="code", dataset="Wisconsin", **where)  # published 0.438
    text = sentences(made, reasons.of_nodes)
    assert "published points is 0.020 on Cornell, Texas and Wisconsin and 0.200 on Cora and CiteSeer" in text
    assert "it is 0.010 on Cora and CiteSeer" in text


def test_the_linear_network_says_how_far_it_is_off():
    where = {"experiment": "sgc", "architecture": "linear GCN", "layers": 5}
    fitted = {"level": "layer", "reference": "occlusion", "variant": "code, wide start"}
    text = sentences(rows(0.782, **where) + rows(0.441, **where, **fitted), reasons.of_sgc)  # published 0.779, 0.451
    assert "over 1 cosine without the fitted start" in text
    assert "0.003 at most" in text
    assert "with the start that was fitted to 1 number: 0.010 at most" in text


def test_occlusion_without_signs_and_an_early_network_are_measured_against_the_published_curves():
    where = {"experiment": "graph-classification", "dataset": "MUTAG"}
    made = rows(0.5, method="occlusion", **where) + rows(0.746, method="occlusion", variant="code", **where)
    made += rows(
        0.781, architecture="GCN after 100 epochs", method="gradient", variant="code", **where
    )  # published 0.783
    text = sentences(made, reasons.of_graphs)
    assert "published input-level curves is 0.010, with them 0.256" in text  # published 0.756
    assert "of two to five layers is 0.002, at the end 0.010" in text


# Tables and pages #####################################################################################################


def test_a_table_has_published_ours_difference_and_verdict():
    (line,) = full_table(compare(rows(0.9)).values(), "", lambda one: one.method).rows
    assert line == ("gnn_explainer", "0.8960", "0.900", "", "1", "+0.004", AGREES)


def test_a_depth_table_has_a_column_for_each_depth():
    found = list(compare([*rows(0.9), *rows(0.5, layers=3)]).values())
    table = depth_table(found, "", lambda one: one.method)
    assert table.columns == ["", "2 layers", "3 layers"]
    assert table.rows == [["gnn_explainer", "0.900 (0.896) ✓", "0.500 (0.846) ✗"]]
    assert share(found) == (1, 2)


REPORT = Document(
    [
        Heading("A <b>title</b>", 1),
        Paragraph("1 < 2"),
        Items(["<i>"]),
        TableBlock(["a|b", "verdict"], [["<script>", "agrees"]], "caption & more"),
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
    assert "0.925±0.025 (0.896) ✓" in text
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


@pytest.mark.parametrize(("package", "act"), [("scipy.stats", "compare"), ("jinja2", "page")])
def test_a_missing_package_of_the_extra_is_named(monkeypatch, package, act):
    comparison._student.cache_clear()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package.split('.')[0]}.*edgewise\[paper\]"):
        as_page(REPORT, "t") if act == "page" else next(iter(compare(rows(0.8, 0.9)).values())).inside_prediction
