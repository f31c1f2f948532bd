"""Small graphs: stars of Negative Evidence, paths of Infection, one node of Cora."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewise.report.colours import OPPOSES, SUPPORTS
from edgewise_paper.comparison import Compared
from edgewise_paper.report.canvas import NAMES, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


NODE = {"blue": "#4575b4", "red": "#d73027", "green": "#1a9850", "gray": "#bdbdbd"}


def stars(picture: Mapping[str, Any]) -> "Figure":
    """A node with its neighbours in their colours, once for each explanation; edges by sign and size of scores."""
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
    axes.set_aspect("equal", adjustable="datalim")  # the axes keep their place, and their titles
    axes.axis("off")
    axes.margins(0.06)


def paths(picture: Mapping[str, Any], titles: Mapping[str, str]) -> "Figure":
    """The same surroundings once for each search, its walk drawn thick."""
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
    """One graph with the scores of several explanations as the width of its edges."""
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


# --- Infection: mean cosines between all pairs of methods, published ones beside ours ----------------------------------


METHODS = ("positive_gradient", "gnn_explainer", "gradient", "occlusion", "random", "full")


def matrices(found: Sequence[Compared], layers: Sequence[int]) -> "Figure":
    """A column for each layer (0: the input level); ours above, published below."""
    figure = new_figure(3.1 * len(layers) + 1.0, 6.4)
    panels = figure.subplots(2, len(layers), squeeze=False)
    image = None
    for j, layer in enumerate(layers):
        here = [one for one in found if one.layer == layer]
        for i, (title, matrix) in enumerate((("ours", _ours(here)), ("published", _theirs(here)))):
            where = "input level" if layer == 0 else f"layer {layer}"
            image = _panel(panels[i, j], matrix, f"{title}, {where}", names=j == 0)
    if image is not None:
        figure.colorbar(image, ax=panels, shrink=0.6, label="mean cosine")
    return figure


def _filled(pairs: dict[tuple[str, str], float]) -> np.ndarray:
    matrix = np.eye(len(METHODS))
    for (one, other), value in pairs.items():
        i, j = METHODS.index(one), METHODS.index(other)
        matrix[i, j] = matrix[j, i] = value
    return matrix


def _ours(found: list[Compared]) -> np.ndarray:
    return _filled({(one.reference, one.method): one.mean for one in found})


def _theirs(found: list[Compared]) -> np.ndarray:
    return _filled({(one.reference, one.method): one.published.value for one in found if one.published})


def _panel(axes: Any, matrix: np.ndarray, title: str, *, names: bool) -> Any:
    image = axes.imshow(matrix, vmin=0, vmax=1, cmap="viridis")
    axes.set_title(title, fontsize=9)
    labels = [NAMES[method] for method in METHODS]
    axes.set_xticks(range(len(labels)), labels, rotation=60, ha="right", fontsize=7)
    axes.set_yticks(range(len(labels)), labels if names else [""] * len(labels), fontsize=7)
    for i, j in np.ndindex(matrix.shape):
        axes.text(
            j,
            i,
            f"{matrix[i, j]:.2f}",
            ha="center",
            va="center",
            fontsize=6.5,
            color="w" if matrix[i, j] < 0.6 else "k",
        )
    return image


# --- Figures of what the paper does not have: mask trajectories, the spread over seeds, few passes instead of many -----


def trajectories(pictures: Mapping[str, Mapping[str, Any]]) -> "Figure":
    """Masks over the epochs, a panel for each combination of regularisers (columns) and data set (rows)."""
    keys = [name.split(", ") for name in pictures]
    datasets, regimes = (list(dict.fromkeys(key[i] for key in keys)) for i in (0, 1))
    figure = new_figure(3.0 * len(regimes), 2.4 * len(datasets) + 0.3)
    panels = figure.subplots(len(datasets), len(regimes), squeeze=False, sharex=True, sharey=True)
    for (dataset, regime), picture in zip(keys, pictures.values(), strict=True):
        axes = panels[datasets.index(dataset), regimes.index(regime)]
        for line in picture["masks"]:
            axes.plot(picture["epochs"], line, color=SUPPORTS, linewidth=0.6, alpha=0.45)
        axes.axhline(0.5, color="0.6", linewidth=0.6, linestyle=":")
        axes.set_title(f"{dataset}: {regime}", fontsize=9)
        axes.set_ylim(0, 1)
    for axes in panels[:, 0]:
        axes.set_ylabel("mask", fontsize=9)
    for axes in panels[-1]:
        axes.set_xlabel("epoch", fontsize=9)
    return figure


def scatter(points: Sequence[tuple[float, float]], published: float, labels: tuple[str, str]) -> "Figure":
    """One point a seed, the published number as a line."""
    figure = new_figure(4.6, 3.6)
    axes = figure.subplots()
    axes.scatter(*zip(*points, strict=True), color=SUPPORTS, zorder=2)
    axes.axhline(published, color="0.4", linestyle="--", linewidth=1, label=f"published {published:.4f}")
    axes.set_xlabel(labels[0], fontsize=9)
    axes.set_ylabel(labels[1], fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    axes.grid(alpha=0.25)
    return figure


def passes(lines: Mapping[str, Sequence[tuple[int, float]]], levels: Mapping[str, tuple[float, float]]) -> "Figure":
    """Cosine to GNNExplainer over the number of passes; `levels`: Positive Gradients and another random start."""
    from matplotlib import colormaps

    figure = new_figure(6.4, 4.0)
    axes = figure.subplots()
    for place, (name, line) in enumerate(lines.items()):
        colour = colormaps["tab10"](place % 10)
        axes.plot(*zip(*line, strict=True), marker="o", markersize=3.5, color=colour, label=name)
        positive, again = levels[name]
        axes.axhline(positive, color=colour, linewidth=0.8, linestyle=":")
        axes.axhline(again, color=colour, linewidth=0.8, linestyle="--")
    axes.set_xlabel("backward passes", fontsize=9)
    axes.set_ylabel("cosine to GNNExplainer", fontsize=9)
    axes.set_title("dotted: Positive Gradients; dashed: GNNExplainer from another start", fontsize=9)
    axes.set_ylim(top=1.005)
    axes.legend(fontsize=7, frameon=False)
    axes.grid(alpha=0.25)
    return figure
