"""Charts of the report, drawn with matplotlib: curves over depth, matrices of cosines, trajectories, scatter plots.

Every function takes numbers and returns a figure; `save` writes it as PNG and SVG. Graphs are drawn in `figures.py`.
"""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewise.errors import missing_extra
from edgewise.files import write_whole
from edgewise.report.appearance import SUPPORTS
from edgewise_paper.comparison import Compared
from edgewise_paper.training.networks import ARCHITECTURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Methods of explanations, and directions of sign flips.
COLOURS = {
    "gnn_explainer": "#d95f02",
    "gradient": "#1b9e77",
    "occlusion": "#7570b3",
    "random": "#999999",
    "full": "#66a61e",
    "positive_gradient": "#e7298a",
    "all": "#333333",
    "to_negative": "#d95f02",
    "to_positive": "#1b9e77",
}
NAMES = {
    "gnn_explainer": "GNNExplainer",
    "gradient": "Grad",
    "occlusion": "Occlusion",
    "random": "Random",
    "full": "Full",
    "positive_gradient": "Positive Grad",
    "all": "all",
    "to_negative": "positive → negative",
    "to_positive": "negative → positive",
}


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of so many inches that belongs to no window."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("matplotlib", "plot", "The report's figures") from error
    return Figure(figsize=(width, height), dpi=130, layout="constrained")


def save(figure: "Figure", folder: Path, name: str) -> None:
    """Write `name.png` and `name.svg` into a folder, the same bytes every time."""
    folder.mkdir(parents=True, exist_ok=True)
    about: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None}}
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "edgewise"}):
        for ending, metadata in about.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=ending, metadata=metadata, bbox_inches="tight", pad_inches=0.12)
            content = buffer.getvalue()
            write_whole(folder / f"{name}.{ending}", lambda file, content=content: file.write(content))  # type: ignore[misc]


# --- The paper's figures of real data: a panel for each architecture and data set, a line for each method --------------

DATASETS = ("Cora", "CiteSeer", "Cornell", "Texas", "Wisconsin", "MUTAG", "PROTEINS", "Graph-SST2")


def curves(found: Sequence[Compared], methods: Sequence[str], label: str) -> "Figure":
    """Numbers over the number of layers: ours solid with the range over the seeds, published dashed.

    Args:
        found: Numbers of several data sets, architectures and depths.
        methods: Which of them are drawn, a line each.
        label: What the vertical axis shows.
    """
    datasets = [name for name in DATASETS if any(one.dataset == name for one in found)]
    rows = [name for name in ARCHITECTURES if any(one.architecture == name for one in found)]
    figure = new_figure(2.1 * max(len(datasets), 2) + 0.6, 2.0 * len(rows) + 0.8)
    panels = figure.subplots(len(rows), len(datasets), squeeze=False, sharex=True, sharey=True)
    for i, architecture in enumerate(rows):
        for j, dataset in enumerate(datasets):
            here = [one for one in found if (one.architecture, one.dataset) == (architecture, dataset)]
            _lines(panels[i, j], here, methods)
            if i == 0:
                panels[i, j].set_title(dataset, fontsize=10)
            if j == 0:
                panels[i, j].set_ylabel(f"{architecture}\n{label}", fontsize=9)
            if i == len(rows) - 1:
                panels[i, j].set_xlabel("layers", fontsize=9)
    _legend(figure, methods)
    return figure


def _lines(axes: Any, found: list[Compared], methods: Sequence[str]) -> None:
    """One panel."""
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.tick_params(labelsize=8)
    axes.set_xticks(range(1, 6))
    for method in methods:
        line = sorted((one for one in found if one.method == method), key=lambda one: one.layers)
        if not line:
            continue
        depth, colour = [one.layers for one in line], COLOURS[method]
        axes.plot(depth, [one.mean for one in line], color=colour, linewidth=1.6, marker="o", markersize=3)
        if any(one.seeds > 1 for one in line):
            axes.fill_between(
                depth, [one.low for one in line], [one.high for one in line], color=colour, alpha=0.18, linewidth=0
            )
        theirs = [
            (one.layers, one.published.value) for one in line if one.published and not math.isnan(one.published.value)
        ]
        if theirs:
            axes.plot(*zip(*theirs, strict=True), color=colour, linewidth=1.0, linestyle="--", alpha=0.75)


def _legend(figure: "Figure", methods: Sequence[str]) -> None:
    """One legend for all panels, below them: methods by colour, ours and published by line style."""
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=COLOURS[method], marker="o", markersize=3, label=NAMES[method]) for method in methods]
    lines += [Line2D([], [], color="0.3", label="ours"), Line2D([], [], color="0.3", linestyle="--", label="published")]
    figure.legend(handles=lines, loc="outside lower center", ncols=len(lines), fontsize=8, frameon=False)


# --- Infection: mean cosines between all pairs of methods, published ones below ours -----------------------------------

METHODS = ("positive_gradient", "gnn_explainer", "gradient", "occlusion", "random", "full")


def matrices(found: Sequence[Compared], layers: Sequence[int]) -> "Figure":
    """6×6 matrices of mean cosines: a column for each layer (0: the input level); ours above, published below."""
    figure = new_figure(3.1 * len(layers) + 1.0, 6.4)
    panels = figure.subplots(2, len(layers), squeeze=False)
    image = None
    for j, layer in enumerate(layers):
        here = [one for one in found if one.layer == layer]
        for i, (title, matrix) in enumerate((("ours", _ours(here)), ("published", _theirs(here)))):
            where = "input level" if layer == 0 else f"layer {layer}"
            image = _matrix(panels[i, j], matrix, f"{title}, {where}", names=j == 0)
    if image is not None:
        figure.colorbar(image, ax=panels, shrink=0.6, label="mean cosine")
    return figure


def _filled(pairs: dict[tuple[str, str], float]) -> np.ndarray:
    """The symmetric matrix of pairs, `[6, 6]`, with ones on the diagonal."""
    matrix = np.eye(len(METHODS))
    for (one, other), value in pairs.items():
        i, j = METHODS.index(one), METHODS.index(other)
        matrix[i, j] = matrix[j, i] = value
    return matrix


def _ours(found: list[Compared]) -> np.ndarray:
    """Our mean cosines, `[6, 6]`."""
    return _filled({(one.reference, one.method): one.mean for one in found})


def _theirs(found: list[Compared]) -> np.ndarray:
    """The published ones, `[6, 6]`; 0 where none is published."""
    return _filled({(one.reference, one.method): one.published.value for one in found if one.published})


def _matrix(axes: Any, matrix: np.ndarray, title: str, *, names: bool) -> Any:
    """One matrix with its numbers; names of methods at its left if wanted."""
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


# --- What the paper does not have: mask trajectories, the spread over seeds, few passes instead of many ----------------


def trajectories(pictures: Mapping[str, Mapping[str, Any]]) -> "Figure":
    """Masks over the epochs: a row for each data set, a column for each combination of regularisers.

    `pictures` are named "data set, regularisers" and hold `epochs` and, for each mask, its values (`masks`).
    """
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
    """One point for each seed, the published number as a line; `labels` are those of the two axes."""
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
    """Cosine to GNNExplainer over the number of passes, a line for each network.

    `levels` are two horizontal lines for each network: Positive Gradients, and GNNExplainer from another random start.
    """
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
