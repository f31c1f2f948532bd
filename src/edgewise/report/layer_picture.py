"""The computation graph, unrolled: a column for every state, from the features to the output, a row for every node.

`unrolled_picture` shows a layerwise explanation so, `walks_picture` the walks; `rows_in_order` decides which node has which
row. `draw_walks` draws walks as routes through it, in lanes side by side where they share a way.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewise.arguments import whole_number
from edgewise.contract import checked
from edgewise.report import matplotlib_marks
from edgewise.report.appearance import WALKS, Nodes, width_of
from edgewise.report.matplotlib_marks import canvas, put_nodes
from edgewise.report.scene import Picture, Spot, Step, Strongest, strongest_steps, target_of, task_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from edgewise.results.explanation import Explanation
    from edgewise.results.walk_set import Walk, WalkSet

MOST_MOVED, MOST_ROUNDS = 200, 20
"""The most rows that are put into a better order (lines among more cannot be followed anyway), and rounds of moves."""
LANE = 0.13
"""The distance between walks that share a node, as a share of a row."""
WIDEST_LANES = 0.6
"""The largest width of all walks through a node together, as a share of a row."""


def unrolled_picture(why: Explanation, edges: int | None = None) -> Picture:
    """The strongest steps of a layerwise explanation; a step that stays on a node is its self score.

    >>> import torch
    >>> from edgewise import Explanation
    >>> scores, own = torch.tensor([[1.0], [0.0]]), torch.tensor([[0.0, 0.0], [0.0, -3.0]])
    >>> why = Explanation(scores, torch.tensor([[0], [1]]), 2, 1, 0, 1.0, level="layer", self_scores=own)
    >>> shown = unrolled_picture(why)
    >>> [shown.ends(step) for step in shown.strongest.steps]
    [((0, 0), (1, 1)), ((1, 1), (2, 1))]
    """
    strongest, layers = strongest_steps(why, edges), len(why.scores)
    return unrolled(strongest, layers, *_explained(why, layers))


def _explained(found: Any, layers: int) -> tuple[Spot | None, Spot | None]:
    """The spots of the explained node, or of the two ends of an explained link; none of a graph."""
    task = task_of(found.settings)
    if task == "link":
        return (layers, found.index[0]), (layers, found.index[1])
    return ((layers, int(found.index)) if task == "node" else None), None


def walks_picture(walks: WalkSet, count: int = 5) -> Picture:
    """The spots that the first `count` walks visit; its steps carry the walk's score, and its rank as their column."""
    shown = walks.walks[:count]
    steps = tuple(
        Step(walk.score, source, receiver, rank, layer)
        for rank, walk in enumerate(shown)
        for layer, (source, receiver) in enumerate(zip(walk.nodes[:-1], walk.nodes[1:], strict=True))
    )
    total = sum(abs(walk.score) for walk in walks)
    share = sum(abs(walk.score) for walk in shown) / total if total else 0.0
    explained = _explained(walks, walks.num_layers)
    return unrolled(Strongest(steps, len(walks), share, "walks"), walks.num_layers, *explained)


def unrolled(strongest: Strongest, num_layers: int, root: Spot | None, other: Spot | None = None) -> Picture:
    """Columns to the right, rows downwards: a node keeps its row, so staying on it is a horizontal line."""
    steps = [(step.source, step.receiver, abs(step.score)) for step in strongest.steps]
    spots = {spot for spot in (root, other) if spot is not None}
    nodes = strongest.nodes | {node for _, node in spots}
    row = {node: -float(number) for number, node in enumerate(rows_in_order(steps, nodes))}
    for step in strongest.steps:
        layer = step.layer or 0
        spots |= {(layer, step.source), (layer + 1, step.receiver)}
    place = {spot: (float(spot[0]), row[spot[1]]) for spot in sorted(spots)}
    return Picture(place, strongest, root, (), num_layers, other)


def rows_in_order(steps: Sequence[tuple[int, int, float]], nodes: Iterable[int]) -> list[int]:
    """The nodes from the first row to the last, in an order in which strong steps are short.

    `steps` are (source, receiver, strength). One row after the other moves to where the total length is smallest, until a
    round changes nothing.

    >>> rows_in_order([(0, 2, 1.0), (2, 1, 1.0)], [0, 1, 2])
    [1, 2, 0]
    """
    order = sorted(nodes)
    links = [step for step in steps if step[0] != step[1]]
    if not links or len(order) > MOST_MOVED:
        return order
    number = {node: position for position, node in enumerate(order)}
    ends = np.array([[number[one], number[other]] for one, other, _ in links]).T  # [2, links]
    weight = np.array([step[2] for step in links])  # [links]
    weight = 0.2 + weight / max(weight.max(), 1e-300)
    row, shortest = np.arange(len(order)), np.inf
    for _ in range(MOST_ROUNDS):
        for moved in range(len(order)):
            choices = _with_moved(row, moved)  # [rows, nodes]
            length = (weight * abs(choices[:, ends[0]] - choices[:, ends[1]]) ** 1.2).sum(axis=1)
            row = choices[length.argmin()]
        if length.min() >= shortest - 1e-9:
            break
        shortest = length.min()
    return [order[position] for position in row.argsort()]


def _with_moved(row: np.ndarray, moved: int) -> np.ndarray:
    """`[rows, nodes]`: the rows of all nodes, with one of them moved to the first, the second, … row.

    >>> _with_moved(np.array([0, 1, 2]), 0).tolist()
    [[0, 1, 2], [1, 0, 2], [2, 0, 1]]
    """
    places = np.arange(len(row))[:, None]
    others = row - (row > row[moved])
    choices = others + (others >= places)
    choices[:, moved] = places[:, 0]
    return choices


# --- Walks, drawn -------------------------------------------------------------------------------------------------------


@checked
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
    return WALKS[rank % len(WALKS)]


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
