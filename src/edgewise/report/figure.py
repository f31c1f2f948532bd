"""A picture of one explanation: the strongest edges around the explained node, coloured by sign."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from edgewise.errors import missing_extra
from edgewise.report.layout import rings, tree_around
from edgewise.report.strongest import strongest_edges

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import networkx as nx
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure
    from torch import Tensor

    from edgewise.explanation import Explanation
    from edgewise.report.layout import Position
    from edgewise.report.strongest import Strongest

# The ends of PuOr, safe for the colour-blind; grey between them, because white lines cannot be seen.
OPPOSES, NEUTRAL, SUPPORTS = "#b35806", "#d9d9d9", "#542788"
GROUP_COLOURS = ("#ffd92f", "#66c2a5", "#80b1d3", "#fb9a99", "#b3b3b3")  # the centre first; none is an edge's colour
NODE_RADIUS = 8.0  # in points
THINNEST, WIDEST = 0.8, 4.5  # in points


def draw(
    explanation: Explanation, *, edges: int = 40, marked: Mapping[str, Collection[int]] | None = None, title: str = ""
) -> Figure:
    """Draw the `edges` strongest edges of one explanation around its target; save it with `figure.savefig("why.png")`.

    Purple supports the explained class, orange opposes it; the width is the magnitude. At layer level, the sum over
    layers is drawn. `marked` names groups of nodes to point out, for example `{"infected": [3, 17]}`. Needs
    `edgewise[plot]`.
    """
    try:
        import networkx  # noqa: F401 - the layout uses it
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("matplotlib or networkx", "plot", "Drawing an explanation") from error

    scores, edge_index = _edge_scores(explanation), explanation.edge_index.cpu()
    strongest = strongest_edges(scores, edge_index, edges)
    root = _centre(explanation, strongest)
    tree = tree_around(root, strongest.nodes, _surroundings(scores, edge_index, explanation.num_nodes, root))
    place = rings(root, tree, strongest.nodes - set(tree))

    figure = Figure(figsize=(8.0, 6.5), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    axes.set_aspect("equal", adjustable="datalim")  # the axes keep their place, so a narrow graph stands in the middle
    axes.margins(0.1)  # room for loops
    axes.axis("off")
    axes.set_title(title or _title(explanation), fontsize=11)
    colours = _signed_colours(strongest.largest)
    _draw_connections(axes, place, [edge for edge in tree.edges if not strongest.joins(*edge)])
    _draw_edges(axes, place, strongest, colours)
    _draw_nodes(axes, place, {_centre_name(explanation): [root], **(marked or {})})
    figure.colorbar(colours, ax=axes, shrink=0.7, label="score: negative opposes, positive supports")
    _write_legend(figure, strongest.sentence())
    return figure


def _edge_scores(explanation: Explanation) -> Tensor:
    scores: Tensor = explanation.scores.detach().cpu().double()
    return scores.sum(dim=0) if explanation.level == "layer" else scores


def _centre(explanation: Explanation, strongest: Strongest) -> int:
    """The explained node; for a graph task, the node at the receiving end of the strongest edge."""
    if _task(explanation) == "node":
        return int(explanation.index)
    return strongest.edges[-1][1] if strongest.edges else 0


def _surroundings(scores: Tensor, edge_index: Tensor, num_nodes: int, root: int) -> nx.Graph:
    """The edges among nodes that the explanation touches: enough to find ways to the centre, small on a large graph."""
    import networkx as nx

    touched = torch.zeros(num_nodes, dtype=torch.bool)
    touched[edge_index[:, scores != 0]] = True
    touched[root] = True
    graph = nx.Graph(edge_index[:, touched[edge_index].all(dim=0)].t().tolist())
    graph.add_node(root)
    return graph


def _draw_connections(axes: Axes, place: Mapping[int, Position], pairs: Collection[tuple[int, int]]) -> None:
    """Dotted lines where a drawn edge hangs on the centre through edges too weak to be drawn."""
    for start, end in pairs:
        (x0, y0), (x1, y1) = place[start], place[end]
        axes.plot([x0, x1], [y0, y1], color="0.75", linewidth=0.8, linestyle=":", zorder=1)


def _draw_edges(axes: Axes, place: Mapping[int, Position], strongest: Strongest, colours: ScalarMappable) -> None:
    from matplotlib.patches import FancyArrowPatch

    copies: Counter[tuple[int, int]] = Counter()
    scores = np.array(strongest.scores)
    widths = THINNEST + (WIDEST - THINNEST) * abs(scores) / strongest.largest
    for (source, receiver), width, colour in zip(strongest.edges, widths, colours.to_rgba(scores), strict=True):
        copies[source, receiver] += 1
        arrow = FancyArrowPatch(
            **_course(place[source], place[receiver], copies[source, receiver]),
            arrowstyle="-|>",
            mutation_scale=7 + 2 * width,
            shrinkA=NODE_RADIUS,
            shrinkB=NODE_RADIUS,
            color=colour,
            linewidth=width,
            zorder=2,
        )
        axes.add_patch(arrow)


def _signed_colours(largest: float) -> ScalarMappable:
    """Symmetric around zero; by the square root, so that the sign of a weak edge can still be seen."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import FuncNorm, LinearSegmentedColormap

    norm = FuncNorm((lambda x: np.sign(x) * abs(x) ** 0.5, lambda x: np.sign(x) * x**2), -largest, largest)
    return ScalarMappable(norm, LinearSegmentedColormap.from_list("signed", [OPPOSES, NEUTRAL, SUPPORTS]))


def _course(start: Position, end: Position, copy: int) -> dict[str, Any]:
    """How an arrow runs: bent, so that both directions and parallel edges are seen apart; or a loop."""
    from matplotlib.path import Path

    if start != end:
        return {"posA": start, "posB": end, "connectionstyle": f"arc3,rad={0.16 * copy}"}
    away = np.array(start) / np.hypot(*start) if any(start) else np.array([0.0, 1.0])  # from the centre
    aside = np.array([-away[1], away[0]])
    bulges = [np.array(start) + (0.5 + 0.2 * copy) * (away + side * aside) for side in (0.6, -0.6)]
    corners = np.array([start, *bulges, start])
    return {"path": Path(corners, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])}


def _draw_nodes(axes: Axes, place: Mapping[int, Position], groups: Mapping[str, Collection[int]]) -> None:
    """Circles with node numbers; each group in its colour, the first one as larger squares on top."""
    area = (2 * NODE_RADIUS) ** 2
    every = np.array(list(place.values()))
    axes.scatter(every[:, 0], every[:, 1], s=area, facecolor="white", edgecolor="0.5", zorder=3)
    for number, (name, nodes) in reversed(list(enumerate(groups.items()))):
        spots = np.array([place[node] for node in nodes if node in place]).reshape(-1, 2)
        colour, marker = GROUP_COLOURS[number % len(GROUP_COLOURS)], "o" if number else "s"
        size = area if number else 1.4 * area
        axes.scatter(
            spots[:, 0], spots[:, 1], s=size, marker=marker, facecolor=colour, edgecolor="black", label=name, zorder=4
        )
    for node, (x, y) in place.items():
        axes.text(x, y, str(node), fontsize=6.5, ha="center", va="center", zorder=5)


def _write_legend(figure: Figure, sentence: str) -> None:
    figure.legend(
        loc="outside lower center",
        ncols=4,
        title=sentence,
        title_fontsize=9,
        fontsize=8,
        markerscale=0.6,
        frameon=False,
    )


def _task(explanation: Explanation) -> str:
    return str(explanation.settings.get("task", "node"))


def _centre_name(explanation: Explanation) -> str:
    return "explained node" if _task(explanation) == "node" else "receiver of the strongest edge"


def _title(explanation: Explanation) -> str:
    layers = f", sum over {len(explanation.scores)} layers" if explanation.level == "layer" else ""
    column = "output" if explanation.settings.get("mode") == "regression" else "class"
    what = f"{_task(explanation)} {explanation.index}, {column} {explanation.target}"
    return f"{explanation.method}{layers}: {what}, {explanation.settings.get('of', 'value')} {explanation.value:.3g}"
