"""Drawings of small graphs: stars of Negative Evidence, paths of Infection, one node of Cora.

Each function takes a picture, the plain numbers and lists that an experiment's task has kept.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from edgewise.report.appearance import OPPOSES, SUPPORTS
from edgewise_paper.report.charts import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


NODE = {"blue": "#4575b4", "red": "#d73027", "green": "#1a9850", "gray": "#bdbdbd"}


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
