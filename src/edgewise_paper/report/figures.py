"""Figures of the report: which there are, from which results each is drawn (`draw_all`), and drawings of small graphs.

| figures | experiment |
|---|---|
| `negative-evidence`, `negative-evidence-multiclass` | the two of Negative Evidence: a node and its neighbours |
| `infection-similarity`, `-layerwise`, `-seeds`, `-paths` | Infection: matrices of cosines, their spread, two walks |
| `real-input-similarity`, `real-layerwise-similarity` | nodes and graphs: cosines over depth |
| `real-sign-flips`, `real-sign-flips-code` | nodes and graphs: shares over depth, with the text's and the code's weights |
| `cora-node` | nodes: one node with two explanations |
| `mask-trajectories` | regularisation |
| `few-passes` | beyond |

A figure without results is left out. Charts are drawn by `charts.py`; small graphs (`stars`, `paths`, `masks`) here, from a
picture: the plain numbers and lists that an experiment's task has kept.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise.report.appearance import OPPOSES, SUPPORTS
from edgewise_paper.comparison import Compared, ResultView, published
from edgewise_paper.report.charts import curves, matrices, new_figure, passes, save, scatter, trajectories
from edgewise_paper.report.reasons import MARKED, PAIR
from edgewise_paper.similarity import CODE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REAL = ("node-classification", "graph-classification")
INPUT_METHODS = ("gnn_explainer", "gradient", "occlusion", "random", "full")
LAYER_METHODS = ("gnn_explainer", "gradient", "random", "full")
FLIPS = ("all", "to_negative", "to_positive")
NODE = {"blue": "#4575b4", "red": "#d73027", "green": "#1a9850", "gray": "#bdbdbd"}
SEARCH_TITLES = {"dag": "Algorithm 1", "amp_ave_additive": "AMP-ave-Basic, additive"}


def draw_all(view: ResultView, folder: Path) -> set[str]:
    """Draw every figure for which there are results into a folder; their names."""
    drawn = set()
    for name, figure in _figures(view):
        save(figure, folder, name)
        drawn.add(name)
    return drawn


def _figures(view: ResultView) -> Iterator[tuple[str, "Figure"]]:
    """Names and figures."""
    yield from _small_graphs(view)
    yield from _infection(view)
    yield from _real(view)
    yield from _measurements(view)


def _small_graphs(view: ResultView) -> Iterator[tuple[str, "Figure"]]:
    """Stars of Negative Evidence, paths of Infection, a node of Cora."""
    for experiment in ("negative-evidence", "negative-evidence-multiclass"):
        if picture := view.pictures.get((experiment, "negative evidence")):
            yield experiment, stars(picture)
    if picture := view.pictures.get(("infection", "infection paths")):
        yield "infection-paths", paths(picture, SEARCH_TITLES)
    if picture := view.pictures.get(("node-classification", "cora node")):
        yield "cora-node", masks(picture)


def _infection(view: ResultView) -> Iterator[tuple[str, "Figure"]]:
    """Matrices of cosines, with full masks a hop wider, as published; and the cosine of each seed."""
    every = [
        one
        for one in view.find(experiment="infection", quantity="cosine")
        if (one.method == "full") == (one.variant == CODE) and not one.variant.startswith("lr")
    ]
    if some := [one for one in every if one.level == "input"]:
        yield "infection-similarity", matrices(some, [0])
    if some := [one for one in every if one.level == "layer"]:
        yield "infection-layerwise", matrices(some, [1, 2, 3, 4])
    cosine = view.values(experiment="infection", quantity="cosine", level="input", variant="", **PAIR)
    marked = view.values(experiment="infection", quantity="cosine", level="input", variant="", **MARKED)
    if len(cosine) > 1:
        labels = (
            "cosine of Positive Gradients to the full mask\n(the root of the share of positive gradients)",
            "cosine of Positive Gradients to GNNExplainer",
        )
        points = [(marked[seed], cosine[seed]) for seed in cosine if seed in marked]
        yield "infection-seeds", scatter(points, 0.8472, labels)


def _real(view: ResultView) -> Iterator[tuple[str, "Figure"]]:
    """Curves over depth: each number as the published one was made; sign flips also with the text's weights."""
    similar = [one for one in view.find(experiment=REAL, quantity="cosine") if one.published]
    figures = (("input", INPUT_METHODS, "real-input-similarity"), ("layer", LAYER_METHODS, "real-layerwise-similarity"))
    for level, methods, name in figures:
        if some := [one for one in similar if one.level == level]:
            yield name, curves(some, methods, "cosine")
    if some := [
        _beside(one) for one in view.find(experiment=REAL, quantity="sign flips", reference="any gradient", variant="")
    ]:
        yield "real-sign-flips", curves(some, FLIPS, "share")
    if some := view.find(experiment=REAL, quantity="sign flips", reference="any gradient", variant=CODE):
        yield "real-sign-flips-code", curves(some, FLIPS, "share")


def _beside(one: Compared) -> Compared:
    """The text's count of flips beside the published one, whose key is that of the code's."""
    return replace(one, published=published().get((*one.key[:-1], CODE)))


def _measurements(view: ResultView) -> Iterator[tuple[str, "Figure"]]:
    """Mask trajectories, and GNNExplainer in a few passes."""
    prefix = "mask trajectories: "
    lines = {name.removeprefix(prefix): p for (_, name), p in view.pictures.items() if name.startswith(prefix)}
    if lines:
        yield "mask-trajectories", trajectories(lines)
    if view.find(experiment="beyond", quantity="cosine"):
        yield "few-passes", _few_passes(view)


def _few_passes(view: ResultView) -> "Figure":
    """Cosine over the number of passes, a line for each network."""
    found = view.find(experiment="beyond", quantity="cosine")
    name: Callable[[Compared], str] = lambda one: f"{one.dataset} {one.architecture} {one.layers}"  # noqa: E731
    lines: dict[str, list[tuple[int, float]]] = {}
    levels: dict[str, tuple[float, float]] = {}
    for one in found:
        if one.method.startswith("gnn_explainer_fast"):
            lines.setdefault(name(one), []).append((int(one.method.split()[1]), one.mean))
    for network in lines:
        here = {one.method: one.mean for one in found if name(one) == network}
        levels[network] = (here["positive_gradient"], here["gnn_explainer, another start"])
    return passes(lines, levels)


# --- Drawings of small graphs -----------------------------------------------------------------------------------------


def stars(picture: Mapping[str, Any]) -> "Figure":
    """A node with its neighbours in their colours, once for each explanation.

    The colour of an edge is the sign of its score, its width the size. `picture` has `colours` (of the neighbours) and
    `scores` (by explanation, in the same order).
    """
    scores: Mapping[str, Sequence[float]] = picture["scores"]
    figure = new_figure(3.0 * len(scores), 3.3)
    angles = [2 * math.pi * i / len(picture["colours"]) for i in range(len(picture["colours"]))]
    places = [(math.cos(angle), math.sin(angle)) for angle in angles]
    for axes, (name, values) in zip(figure.subplots(1, len(scores), squeeze=False)[0], scores.items(), strict=True):
        largest = max(map(abs, values), default=1.0) or 1.0
        for (x, y), value in zip(places, values, strict=True):
            colour = SUPPORTS if value > 0 else OPPOSES
            strength = abs(value) / largest
            axes.plot(
                [0, x], [0, y], color=colour, linewidth=0.4 + 3.2 * strength, alpha=0.15 + 0.85 * strength, zorder=1
            )
        axes.scatter(
            *zip(*places, strict=True),
            s=90,
            c=[NODE[c] for c in picture["colours"]],
            edgecolor="k",
            linewidth=0.5,
            zorder=2,
        )
        axes.scatter([0], [0], s=170, marker="*", c="white", edgecolor="k", zorder=3)
        axes.set_title(name, fontsize=10)
        _bare(axes)
    figure.supxlabel(
        "purple supports the predicted class, orange opposes it; the width is the size of the score", fontsize=8
    )
    return figure


def _bare(axes: Any) -> None:
    """Take away the frame and the ticks."""
    axes.set_aspect("equal", adjustable="datalim")  # the axes keep their place, and their titles
    axes.axis("off")
    axes.margins(0.06)


def paths(picture: Mapping[str, Any], titles: Mapping[str, str]) -> "Figure":
    """The surroundings of a node, once for each search, with its walk drawn thick.

    `picture` has `node`, `class`, `walks` (by search), `edges` and `infected` nodes; `titles` name the searches.
    """
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_edges_from(map(tuple, picture["edges"]))
    place = nx.kamada_kawai_layout(graph.to_undirected())
    figure = new_figure(3.8 * len(picture["walks"]), 4.0)
    panels = figure.subplots(1, len(picture["walks"]), squeeze=False)[0]
    for axes, (search, walk) in zip(panels, picture["walks"].items(), strict=True):
        steps = [(a, b) for a, b in pairwise(walk) if a != b]
        nx.draw_networkx_edges(graph, place, ax=axes, edge_color="0.75", width=0.7, arrowsize=6, node_size=60)
        nx.draw_networkx_edges(
            graph, place, edgelist=steps, ax=axes, edge_color=SUPPORTS, width=2.8, arrowsize=14, node_size=60
        )
        plain = [node for node in graph if node not in picture["infected"] and node != picture["node"]]
        for nodes, shape, colour, size in (
            (plain, "o", "white", 60), (picture["infected"], "s", NODE["red"], 90), ([picture["node"]], "*", "#ffd92f", 240),
        ):  # fmt: skip
            nx.draw_networkx_nodes(
                graph,
                place,
                nodelist=nodes,
                ax=axes,
                node_shape=shape,
                node_color=colour,
                node_size=size,
                edgecolors="k",
                linewidths=0.6,
            )
        axes.set_title(titles.get(search, search), fontsize=10)
        _bare(axes)
    figure.supxlabel(f"star: the explained node, class {picture['class']}; squares: infected", fontsize=8)
    return figure


def masks(picture: Mapping[str, Any]) -> "Figure":
    """One graph, once for each explanation, with its scores as the width of the edges.

    `picture` has `node`, `edges` and `scores` (by explanation, in the order of the edges).
    """
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_edges_from(map(tuple, picture["edges"]))
    place = nx.kamada_kawai_layout(graph.to_undirected())
    scores = picture["scores"]
    figure = new_figure(4.0 * len(scores), 4.2)
    for axes, (name, values) in zip(figure.subplots(1, len(scores), squeeze=False)[0], scores.items(), strict=True):
        largest = max(values, default=1.0) or 1.0
        strength = [max(value / largest, 0.0) for value in values]
        nx.draw_networkx_edges(
            graph, place, edgelist=list(map(tuple, picture["edges"])), ax=axes, width=[0.4 + 2.4 * s for s in strength],
            edge_color=[(0.84, 0.19, 0.15, 0.1 + 0.9 * s) for s in strength], arrowsize=7, node_size=50,
        )  # fmt: skip
        nx.draw_networkx_nodes(graph, place, ax=axes, node_size=50, node_color="white", edgecolors="k", linewidths=0.6)
        nx.draw_networkx_nodes(
            graph, place, nodelist=[picture["node"]], ax=axes, node_size=130, node_color="#ffd92f", edgecolors="k"
        )
        axes.set_title(name, fontsize=10)
        _bare(axes)
    return figure
