"""The paper's figures of real data: a panel for each architecture and data set, a line for each method."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgewise.experiments.architectures import ARCHITECTURES
from edgewise.experiments.comparing import Compared
from edgewise.experiments.reporting.drawing import COLOURS, NAMES, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
