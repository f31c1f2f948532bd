"""Figures of what the paper does not have: mask trajectories, the spread over seeds, few passes instead of many."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgewise.experiments.reporting.drawing import new_figure
from edgewise.report.colours import SUPPORTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
