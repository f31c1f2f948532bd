"""Walks as routes through the unrolled computation graph, side by side where they share a way."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewise.arguments import whole_number
from edgewise.report import colours, matplotlib_marks
from edgewise.report.colours import width_of
from edgewise.report.figure import canvas, put_nodes, target_of
from edgewise.report.labels import Nodes
from edgewise.report.layer_picture import walks_picture

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from edgewise.report.scene import Picture
    from edgewise.results.walk_set import Walk, WalkSet

LANE = 0.13
"""The distance between walks that share a node, as a share of a row."""
WIDEST_LANES = 0.6
"""The largest width of all walks through a node together, as a share of a row."""


def draw_walks(
    walks: WalkSet,
    *,
    count: int = 5,
    labels: Any = None,
    classes: Any = None,
    marked: Mapping[str, Collection[int]] | None = None,
    title: str = "",
) -> Figure:
    """Draw the first `count` walks; `walks.plot()` does the same.

    A colour for each walk, its width by magnitude; dashed walks oppose the explained class. `labels`, `classes` and `marked`
    as for `draw`. Needs `edgewise[plot]`.

    >>> import edgewise as ew
    >>> from edgewise.examples import path_model
    >>> model, data = path_model(gains=[2.0, 3.0])
    >>> [text.get_text() for text in draw_walks(ew.walks(model, data, 2)).legends[0].get_texts()]
    ['explained node', '1.  +6   0 → 1 → 2']
    """
    shown = walks_picture(walks, whole_number("count", count, at_least=0, such_as=5))
    drawn = walks.walks[:count]
    nodes = Nodes.read(shown.nodes, walks.num_nodes, labels, classes, marked)
    figure, axes = canvas(shown, title or f"walks: {target_of(walks)}", row_height=0.55)
    _draw_routes(axes, shown, drawn)
    put_nodes(axes, shown, nodes)
    keys = [*nodes.keys(shown.root and shown.root[1], "explained node"), *_route_keys(drawn, shown, nodes)]
    matplotlib_marks.write_legend(figure, sentence(walks, len(drawn)), keys)
    return figure


def route_colour(rank: int) -> str:
    """The colour of the walk with that rank, 0 for the best; colours repeat after eight."""
    return colours.WALKS[rank % len(colours.WALKS)]


def lanes(drawn: Sequence[Walk], height: Mapping[int, float]) -> list[list[float]]:
    """For each walk and column, how far beside the node it runs: walks that share a spot lie side by side.

    They lie in the order in which they arrive (at the features: leave), so that they cross as little as possible. `height`
    is the height of each node's row.

    >>> from edgewise import Walk
    >>> beside = lanes([Walk((0, 2), 5.0), Walk((1, 2), 1.0)], {0: -1.0, 1: 0.0, 2: -2.0})
    >>> beside == [[0.0, -LANE / 2], [0.0, LANE / 2]]      # the second one comes from above
    True
    """
    before = [-height[walk.nodes[min(1, len(walk.nodes) - 1)]] for walk in drawn]  # downwards
    columns: list[list[float]] = []
    for nodes in zip(*(walk.nodes for walk in drawn), strict=True):
        sharing: dict[int, list[int]] = {}
        for rank in sorted(range(len(drawn)), key=before.__getitem__):
            sharing.setdefault(nodes[rank], []).append(rank)
        beside = [_lane(sharing[node].index(rank), len(sharing[node])) for rank, node in enumerate(nodes)]
        before = [-height[node] - aside for node, aside in zip(nodes, beside, strict=True)]
        columns.append(beside)
    return [list(row) for row in zip(*columns, strict=True)]


def _lane(number: int, count: int) -> float:
    """How far above its node the `number`-th of `count` walks runs, the first one on top."""
    return min(LANE, WIDEST_LANES / count) * ((count - 1) / 2 - number)


def sentence(walks: WalkSet, count: int) -> str:
    """What is drawn, and whether there can be better walks."""
    kind = {"positive": "supporting", "negative": "opposing"}.get(str(walks.settings.get("sign")), "")
    if not len(walks):
        return f"No {kind} walk to draw.".replace("  ", " ")
    proof = "proven to be the best" if walks.exact else f"not proven: another may reach {walks.upper_bound:.3g}"
    rest = f"; {len(walks) - count} of the {len(walks)} found are not drawn" if count < len(walks) else ""
    noun = "walk" if count == 1 else "walks"
    return f"{count} {kind} {noun}, {proof}{rest}.".replace("  ", " ")


def _draw_routes(axes: Axes, shown: Picture, drawn: Sequence[Walk]) -> None:
    """A smooth line for each walk, the best on top."""
    largest, rows = shown.strongest.largest, {node: y for (_, node), (_, y) in shown.place.items()}
    smooth = (1 - np.cos(np.pi * np.linspace(0, 1, 30))) / 2  # level where it leaves and where it arrives
    for rank, (walk, beside) in reversed(list(enumerate(zip(drawn, lanes(drawn, rows), strict=True)))):
        height = [shown.place[spot][1] + aside for spot, aside in zip(enumerate(walk.nodes), beside, strict=True)]
        along = [np.linspace(layer, layer + 1, 30) for layer in range(len(height) - 1)]
        rise = [start + (end - start) * smooth for start, end in pairwise(height)]
        look = _look(rank, walk, largest)
        axes.plot(np.concatenate(along), np.concatenate(rise), **look, zorder=3 - rank / 1000)


def _look(rank: int, walk: Walk, largest: float) -> dict[str, Any]:
    """The line style of a walk: its colour by rank, its width by magnitude, dashes if it opposes the class."""
    return {
        "color": route_colour(rank),
        "linewidth": width_of(walk.score, largest),
        "linestyle": "solid" if walk.score >= 0 else (0, (3.0, 1.2)),
        "solid_capstyle": "butt",
    }


def _route_keys(drawn: Sequence[Walk], shown: Picture, nodes: Nodes) -> list[tuple[str, Any]]:
    """The legend: each walk's line with its rank, score and nodes."""
    from matplotlib.lines import Line2D

    keys = []
    for rank, walk in enumerate(drawn):
        way = " → ".join(nodes.inside(node) for node in walk.nodes)
        name = f"{rank + 1}.  {matplotlib_marks.signed(walk.score)}   {way}"
        keys.append((name, Line2D([], [], **_look(rank, walk, shown.strongest.largest))))
    return keys
