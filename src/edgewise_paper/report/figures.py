"""Draws every figure for which there are results."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise_paper.architectures import ARCHITECTURES
from edgewise_paper.comparison import Compared, published
from edgewise_paper.report.canvas import COLOURS, NAMES, new_figure, save
from edgewise_paper.report.reasons import MARKED, PAIR
from edgewise_paper.report.result_view import ResultView
from edgewise_paper.report.small_graphs import masks, matrices, passes, paths, scatter, stars, trajectories
from edgewise_paper.similarity import CODE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# --- The paper's figures of real data: a panel for each architecture and data set, a line for each method --------------


DATASETS = ("Cora", "CiteSeer", "Cornell", "Texas", "Wisconsin", "MUTAG", "PROTEINS", "Graph-SST2")


def curves(found: Sequence[Compared], methods: Sequence[str], label: str) -> "Figure":
    """Ours solid with the range over the seeds, published dashed."""
    datasets = [name for name in DATASETS if any(one.dataset == name for one in found)]
    rows = [name for name in ARCHITECTURES if any(one.architecture == name for one in found)]
    figure = new_figure(2.1 * max(len(datasets), 2) + 0.6, 2.0 * len(rows) + 0.8)
    panels = figure.subplots(len(rows), len(datasets), squeeze=False, sharex=True, sharey=True)
    for i, architecture in enumerate(rows):
        for j, dataset in enumerate(datasets):
            here = [one for one in found if (one.architecture, one.dataset) == (architecture, dataset)]
            _panel(panels[i, j], here, methods)
            if i == 0:
                panels[i, j].set_title(dataset, fontsize=10)
            if j == 0:
                panels[i, j].set_ylabel(f"{architecture}\n{label}", fontsize=9)
            if i == len(rows) - 1:
                panels[i, j].set_xlabel("layers", fontsize=9)
    _legend(figure, methods)
    return figure


def _panel(axes: Any, found: list[Compared], methods: Sequence[str]) -> None:
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
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=COLOURS[method], marker="o", markersize=3, label=NAMES[method]) for method in methods]
    lines += [Line2D([], [], color="0.3", label="ours"), Line2D([], [], color="0.3", linestyle="--", label="published")]
    figure.legend(handles=lines, loc="outside lower center", ncols=len(lines), fontsize=8, frameon=False)


# --- The whole ---------------------------------------------------------------------------------------------------------


REAL = ("node-classification", "graph-classification")
INPUT_METHODS = ("gnn_explainer", "gradient", "occlusion", "random", "full")
LAYER_METHODS = ("gnn_explainer", "gradient", "random", "full")
FLIPS = ("all", "to_negative", "to_positive")
SEARCH_TITLES = {"dag": "Algorithm 1", "amp_ave_additive": "AMP-ave-Basic, additive"}


def draw_all(view: ResultView, folder: Path) -> set[str]:
    """The names of the figures that were drawn."""
    drawn = set()
    for name, figure in _figures(view):
        save(figure, folder, name)
        drawn.add(name)
    return drawn


def _figures(view: ResultView) -> Iterator[tuple[str, "Figure"]]:
    yield from _small_graphs(view)
    yield from _infection(view)
    yield from _real(view)
    yield from _measurements(view)


def _small_graphs(view: ResultView) -> Iterator[tuple[str, "Figure"]]:
    for experiment in ("negative-evidence", "negative-evidence-multiclass"):
        if picture := view.pictures.get((experiment, "negative evidence")):
            yield experiment, stars(picture)
    if picture := view.pictures.get(("infection", "infection paths")):
        yield "infection-paths", paths(picture, SEARCH_TITLES)
    if picture := view.pictures.get(("node-classification", "cora node")):
        yield "cora-node", masks(picture)


def _infection(view: ResultView) -> Iterator[tuple[str, "Figure"]]:
    """Full masks as published: a hop wider."""
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
    """Each number as the published one was made, where the code differs from the text; flips by the text's."""
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
    """The text's count beside the published one, which is filed under the code's."""
    return replace(one, published=published().get((*one.key[:-1], CODE)))


def _measurements(view: ResultView) -> Iterator[tuple[str, "Figure"]]:
    prefix = "mask trajectories: "
    lines = {name.removeprefix(prefix): p for (_, name), p in view.pictures.items() if name.startswith(prefix)}
    if lines:
        yield "mask-trajectories", trajectories(lines)
    if view.find(experiment="beyond", quantity="cosine"):
        yield "few-passes", _few_passes(view)


def _few_passes(view: ResultView) -> "Figure":
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
