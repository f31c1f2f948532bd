"""What notebooks show: small, escaped, and never an exception."""

import re
import sys

import torch

from edgewise import Explanation
from edgewise.results.entries import Entries, Part
from edgewise.results.explanation import Settings
from edgewise.results.explanation_set import ExplanationSet
from walk_sets import walk_set

EDGES = torch.stack([torch.arange(1, 21), torch.zeros(20, dtype=torch.long)])


def explanation(**changes):
    given = {
        "scores": torch.linspace(-2, 3, 20),
        "edge_index": EDGES,
        "num_nodes": 21,
        "index": 0,
        "target": 1,
        "value": 0.5,
    }
    return Explanation(**(given | changes))


def several(size):
    entries = Entries([Part(torch.arange(size), torch.arange(size), torch.ones(size))], size)
    index = torch.arange(size)
    return ExplanationSet(
        index, index, index / 2, "gradient", "input", 1, ((EDGES, 21),), entries, settings=Settings({"task": "node"})
    )


def cells(html):
    return re.findall(r"<td>(.*?)</td>", html)


def test_an_explanation_shows_its_ten_strongest_edges_and_a_picture():
    html = explanation()._repr_html_()
    assert cells(html)[:2] == ["20 → 0", "+3"]
    assert len(cells(html)) == 20
    assert "10 more scores" in html
    assert 'src="data:image/png;base64,' in html
    assert len(html) < 200_000


def test_a_layerwise_explanation_shows_the_layer():
    scores = torch.zeros(2, 20)
    scores[1, 3] = -4.0
    assert cells(explanation(scores=scores, level="layer")._repr_html_()) == ["4 → 0", "-4", "1"]


def test_a_set_shows_its_first_targets_and_the_picture_of_the_first():
    html = several(12)._repr_html_()
    assert cells(html)[:5] == ["0", "0", "0", "1 → 0", "+1"]
    assert len(cells(html)) == 50
    assert "2 more targets" in html
    assert html.count("<img") == 1


def test_walks_show_rank_score_and_nodes():
    html = walk_set()._repr_html_()
    assert cells(html)[:3] == ["1", "+4", "0 → 1 → 3"]
    assert "<img" in html


def test_text_is_escaped():
    html = explanation(method="<script>alert(1)</script>")._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_without_matplotlib_the_table_is_still_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    html = explanation()._repr_html_()
    assert "<img" not in html
    assert cells(html)


def test_results_that_cannot_be_shown_fall_back_to_text():
    broken = explanation(scores="<not a tensor>")
    assert broken._repr_html_() == "<pre>Explanation</pre>"


def test_empty_results_are_shown():
    nothing = torch.zeros(2, 0, dtype=torch.long)
    assert "<table" in explanation(scores=torch.zeros(0), edge_index=nothing, num_nodes=1)._repr_html_()
    assert "<table" in walk_set(())._repr_html_()
    assert "<table" in several(3)[[]]._repr_html_()
