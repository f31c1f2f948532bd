import sys
from types import SimpleNamespace

import pytest
import torch
from matplotlib.patches import FancyArrowPatch

from edgewise.errors import MissingExtraError
from edgewise.report import draw

EDGES = torch.tensor([[0, 1, 1, 1, 2, 3, 0, 4], [1, 0, 0, 1, 1, 2, 0, 5]])  # both ways, parallel, loops, a stray
SCORES = torch.tensor([1.0, -2.0, 0.5, 0.7, -0.3, 2.5, 1.2, 0.9])


def explanation(scores=SCORES, level="input", **changes):
    given = {"edge_index": EDGES, "num_nodes": 6, "index": 1, "target": 3, "value": 1.5, "method": "gradient"}
    settings = {"task": changes.pop("task", "node"), "mode": "multiclass", "of": "logit"}
    return SimpleNamespace(scores=scores, level=level, settings=settings, **(given | changes))


def arrows(figure):
    return [patch for patch in figure.axes[0].patches if isinstance(patch, FancyArrowPatch)]


def texts(figure):
    return " ".join([figure.axes[0].get_title(), figure.legends[0].get_title().get_text()])


def test_every_edge_gets_its_own_arrow_and_width_follows_magnitude():
    widths = [arrow.get_linewidth() for arrow in arrows(draw(explanation()))]
    assert len(widths) == len(SCORES)
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]


def test_support_and_opposition_of_equal_strength_differ_in_colour_only():
    scores = torch.tensor([1.0, -1.0, 0, 0, 0, 0, 0, 0])
    one, other = arrows(draw(explanation(scores)))
    assert one.get_linewidth() == other.get_linewidth()
    assert one.get_edgecolor() != other.get_edgecolor()


def test_edges_left_out_are_counted():
    figure = draw(explanation(), edges=3)
    assert len(arrows(figure)) == 3
    assert "3 strongest of 8" in texts(figure)
    assert "5 are not drawn" in texts(figure)


def test_layer_scores_are_summed_and_the_title_says_so():
    layered = torch.stack([SCORES, -SCORES, SCORES])
    figure = draw(explanation(layered, level="layer"))
    assert len(arrows(figure)) == len(SCORES)
    assert "sum over 3 layers" in texts(figure)


def test_nothing_to_draw_is_said_in_words():
    figure = draw(explanation(torch.zeros(8)))
    assert not arrows(figure)
    assert "zero" in texts(figure)


@pytest.mark.parametrize("nothing", [torch.zeros(2, 0, dtype=torch.long)])
def test_a_graph_without_edges_can_be_drawn(nothing, tmp_path):
    draw(explanation(torch.zeros(0), edge_index=nothing)).savefig(tmp_path / "empty.png")
    assert (tmp_path / "empty.png").stat().st_size > 0


def test_a_graph_task_has_no_explained_node():
    figure = draw(explanation(task="graph", index=17))
    assert "graph 17" in texts(figure)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["receiver of the strongest edge"]


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"edgewise\[plot\]"):
        draw(explanation())
