"""Cost against targets, edges, depth, width and degree, one at a time: `python -m benchmarks.sizes`.

A GCN on a generated graph in which every edge is as likely as any other; the question is held, so the method alone is timed.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.nn import GCN

import edgewise as ew
from benchmarks.data import even_graph
from benchmarks.scaling import computation_size
from edgewise.random_numbers import seeded

EPOCHS = 5
METHODS: dict[str, dict[str, Any]] = {
    "layer gradients": {"method": "gradient", "level": "layer"},
    "layerwise occlusion": {"method": "occlusion", "level": "layer"},
    f"GNNExplainer, {EPOCHS} epochs": {"method": "gnn_explainer", "epochs": EPOCHS},
}
COLOURS = ("#0072b2", "#d55e00", "#009e73")


@dataclass(frozen=True)
class Setting:
    """The job in the middle; each axis changes one of these."""

    targets: int = 2000
    edges: int = 20_000
    depth: int = 3
    width: int = 32
    degree: int = 4


AXES: dict[str, tuple[int, ...]] = {
    "targets": (1000, 2000, 3000, 5000),
    "edges": (10_000, 20_000, 50_000, 100_000, 200_000),
    "depth": (3, 4, 5),
    "width": (16, 32, 64, 128),
    "degree": (4, 6, 8, 12),
}


@dataclass(frozen=True)
class Point:
    """One job: the axis and the value on it, the edges of all computation graphs, seconds by method."""

    axis: str
    value: int
    size: int
    seconds: dict[str, float]


def run(rounds: int) -> Iterator[Point]:
    """A point for each value on each axis; the middle one is measured once for each axis."""
    for axis, values in AXES.items():
        for value in values:
            setting = replace(Setting(), **{axis: value})
            if axis == "degree":  # as many nodes
                setting = replace(setting, edges=Setting().edges // Setting().degree * value)
            yield _measured(axis, value, setting, rounds)


def _measured(axis: str, value: int, setting: Setting, rounds: int) -> Point:
    graph = even_graph(setting.edges, degree=setting.degree)
    with seeded(0):
        model = GCN(graph.num_features, setting.width, setting.depth, 7).eval()
    targets = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))[: setting.targets]
    question, seconds = ew.Question(model, graph, targets), {}
    for name, options in METHODS.items():
        best = float("inf")
        for _ in range(rounds):
            start = time.process_time()
            question.explain(**options)
            best = min(best, time.process_time() - start)
        seconds[name] = best
    return Point(axis, value, computation_size(graph.edge_index, graph.num_nodes, targets, setting.depth), seconds)


def exponents(points: list[Point]) -> dict[str, dict[str, float]]:
    """By axis and method the slope of log cost over log value; beside the methods that of the edges of computation graphs."""
    found: dict[str, dict[str, float]] = {}
    for axis in AXES:
        own = [point for point in points if point.axis == axis]
        value = np.log([point.value for point in own])
        costs = {name: [point.seconds[name] for point in own] for name in METHODS}
        costs["edges of computation graphs"] = [point.size for point in own]
        found[axis] = {name: float(np.polyfit(value, np.log(cost), 1)[0]) for name, cost in costs.items()}
    return found


def table(found: dict[str, dict[str, float]]) -> str:
    """Exponents as Markdown."""
    head = ["cost grows as … to the power of", *found]
    names = list(next(iter(found.values())))
    rows = [[name, *(f"{found[axis][name]:.2f}" for axis in found)] for name in names]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def plot(points: list[Point], path: Path) -> None:
    """A small picture for each axis, all with the same seconds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(AXES), figsize=(12.5, 3.4), sharey=True, layout="constrained")
    slopes = exponents(points)
    for panel, axis in zip(panels, AXES, strict=True):
        own = [point for point in points if point.axis == axis]
        values = [point.value for point in own]
        for (name, colour), marker in zip(zip(METHODS, COLOURS, strict=True), "os^", strict=True):
            label = name if axis == "targets" else None
            cost = [point.seconds[name] for point in own]
            panel.plot(values, cost, marker=marker, color=colour, label=label, markersize=5, linewidth=1)
            slope, place = f"{slopes[axis][name]:.2f}", (values[-1], cost[-1])
            nudge = 4 * (sorted(own[-1].seconds.values()).index(cost[-1]) - 1)  # labels of like costs apart
            panel.annotate(slope, place, (6, nudge - 3), textcoords="offset points", fontsize=8, color=colour)
        scale = own[0].seconds["layer gradients"] / own[0].size / 2
        panel.plot(values, [point.size * scale for point in own], "--", color="0.6", linewidth=1)
        panel.set(xscale="log", yscale="log", xlabel=axis)
        panel.set_xticks(
            values, [f"{value // 1000}k" if value >= 10_000 else str(value) for value in values], fontsize=8
        )
        panel.minorticks_off()
        panel.margins(x=0.2)
        panel.grid(which="major", color="0.92")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("process seconds, one thread")
    figure.suptitle(
        "Cost by size, and its exponents. GCN; 2,000 targets, 20,000 edges, depth 3, width 32, degree 4, but for the axis. "
        "Dashed: edges of all computation graphs, scaled.",
        fontsize=9,
    )
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many")
    parser.add_argument("--picture", type=Path, default=Path(__file__).parent / "sizes.png")
    asked = parser.parse_args()
    points = []
    for point in run(asked.rounds):
        points.append(point)
        shown = ", ".join(f"{name} {seconds:.4f} s" for name, seconds in point.seconds.items())
        print(f"{point.axis} {point.value:,}: {shown}, {point.size:,} edges of computation graphs", flush=True)
    plot(points, asked.picture)
    print(table(exponents(points)))


if __name__ == "__main__":
    main()
