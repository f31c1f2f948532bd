import sys

import pytest
import torch
from matplotlib.patches import FancyArrowPatch

from edgewise import Explanation, InputError, MissingExtraError, SettingError
from edgewise.report import draw
from edgewise.report.appearance import OPPOSES, SUPPORTS, rgb, signed_colour

EDGES = torch.tensor([[0, 1, 1, 1, 2, 3, 0, 4], [1, 0, 0, 1, 1, 2, 0, 5]])  # both ways, parallel, loops, a stray
SCORES = torch.tensor([1.0, -2.0, 0.5, 0.7, -0.3, 2.5, 1.2, 0.9])
OWN = torch.tensor([[0.0, 4.0, 0, 0, 0, 0], [0.0, -5.0, 0, 0, 0, 0]])


def explanation(scores=SCORES, level="input", **changes):
    given = {"edge_index": EDGES, "num_nodes": 6, "index": 1, "target": 3, "value": 1.5, "method": "gradient"}
    settings = {"task": changes.pop("task", "node"), "mode": "multiclass", "of": "logit"}
    return Explanation(scores=scores, level=level, settings=settings, **(given | changes))


def layered(**changes):
    return explanation(torch.stack([SCORES, -SCORES]), level="layer", **changes)


def arrows(figure):
    return [patch for patch in figure.axes[0].patches if isinstance(patch, FancyArrowPatch)]


def dashed(figure):
    return [arrow for arrow in arrows(figure) if arrow.get_linestyle() not in ("-", "solid")]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def written(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def circles(figure):
    return [artist for artist in figure.axes[0].collections if str(artist.get_gid()).startswith("node-")]


def texts(figure):
    return " ".join(f"{figure.get_suptitle()} {figure.legends[0].get_title().get_text()}".split())


def test_every_edge_gets_its_own_arrow_and_width_follows_magnitude():
    widths = [arrow.get_linewidth() for arrow in arrows(draw(explanation()))]
    assert len(widths) == len(SCORES)
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]


def test_the_two_directions_of_an_edge_run_apart():
    figure = draw(explanation(torch.tensor([1.0, -1.0, 0, 0, 0, 0, 0, 0])))
    figure.draw_without_rendering()
    middles = [arrow.get_path().vertices.mean(axis=0) for arrow in arrows(figure)]
    assert abs(middles[0] - middles[1]).max() > 0.05


def test_support_and_opposition_of_equal_strength_differ_in_colour_only():
    scores = torch.tensor([1.0, -1.0, 0, 0, 0, 0, 0, 0])
    one, other = arrows(draw(explanation(scores)))
    assert one.get_linewidth() == other.get_linewidth()
    assert one.get_edgecolor() != other.get_edgecolor()


def test_colours_go_from_orange_over_white_to_purple():
    shades = [signed_colour(score, 4.0) for score in (-4.0, -0.5, 0.0, 0.5, 4.0)]
    assert [shades[0], shades[2], shades[4]] == [OPPOSES, "#ffffff", SUPPORTS]
    assert all(min(rgb(shades[i])) > min(rgb(shades[j])) for i, j in ((1, 0), (3, 4)))


def test_edges_left_out_are_counted():
    figure = draw(explanation(), edges=3)
    assert len(arrows(figure)) == 3
    assert "3 strongest of 8" in texts(figure)
    assert "5 more, " in texts(figure)


def test_the_legend_has_the_numbers():
    assert legend(draw(explanation())) == [
        "explained node",
        "strongest support +2.5",
        "strongest opposition −2",
        "weakest drawn −0.3",
    ]


def test_a_target_with_200_neighbours_shows_the_strongest_of_them():
    hub = torch.stack([torch.arange(1, 201), torch.zeros(200, dtype=torch.long)])
    scores = torch.linspace(-1, 2, 200)
    figure = explanation(scores, edge_index=hub, num_nodes=201, index=0).plot()
    assert len(arrows(figure)) == 40
    assert len(circles(figure)) == 41
    assert "160 more, " in texts(figure)
    figure.draw_without_rendering()
    spots = [artist.get_offset_transform().transform(artist.get_offsets())[0].tolist() for artist in circles(figure)]
    apart = torch.pdist(torch.tensor(spots))
    assert float(apart.min()) > 2 * 8.5 * figure.dpi / 72  # no circle touches another


def test_a_layerwise_explanation_is_unrolled_from_the_features_to_the_target():
    figure = layered(self_scores=OWN).plot()
    assert len(arrows(figure)) == 2 * len(SCORES) + 2
    assert len(dashed(figure)) == 2  # the self scores
    assert {"features", "output", "layer 0 →", "layer 1 →"} <= set(written(figure))
    assert {f"node-{column}-1" for column in range(3)} <= {artist.get_gid() for artist in circles(figure)}
    assert "strongest opposition −5" in legend(figure)
    assert "stays on the node (self score)" in legend(figure)


def test_in_the_unrolled_picture_a_node_keeps_its_row_and_a_step_goes_one_column_on():
    figure = layered(self_scores=OWN).plot()
    place = {artist.get_gid(): tuple(artist.get_offsets()[0]) for artist in circles(figure)}
    assert len({place[f"node-{column}-1"][1] for column in range(3)}) == 1
    assert [place[f"node-{column}-1"][0] for column in range(3)] == [0, 1, 2]


def test_layer_scores_are_summed_if_asked_and_the_title_says_so():
    three = torch.stack([SCORES, -SCORES, SCORES])
    figure = draw(explanation(three, level="layer"), view="graph")
    assert len(arrows(figure)) == len(SCORES)
    assert "sum over 3 layers" in texts(figure)


def test_nothing_to_draw_is_said_in_words():
    figure = draw(explanation(torch.zeros(8)))
    assert not arrows(figure)
    assert "zero" in texts(figure)


def test_scores_that_are_not_finite_are_counted_and_not_drawn():
    scores = SCORES.clone()
    scores[0], scores[1] = torch.nan, torch.inf
    figure = draw(explanation(scores))
    assert len(arrows(figure)) == 6
    assert "2 scores are NaN or infinite" in texts(figure)


@pytest.mark.parametrize("task", ["node", "graph"])
def test_a_graph_of_one_node_can_be_drawn(task, tmp_path):
    nothing = torch.zeros(2, 0, dtype=torch.long)
    figure = explanation(torch.zeros(0), edge_index=nothing, num_nodes=1, index=0, task=task).plot()
    figure.savefig(tmp_path / "one.png")
    assert len(circles(figure)) == 1
    assert written(figure) == ["0"]


def test_scores_all_over_a_large_graph_are_drawn_without_all_the_ways_between():
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, 5000, (2, 12000), generator=generator)
    figure = explanation(torch.rand(12000, generator=generator), edge_index=edges, num_nodes=5000).plot()
    assert len(arrows(figure)) == 40
    assert len(circles(figure)) < 160


def test_a_small_graph_is_shown_whole_and_has_no_explained_node():
    figure = draw(explanation(task="graph", index=17), edges=2)
    assert "graph 17" in texts(figure)
    assert "explained node" not in legend(figure)
    assert len(circles(figure)) == 6


def test_a_large_graph_is_shown_around_its_strongest_edge():
    figure = draw(explanation(task="graph", index=17, num_nodes=1000))
    assert legend(figure)[0] == "receiver of the strongest edge"


def test_short_labels_stand_in_the_circles_and_long_ones_beside_them():
    assert set(written(draw(explanation(), labels=list("CNOFHI")))) == set("CNOFHI")
    assert {"Dijkstra 1959", "1"} <= set(written(draw(explanation(), labels={1: "Dijkstra 1959"})))


@pytest.mark.parametrize("level", ["input", "layer"])
def test_long_labels_stay_clear_of_title_and_legend(level):
    hub = torch.stack([torch.arange(1, 31), torch.zeros(30, dtype=torch.long)])
    scores = torch.linspace(-1, 2, 30) if level == "input" else torch.linspace(-1, 2, 30).repeat(2, 1)
    why = explanation(scores, level=level, edge_index=hub, num_nodes=31, index=0)
    figure = why.plot(labels=[f"a paper with number {node}" for node in range(31)])
    figure.draw_without_rendering()
    labels = [text.get_window_extent() for text in figure.axes[0].texts if text.get_text().startswith("a paper")]
    assert len(labels) >= 16
    others = [figure.legends[0].get_window_extent(), figure._suptitle.get_window_extent()]
    assert not any(label.overlaps(other) for label in labels for other in others)
    assert all(label.x0 >= 0 and label.x1 <= figure.bbox.x1 for label in labels)


def test_self_scores_that_a_flat_picture_leaves_out_are_summed_up():
    assert "Self scores, −1 in all, are not drawn" in texts(explanation(self_scores=OWN.sum(dim=0)).plot())
    assert "Self scores" not in texts(layered(self_scores=OWN).plot())


def test_labels_that_nodes_share_get_the_number_too():
    assert set(written(draw(explanation(), labels=list("CCCNOO")))) == {"C0", "C1", "C2", "N3", "O4", "O5"}


def test_text_from_data_is_printed_as_it_is(tmp_path):
    strange = "_$\\frac{"
    figure = draw(explanation(), labels={1: strange}, classes={0: strange}, marked={"$^": [2]}, title="$$ {")
    figure.savefig(tmp_path / "strange.svg")  # as a formula it would raise
    assert strange in written(figure)
    assert {strange, "$^"} <= set(legend(figure))


def test_classes_colour_the_nodes_and_the_legend_names_those_that_are_shown():
    figure = draw(explanation(), classes=torch.tensor([0, 0, 1, 1, 2, 2]))
    assert [name for name in legend(figure) if name.startswith("class")] == ["class 0", "class 1", "class 2"]
    colour = {artist.get_gid(): tuple(artist.get_facecolor()[0]) for artist in circles(figure)}
    assert colour["node-0-2"] == colour["node-0-3"] != colour["node-0-4"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"edges": -1}, SettingError),
        ({"edges": 2.5}, SettingError),
        ({"view": "tree"}, SettingError),
        ({"view": "layers"}, SettingError),
        ({"labels": ["a"]}, InputError),
        ({"classes": 3}, InputError),
    ],
)
def test_options_that_do_not_fit_are_refused(options, error):
    with pytest.raises(error, match=next(iter(options))):
        draw(explanation(), **options)


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"edgewise\[plot\]"):
        explanation().plot()
