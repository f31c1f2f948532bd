from itertools import pairwise

import pytest

from edgewise import SettingError
from edgewise.report.appearance import WALKS
from edgewise.report.layer_picture import lanes, rows_in_order
from walk_sets import FOUND, walk_set


def routes(figure):
    return {line.get_color(): line for line in figure.axes[0].lines}


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def spots(figure):
    return {artist.get_gid() for artist in figure.axes[0].collections if artist.get_gid()}


def test_every_walk_is_a_route_of_its_own_colour_through_its_nodes():
    figure = walk_set().plot()
    drawn, place = routes(figure), {}
    for artist in figure.axes[0].collections:
        place[artist.get_gid()] = artist.get_offsets()[0]
    for walk, colour in zip(FOUND, WALKS, strict=False):
        x, y = drawn[colour].get_data()
        for column, node in enumerate(walk.nodes):
            centre = place[f"node-{column}-{node}"]
            assert centre[0] == column
            assert abs(y[abs(x - column).argmin()] - centre[1]) < 0.35  # beside the middle of its node, in its row


def test_width_is_magnitude_and_dashes_oppose():
    drawn = routes(walk_set().plot())
    widths = [drawn[colour].get_linewidth() for colour in WALKS[:4]]
    assert widths == sorted(widths, reverse=True)
    assert [drawn[colour].is_dashed() for colour in WALKS[:4]] == [False, True, False, False]


def test_the_legend_has_rank_score_and_nodes_of_every_walk():
    assert legend(walk_set().plot()) == [
        "explained node",
        "1.  +4   0 → 1 → 3",
        "2.  −2   2 → 1 → 3",
        "3.  +1   3 → 3 → 3",
        "4.  +0.5   0 → 2 → 3",
    ]


def test_walks_that_are_not_drawn_are_counted_and_their_nodes_left_out():
    figure = walk_set().plot(count=2)
    assert len(routes(figure)) == 2
    assert "2 of the 4 found are not drawn" in figure.legends[0].get_title().get_text()
    assert spots(figure) == {"node-0-0", "node-0-2", "node-1-1", "node-2-3"}


def test_what_is_not_proven_is_said():
    assert "may reach 0.25" in walk_set(exact=False).plot().legends[0].get_title().get_text()


def test_no_walk_at_all_can_be_drawn(tmp_path):
    figure = walk_set(()).plot()
    figure.savefig(tmp_path / "none.png")
    assert not routes(figure)
    assert "No walk" in figure.legends[0].get_title().get_text()


def test_walks_that_share_a_spot_run_beside_one_another():
    beside = lanes(FOUND, {0: 0.0, 1: -1.0, 2: -2.0, 3: -3.0})
    at_target = [row[-1] for row in beside]
    assert len(set(at_target)) == 4
    assert abs(sum(at_target)) < 1e-9
    assert beside[2][:2] == [0.0, 0.0]  # alone on its way


def test_a_path_of_nodes_gets_its_rows_in_the_order_of_the_path():
    path = [4, 0, 3, 1, 2]
    order = rows_in_order([(a, b, 1.0) for a, b in pairwise(path)], path)
    assert order in (path, path[::-1])


def test_labels_and_classes_reach_the_picture():
    figure = walk_set().plot(labels=["a", "b", "c", "$d"], classes=["x", "x", "_y", "_y"])
    assert "1.  +4   a → b → $d" in legend(figure)
    assert {"x", "_y"} <= set(legend(figure))


@pytest.mark.parametrize("count", [-1, 1.5, True])
def test_a_count_that_is_no_number_is_refused(count):
    with pytest.raises(SettingError, match="count"):
        walk_set().plot(count=count)
