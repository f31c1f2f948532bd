"""Sentiment trees in place of Graph-SST2, on a small treebank in its format."""

import pytest

from edgewise_paper import sentiment, walk_cost
from edgewise_paper.context import Context
from edgewise_paper.task import PaperOptions, Task

GOOD, BAD = "(4 (2 A) (4 (4 lovely) (2 film)))", "(0 (2 A) (0 (0 dull) (1 (2 old) (1 film))))"


@pytest.fixture
def treebank(tmp_path):
    inside = tmp_path / "data" / "SST" / "trees"
    inside.mkdir(parents=True)
    for name in ("train", "dev", "test"):
        (inside / f"{name}.txt").write_text("\n".join([GOOD, BAD] * 6))
    return tmp_path / "data"


def test_a_network_on_trees_has_cosines_and_ranks_phrases(tmp_path, treebank):
    options = PaperOptions(tmp_path, treebank)
    tasks = sentiment.tasks(options)
    assert {(task.settings["architecture"], task.settings["layers"]) for task in tasks} == {
        (name, layers) for name in ("GCN", "GIN") for layers in (1, 2, 3)
    }
    small = Task(sentiment.NAME, "network", {**tasks[1].settings, "epochs": 3, "sentences": 4})
    rows = sentiment.run(small, Context(options)).rows
    kinds = {(row.quantity, row.level) for row in rows}
    assert kinds == {
        ("accuracy", ""), ("cosine", "input"), ("cosine", "layer"), ("AUROC against phrase labels", "input"),
    }  # fmt: skip
    assert all(row.count == 4 for row in rows if row.quantity.startswith("AUROC"))
    assert not sentiment.notes(options)


def test_without_the_treebank_there_is_a_note_and_no_task(tmp_path):
    options = PaperOptions(tmp_path, tmp_path)
    assert sentiment.tasks(options) == []
    assert "SST/trees/train.txt" in sentiment.notes(options)[0]


def test_the_cost_of_a_search_is_measured_at_every_size(tmp_path):
    (edges, *_) = walk_cost.tasks(PaperOptions(tmp_path, quick=True))
    small = Task(walk_cost.NAME, "edges", {**edges.settings, "nodes": 50, "sizes": [200, 400], "width": 8})
    rows = walk_cost.run(small, Context(PaperOptions(tmp_path))).rows
    assert [row.quantity for row in rows] == ["seconds of the processor"] * 2 + ["exponent"]
    assert walk_cost.slope([1, 10], [2.0, 200.0]) == pytest.approx(2.0)
