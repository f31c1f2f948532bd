"""Figures by matplotlib: one explanation (`draw`), and how much methods agree (`draw_comparison`).

An explanation is drawn as the flat graph, or as the computation graph unrolled layer by layer; `explanation.plot()` calls
`draw`. A comparison is a matrix of every pair of methods, coloured by their agreement; `comparison.plot()` draws it. Walks
are drawn by `draw_walks` in `layer_picture.py`.
"""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Any

from edgewise.arguments import one_of
from edgewise.contract import checked
from edgewise.errors import SettingError, missing_extra
from edgewise.report import matplotlib_marks
from edgewise.report.appearance import OPPOSES, SUPPORTS, Nodes
from edgewise.report.feature_lines import feature_sentence
from edgewise.report.layer_picture import unrolled_picture
from edgewise.report.link_marks import draw_pair, pair_keys
from edgewise.report.matplotlib_marks import canvas, put_nodes
from edgewise.report.scene import Picture, flat_picture, target_of, task_of
from edgewise.report.typed_look import dash_of, relation, typed_nodes
from edgewise.results.comparison import title as measure_title
from edgewise.results.typed_explanation import TypedExplanation
from edgewise.text import plain_text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from edgewise.graph.type_table import TypeTable
    from edgewise.results.comparison import Comparison
    from edgewise.results.explanation import Explanation
    from edgewise.results.feature_scores import FeatureScores

VIEWS = ("graph", "layers")
_SIGNED = ("cosine", "spearman")  # −1 to 1; the others 0 to 1
_UNDEFINED = "#e6e6e6"
_CELL, _LABELS = 0.62, 2.1  # inches


@checked
def draw(
    explanation: Explanation,
    *,
    edges: int | None = None,
    view: str | None = None,
    labels: Any = None,
    classes: Any = None,
    marked: Mapping[str, Collection[int]] | None = None,
    title: str = "",
    features: FeatureScores | None = None,
) -> Figure:
    """Draw the strongest edges of one explanation; `explanation.plot()` does the same.

    Args:
        explanation: The explanation of a node or of a graph.
        edges: How many are drawn at most; by default as many as make up 95% of the magnitude, but no fewer than 20 and no
            more than 40, or 30 steps of an unrolled picture. A sentence below counts the rest, and adds it up.
        view: `"graph"` (at layer level: the sum over layers), or `"layers"`, the computation graph unrolled, which is the
            default at layer level.
        labels: A text per node, `{node: text}` or one for every node; short ones are written in the circles. Of a typed graph
            by node type: `{"user": ["Ann", "Bob"]}`.
        classes: A class per node, in the same form: the colours of the nodes. Nodes of typed graphs have those of their types.
        marked: Groups of nodes to point out, for example `{"infected": [3, 17]}`, of a typed graph `{"fraud": [("user", 3)]}`;
            their colours replace those of classes.
        title: Replaces the default title: the method, the target and the explained number.
        features: What `ew.features` says about the same target: the strongest features of the explained node and of strong
            neighbours are written below, with their values and scores.

    Purple supports the explained class, orange opposes it; the width is the magnitude. Needs `edgewise[plot]`.

    >>> import torch
    >>> from edgewise import Explanation
    >>> why = Explanation(torch.tensor([1.0, -3.0]), torch.tensor([[0, 1], [2, 2]]), 3, index=2, target=0, value=1.5)
    >>> draw(why).get_suptitle()
    'gradient: node 2, class 0, value 1.5'
    """
    view = _read_view(explanation, view)
    types = explanation.types if isinstance(explanation, TypedExplanation) else None
    flat = explanation.flat if isinstance(explanation, TypedExplanation) else explanation
    shown = unrolled_picture(flat, edges) if view == "layers" else flat_picture(flat, edges)
    if types is None:
        nodes, lines = Nodes.read(shown.nodes, flat.num_nodes, labels, classes, marked, flat.n_id), {}
    else:
        nodes, lines = typed_nodes(shown.nodes, types, labels, marked, classes), _lines_of(shown, types)
    figure, axes = canvas(shown, title or title_of(explanation, summed=view == "graph"))
    matplotlib_marks.draw_context(axes, shown)
    draw_pair(axes, shown)
    matplotlib_marks.draw_arrows(axes, shown, nodes.radius, {column: dash for column, (_, dash) in lines.items()})
    put_nodes(axes, shown, nodes)
    if shown.strongest.steps:
        is_value = explanation.settings.get("mode") == "regression"
        matplotlib_marks.colour_bar(figure, axes, shown.strongest.largest, of_value=is_value)
    keys = nodes.keys(shown.root and shown.root[1], _root_name(explanation))
    keys += [*pair_keys(shown), *matplotlib_marks.relation_keys(dict(lines.values()))]
    keys += matplotlib_marks.score_keys(shown)
    sentence = shown.strongest.sentence() + _undrawn_self_scores(flat, shown)
    matplotlib_marks.write_legend(figure, sentence + feature_sentence(features, explanation.index, shown, nodes), keys)
    return figure


def _lines_of(shown: Picture, types: TypeTable) -> dict[int, tuple[str, tuple[float, ...]]]:
    """Column of the union → its edge type in words, and its dashes; in the order of edge types."""
    dashes = dash_of(types)
    columns = sorted({step.column for step in shown.strongest.steps if step.column is not None})
    kinds = {column: types.edge(column)[0] for column in columns}
    return {column: (relation(kind), dashes[kind]) for column, kind in kinds.items()}


def _undrawn_self_scores(explanation: Explanation, shown: Picture) -> str:
    """A sentence about self scores, which a flat picture has no place for; empty if there are none."""
    if shown.num_layers or explanation.self_scores is None:
        return ""
    return f"\nSelf scores, {matplotlib_marks.signed(float(explanation.self_scores.sum()))} in all, are not drawn."


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
    named = {"node": "explained node", "link": "ends of the link"}
    return named.get(task_of(explanation.settings), "receiver of the strongest edge")


def title_of(explanation: Explanation, *, summed: bool) -> str:
    """The default title: the method, the target and the explained number; `summed` if layers are added up."""
    flat = explanation.flat if isinstance(explanation, TypedExplanation) else explanation
    layers = f", sum over {len(flat.scores)} layers" if explanation.level == "layer" and summed else ""
    return f"{plain_text(explanation.method)}{layers}: {target_of(explanation)}"


# --- A comparison of methods --------------------------------------------------------------------------------------------


def draw_comparison(found: Comparison, measure: str, levels: Sequence[str], layer: int | None) -> Figure:
    """Draw a panel for each level, with the means in the cells; a cell without one is hatched. Needs `edgewise[plot]`.

    Args:
        found: The comparison.
        measure: Which agreement, such as `"cosine"`.
        levels: The panels from left to right.
        layer: One layer of layer level, or `None` for all layers together.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("matplotlib", "plot", "Drawing a comparison") from error

    side = _CELL * len(found.methods)
    figure = Figure(figsize=(_LABELS + (side + 0.3) * len(levels) + 1.2, side + _LABELS), dpi=110, layout="constrained")
    panels = figure.subplots(1, len(levels), squeeze=False, sharey=True)[0]
    for axes, level in zip(panels, levels, strict=True):
        image = _draw_panel(axes, found, measure, level, layer)
        axes.set_title(f"{level} level" if layer is None else f"layer {layer}", fontsize=11)
    figure.colorbar(image, ax=list(panels), shrink=0.8, label="hatched: undefined")
    targets = "1 target" if len(found.index) == 1 else f"{len(found.index)} targets"
    what = f"mean over {targets}" + (f" and {len(found.seeds)} seeds" if len(found.seeds) > 1 else "")
    figure.suptitle(f"{measure_title(measure, found.k, found.by)}: {what}", fontsize=12)
    return figure


def _draw_panel(axes: Axes, found: Comparison, measure: str, level: str, layer: int | None) -> AxesImage:
    """Draw one matrix; the colours go from −1 or 0 to 1."""
    means = found.matrix(measure, level, layer)  # [methods, methods]
    image = axes.imshow(means.numpy(), cmap=_colours(measure), vmin=-1 if measure in _SIGNED else 0, vmax=1)
    for row, numbers in enumerate(means.tolist()):
        for column, mean in enumerate(numbers):
            if isnan(mean):
                _hatch(axes, row, column)
            else:
                colour = "white" if abs(mean) > 0.55 else "black"
                axes.text(column, row, f"{mean:.2f}", ha="center", va="center", fontsize=8, color=colour)
    places = range(len(found.methods))
    axes.set_xticks(places, found.methods, rotation=45, ha="right", rotation_mode="anchor", fontsize=9)
    axes.set_yticks(places, found.methods, fontsize=9)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return image


def _hatch(axes: Axes, row: int, column: int) -> None:
    """Mark a cell as undefined."""
    from matplotlib.patches import Rectangle

    place = (column - 0.5, row - 0.5)
    axes.add_patch(Rectangle(place, 1, 1, facecolor=_UNDEFINED, edgecolor="0.6", hatch="///", linewidth=0))


def _colours(measure: str) -> Colormap:
    """The colours of support and opposition, which the colour-blind can tell apart, with white between them."""
    from matplotlib.colors import LinearSegmentedColormap

    ends = [OPPOSES, "white", SUPPORTS] if measure in _SIGNED else ["white", SUPPORTS]
    return LinearSegmentedColormap.from_list("agreement", ends)
