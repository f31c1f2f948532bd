"""A picture of one explanation, by matplotlib: the flat graph, or the computation graph unrolled layer by layer."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from edgewise.arguments import one_of
from edgewise.errors import SettingError, missing_extra
from edgewise.report import matplotlib_marks
from edgewise.report.labels import Nodes
from edgewise.report.layer_picture import unrolled_picture
from edgewise.report.scene import Picture, flat_picture, task_of
from edgewise.results.node_labels import plain_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from edgewise.results.explanation import Explanation

VIEWS = ("graph", "layers")


def draw(
    explanation: Explanation,
    *,
    edges: int | None = None,
    view: str | None = None,
    labels: Any = None,
    classes: Any = None,
    marked: Mapping[str, Collection[int]] | None = None,
    title: str = "",
) -> Figure:
    """Draw the strongest edges of one explanation; `explanation.plot()` does the same.

    Args:
        explanation: The explanation of a node or of a graph.
        edges: How many are drawn at most; by default 40, or 30 steps of an unrolled picture. A sentence below counts the
            rest.
        view: `"graph"` (at layer level: the sum over layers), or `"layers"`, the computation graph unrolled, which is the
            default at layer level.
        labels: A text per node, `{node: text}` or one for every node; short ones are written in the circles.
        classes: A class per node, in the same form: the colours of the nodes.
        marked: Groups of nodes to point out, for example `{"infected": [3, 17]}`; their colours replace those of classes.
        title: Replaces the default title: the method, the target and the explained number.

    Purple supports the explained class, orange opposes it; the width is the magnitude. Needs `edgewise[plot]`.

    >>> import torch
    >>> from edgewise import Explanation
    >>> why = Explanation(torch.tensor([1.0, -3.0]), torch.tensor([[0, 1], [2, 2]]), 3, index=2, target=0, value=1.5)
    >>> draw(why).get_suptitle()
    'gradient: node 2, class 0, value 1.5'
    """
    view = _read_view(explanation, view)
    if view == "layers":
        shown = unrolled_picture(explanation, 30 if edges is None else edges)
    else:
        shown = flat_picture(explanation, 40 if edges is None else edges)
    nodes = Nodes.read(shown.nodes, explanation.num_nodes, labels, classes, marked)
    figure, axes = canvas(shown, title or title_of(explanation, summed=view == "graph"))
    matplotlib_marks.draw_context(axes, shown)
    matplotlib_marks.draw_arrows(axes, shown, nodes.radius)
    put_nodes(axes, shown, nodes)
    if shown.strongest.steps:
        matplotlib_marks.colour_bar(figure, axes, shown.strongest.largest)
    keys = [*nodes.keys(shown.root and shown.root[1], _root_name(explanation)), *matplotlib_marks.score_keys(shown)]
    matplotlib_marks.write_legend(figure, shown.strongest.sentence() + _undrawn_self_scores(explanation, shown), keys)
    return figure


def _undrawn_self_scores(explanation: Explanation, shown: Picture) -> str:
    """A sentence about self scores, which a flat picture has no place for; empty if there are none."""
    if shown.num_layers or explanation.self_scores is None:
        return ""
    return f"\nSelf scores, {matplotlib_marks.signed(float(explanation.self_scores.sum()))} in all, are not drawn."


def canvas(shown: Picture, title: str, row_height: float = 0.3) -> tuple[Figure, Axes]:
    """An empty figure, large enough for what it will show."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise missing_extra("matplotlib", "plot", "A picture") from error
    figure = Figure(figsize=_size(shown, row_height), dpi=110, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.06))
    axes = figure.add_subplot()
    axes.axis("off")
    figure.suptitle(title, fontsize=11, parse_math=False)
    if shown.num_layers:
        _name_columns(axes, shown)
    else:
        axes.set_aspect("equal", adjustable="datalim")  # the axes keep their place: a narrow graph is in the middle
        axes.margins(0.1)  # room for loops
    return figure, axes


def put_nodes(axes: Axes, shown: Picture, nodes: Nodes) -> None:
    """Draw nodes with their labels; in an unrolled picture long labels are written once, at the left of their row."""
    matplotlib_marks.draw_nodes(axes, shown, nodes)
    if shown.num_layers:
        rows = {node: y for (_, node), (_, y) in shown.place.items()}
        for node, y in rows.items():
            if label := nodes.outside(node):
                axes.text(-0.16, y, label, fontsize=7.5, ha="right", va="center", parse_math=False)
        return
    outside = {spot: nodes.outside(spot[1]) or "" for spot in shown.place}
    if longest := max(map(len, outside.values()), default=0):
        share = min((0.064 * longest + 0.25) / (_size(shown)[1] - 1.4), 0.35)  # of the axes, for the labels at one side
        axes.margins(share / (1 - 2 * share))
    matplotlib_marks.outside_labels(
        axes, shown, {spot: label for spot, label in outside.items() if label}, nodes.radius
    )


def _name_columns(axes: Axes, shown: Picture) -> None:
    """Draw a light band for each column, with its name above it; the names of the layers are between the bands."""
    lowest = min((y for _, y in shown.place.values()), default=0.0)
    for column in range(shown.num_layers + 1):
        axes.axvspan(column - 0.1, column + 0.1, color="0.96", zorder=0, linewidth=0)
        name = {0: "features", shown.num_layers: "output"}.get(column, "")
        axes.text(column, 0.75, name, ha="center", va="bottom", fontsize=9, color="0.3")
    for layer in range(shown.num_layers):
        axes.text(layer + 0.5, 0.75, f"layer {layer} →", ha="center", va="bottom", fontsize=9, color="0.3")
    axes.set_xlim(-0.2, shown.num_layers + 0.2)
    axes.set_ylim(lowest - 0.7, 1.2)


def _size(shown: Picture, row_height: float = 0.3) -> tuple[float, float]:
    """Width and height in inches, for a fixed distance between rows, or between the nodes on the fullest ring."""
    if shown.num_layers:
        rows = len({y for _, y in shown.place.values()})
        return max(7.5, 2.2 * shown.num_layers + 2.0), min(max(3.6, row_height * rows + 2.0), 24.0)
    ring = Counter(round(math.hypot(x, y), 6) for x, y in shown.place.values()).most_common(1)[0][1]
    side = min(max(min(1.6 + 1.4 * len(shown.place) ** 0.5, 6.8), ring * 0.3 / math.pi + 2.0), 16.0)
    across, up = (max(spread) - min(spread) + 1.0 for spread in zip(*shown.place.values(), strict=True))
    return max(side + 1.6, 6.0), side * min(max(up / across, 0.45), 1.1) + 0.9


def _read_view(explanation: Explanation, view: str | None) -> str:
    """The view that was asked for, or the default of the explanation's level."""
    if view is None:
        return "layers" if explanation.level == "layer" else "graph"
    chosen = one_of("view", view, VIEWS)
    if chosen == "layers" and explanation.level != "layer":
        raise SettingError(
            "view='layers' needs an explanation with a score per layer. Use ew.explain(..., level='layer')."
        )
    return chosen


def _root_name(explanation: Explanation) -> str:
    """What the square node is, for the legend."""
    return "explained node" if task_of(explanation.settings) == "node" else "receiver of the strongest edge"


def title_of(explanation: Explanation, *, summed: bool) -> str:
    """The default title: the method, the target and the explained number; `summed` if layers are added up."""
    layers = f", sum over {len(explanation.scores)} layers" if explanation.level == "layer" and summed else ""
    return f"{plain_text(explanation.method)}{layers}: {target_of(explanation)}"


def target_of(found: Any) -> str:
    """What an `Explanation` or a `WalkSet` explains: its node or graph, its class, its number.

    For example `node 2, class 0, logit 1.5`.
    """
    column = "output" if found.settings.get("mode") == "regression" else "class"
    what = f"{task_of(found.settings)} {found.index}, {column} {found.target}"
    return f"{what}, {found.settings.get('of', 'value')} {found.value:.3g}"
