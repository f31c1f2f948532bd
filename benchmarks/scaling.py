"""Cost against the total size of the computation graphs, on generated graphs from 10³ to 10⁶ edges."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

import edgewise as ew
from benchmarks.data import even_graph, power_law_graph
from benchmarks.models import LAYERS, large_model
from benchmarks.timing import fitting

FEATURES = HIDDEN = 32
CLASSES = 7
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
QUICK_SIZES = (1_000, 10_000, 100_000)
LOOKS = (("o", "#0072b2", (-5, 5), "right"), ("s", "#d55e00", (6, -9), "left"))  # of the families, labels apart
MANY = 100_000  # edges of computation graphs: below, the fixed cost of a call counts
BLOCK = 1024  # targets counted at once


def _power_law(num_edges: int) -> Data:
    return power_law_graph(max(num_edges // 4, 2), num_edges, features=FEATURES)


FAMILIES: dict[str, Callable[[int], Data]] = {
    "even degrees": lambda num_edges: even_graph(num_edges, features=FEATURES),
    "power-law degrees": _power_law,
}


@dataclass(frozen=True)
class Point:
    """One graph: its edges, the targets explained, the edges of all their computation graphs, and what it cost."""

    family: str
    edges: int
    targets: int
    size: int
    seconds: float


def computation_size(edge_index: Tensor, num_nodes: int, targets: Tensor, num_layers: int) -> int:
    """Edges that can still reach their target, summed over layers and targets; nodes may wait (every layer hears itself)."""
    source, receiver = edge_index.numpy()
    senders = source[np.argsort(receiver, kind="stable")]
    degree = np.bincount(receiver, minlength=num_nodes)
    first = np.concatenate([[0], np.cumsum(degree)])
    return sum(_size_of_block(senders, degree, first, block.numpy(), num_layers) for block in targets.split(BLOCK))


def _size_of_block(
    senders: np.ndarray, degree: np.ndarray, first: np.ndarray, targets: np.ndarray, num_layers: int
) -> int:
    num_nodes, total = len(degree), 0
    pairs = np.arange(len(targets)) * num_nodes + targets  # (target, node that can still reach it)
    for layer in range(num_layers):
        owner, node = np.divmod(pairs, num_nodes)
        count = degree[node]
        total += int(count.sum())
        if layer < num_layers - 1:
            begin = np.repeat(first[node] - np.concatenate([[0], np.cumsum(count)[:-1]]), count)
            heard = senders[begin + np.arange(count.sum())]
            pairs = np.unique(np.concatenate([pairs, np.repeat(owner, count) * num_nodes + heard]))
    return total


def run(sizes: tuple[int, ...], seconds: float) -> Iterator[Point]:
    """A point for each family and size. As many nodes as fit the time of a point, all of them if they do."""
    model = large_model(FEATURES, HIDDEN, CLASSES)
    share = seconds / len(sizes) / len(FAMILIES)
    for num_edges in sizes:
        for family, make in FAMILIES.items():
            graph = make(num_edges)
            targets, taken = _explained(model, graph, share / 2)
            size = computation_size(graph.edge_index, graph.num_nodes, targets, LAYERS)
            yield Point(family, num_edges, len(targets), size, taken)


def _explained(model: torch.nn.Module, graph: Data, limit: float) -> tuple[Tensor, float]:
    """The targets, and the process seconds of explaining them."""

    def explain(targets: Tensor) -> None:
        ew.explain(model, graph, index=targets, level="layer")

    everyone, generator = torch.arange(graph.num_nodes), torch.Generator().manual_seed(0)
    _, fixed = fitting(explain, everyone[:1], limit, generator)
    targets, _ = fitting(explain, everyone, max(limit, 3 * fixed), generator)
    start = time.process_time()
    explain(targets)
    return targets, time.process_time() - start


def exponent(points: list[Point]) -> float:
    """The slope of log cost over log size, where the fixed cost of a call no longer counts: 1 is linear."""
    many = [p for p in points if p.size >= MANY]
    if len(many) < 2:
        return float("nan")
    size, seconds = (np.log([getattr(p, name) for p in many]) for name in ("size", "seconds"))
    return float(np.polyfit(size, seconds, 1)[0])


def plot(points: list[Point], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
    for family, (marker, colour, place, side) in zip(FAMILIES, LOOKS, strict=True):
        own = [p for p in points if p.family == family]
        axes.plot([p.size for p in own], [p.seconds for p in own], marker, color=colour, label=family, markersize=6)
        label = partial(axes.annotate, xytext=place, textcoords="offset points", ha=side, fontsize=7, color=colour)
        for p in own:
            label(_short(p.edges), (p.size, p.seconds))
    _guide(axes, points)
    axes.set(xscale="log", yscale="log", ylabel="seconds, one thread")
    axes.set_xlabel("edges of all computation graphs together (labels: edges of the graph)")
    axes.set_title("Layer gradients, GCN 3×32: cost grows with what must be computed", fontsize=10)
    axes.grid(which="major", color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=160)
    pyplot.close(figure)


def _guide(axes: Any, points: list[Point]) -> None:
    """A line of slope 1 at the median rate."""
    rate = float(np.median([p.seconds / p.size for p in points]))
    span = np.array([min(p.size for p in points), max(p.size for p in points)])
    axes.plot(span, span * rate, color="0.5", linestyle="--", linewidth=1, label=f"linear, {rate * 1e9:.0f} ns an edge")


def _short(edges: int) -> str:
    return f"{edges // 1_000_000}M" if edges >= 1_000_000 else f"{edges // 1_000}k"
