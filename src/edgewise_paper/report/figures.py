"""Which figures the report has, and from which results each is drawn (`draw_all`).

| figures | experiment |
|---|---|
| `negative-evidence`, `negative-evidence-multiclass` | the two of Negative Evidence: a node and its neighbours |
| `infection-similarity`, `-layerwise`, `-seeds`, `-paths` | Infection: matrices of cosines, their spread, two walks |
| `real-input-similarity`, `real-layerwise-similarity` | nodes and graphs: cosines over depth |
| `real-sign-flips`, `real-sign-flips-code` | nodes and graphs: shares over depth, with the text's and the code's weights |
| `cora-node` | nodes: one node with two explanations |
| `mask-trajectories` | regularisation |
| `few-passes` | beyond |

A figure without results is left out. `charts.py` and `small_graphs.py` do the drawing.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgewise_paper.comparison import Compared, published
from edgewise_paper.report.charts import curves, matrices, passes, save, scatter, trajectories
from edgewise_paper.report.reasons import MARKED, PAIR
from edgewise_paper.report.result_view import ResultView
from edgewise_paper.report.small_graphs import masks, paths, stars
from edgewise_paper.similarity import CODE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REAL = ("node-classification", "graph-classification")
INPUT_METHODS = ("gnn_explainer", "gradient", "occlusion", "random", "full")
LAYER_METHODS = ("gnn_explainer", "gradient", "random", "full")
FLIPS = ("all", "to_negative", "to_positive")
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
