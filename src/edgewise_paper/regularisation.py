"""The experiment on the appendix: what the regularisers of GNNExplainer do to its masks, and what the first step decides.

Masks are taken after more and more epochs, with neither, either and both of the size and entropy terms, on Infection and on a
GCN on Cora.
"""

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import edgewise as ew
from edgewise.algorithms.gnn_explainer import loss_gradient
from edgewise.results.entries import Entries, Part
from edgewise.score import Score
from edgewise_paper.context import Context
from edgewise_paper.infection import QUICK_EVERY
from edgewise_paper.similarity import Average, cosines, model_graph_and_nodes
from edgewise_paper.task import PaperOptions, Row, Task, TaskOutcome
from edgewise_paper.training.networks import NODE_EPOCHS, Recipe

NAME = "regularisation"
REGIMES = {
    "none": {"edge_size": 0.0, "edge_ent": 0.0},
    "size": {"edge_size": 0.005, "edge_ent": 0.0},
    "entropy": {"edge_size": 0.0, "edge_ent": 1.0},
    "both": {"edge_size": 0.005, "edge_ent": 1.0},
}
EPOCHS, QUICK_EPOCHS = (1, 2, 5, 10, 20, 35, 50, 75, 100), (1, 10, 100)
"""After how many epochs masks are looked at."""
EARLY = 10
"""An epoch, one of these, that is early."""
SHOWN = 60  # masks in a figure
PICTURE = "mask trajectories"


def tasks(options: PaperOptions) -> list[Task]:
    """One task for each network and each combination of the two terms."""
    cora = Recipe("Cora", "GCN", 2, 0, 100 if options.quick else NODE_EPOCHS)
    networks: list[dict[str, Any]] = [
        {
            "dataset": "Infection",
            "architecture": "GraphSAGE",
            "layers": 4,
            "seed": 0,
            "every": QUICK_EVERY if options.quick else 1,
        },
        {"dataset": "Cora", "architecture": "GCN", "layers": 2, "seed": 0, "training": cora.plain},
    ]
    epochs = list(QUICK_EPOCHS if options.quick else EPOCHS)
    seconds = 3.0 if options.quick else 10.0
    return [
        Task(NAME, regime, about | {"epochs": epochs, **terms}, seconds)
        for about in networks
        for regime, terms in REGIMES.items()
    ]


def run(task: Task, context: Context) -> TaskOutcome:
    """Masks after more and more epochs, from ω = ½ (the same start makes them one trajectory) and from PyG's random start."""
    start = time.perf_counter()
    model, data, index = model_graph_and_nodes(task, context)
    terms = {name: task.settings[name] for name in ("edge_size", "edge_ent")}
    middle = {"init": torch.zeros(data.num_edges)}

    def masks(epochs: int, **more: Any) -> ew.ExplanationSet:
        return context.explain(model, data, index, method="gnn_explainer", epochs=epochs, **terms, **more)

    looked_at = task.settings["epochs"]
    points = [masks(epochs, **middle) for epochs in looked_at]
    drawn = masks(looked_at[-1])
    path = torch.stack([_values(point, points[-1]) for point in points])  # [epochs, entries]
    positive = context.explain(model, data, index, method="positive_gradient")
    cosine = Average.of(cosines(drawn, positive))
    foreseen = _foreseen(Score(model, data, index, device=context.options.device), points[-1], terms["edge_size"])
    rows = [
        *_shares(task, path, foreseen, _values(drawn, points[-1])),
        _cosine_row(task, cosine, time.perf_counter() - start),
    ]
    chosen = torch.randperm(path.size(1), generator=torch.Generator().manual_seed(0))[:SHOWN]
    picture = {"epochs": [0, *looked_at], "masks": [[0.5, *line] for line in path[:, chosen].t().tolist()]}
    return TaskOutcome(rows, {f"{PICTURE}: {task.settings['dataset']}, {task.part}": picture})


def _values(found: ew.ExplanationSet, places: ew.ExplanationSet) -> Tensor:
    """The masks of `found` at the entries of another set, `[entries]`; 0 where it has none."""
    assert found.edges is not None
    assert places.edges is not None
    return found.edges.at(places.edges.rows(), places.edges.place)


def _foreseen(score: Score, places: ew.ExplanationSet, size: float) -> Tensor:
    """`[entries]` of bool: where the appendix expects masks above ½, ∂CE/∂ω + α < 0 at ω = ½ with the size term α."""
    gradient = loss_gradient(score, score.ones()[:1] / 2)[0]
    up = Entries([Part(score.owner.cpu(), score.edge_id.cpu(), (gradient + size < 0).float().cpu())], score.num_targets)
    assert places.edges is not None
    return up.at(places.edges.rows(), places.edges.place) > 0


def _shares(task: Task, path: Tensor, foreseen: Tensor, drawn: Tensor) -> Iterator[Row]:
    """Shares of masks: for how many the first step decides the side of ½, and how many are close to 0 or 1 at the end.

    PyG applies the regularisers from the second step on, so its first step does not depend on α; the appendix's does.

    Args:
        task: Makes the rows.
        path: Masks from ω = ½ after each of the task's `epochs`, `[epochs, entries]`.
        foreseen: What the appendix expects, `[entries]`.
        drawn: Masks from PyG's random start at the end, `[entries]`.
    """
    first, early, end = path[0] > 0.5, path[task.settings["epochs"].index(EARLY)] > 0.5, path[-1] > 0.5
    shares = {
        ("decided by the first step", "from ½"): first == end,
        ("decided by the first step", "from PyG's random start"): first == (drawn > 0.5),
        ("foreseen by the appendix", "from ½"): foreseen == end,
        ("decided after 10 epochs", "from ½"): early == end,
        ("mask above 0.7", "from PyG's random start"): drawn > 0.7,
        ("mask below 0.3", "from PyG's random start"): drawn < 0.3,
    }
    for (quantity, start), flags in shares.items():
        about = {"method": "gnn_explainer", "reference": start, "variant": task.part, "count": len(flags)}
        yield task.row(quantity, float(flags.double().mean()), **about)


def _cosine_row(task: Task, cosine: Average, seconds: float) -> Row:
    """Similarity of the trained masks to Positive Gradients."""
    about = {"deviation": cosine.deviation, "count": cosine.count, "seconds": seconds, "variant": task.part}
    return task.row(
        "cosine", cosine.mean, level="input", method="gnn_explainer", reference="positive_gradient", **about
    )
