"""Infection: 6×6 similarities at both levels, why they differ from seed to seed, and the paths that walk searches recover."""

import time
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

import edgewise as ew
from edgewise.algorithms.gradient import weight_gradients
from edgewise.datasets.infection import TrainedInfection, infection_model
from edgewise.experiments.desk import Desk
from edgewise.experiments.infection_paths import path_outcome
from edgewise.experiments.measuring import Average
from edgewise.experiments.neighbourhoods import neighbourhood
from edgewise.experiments.options import Options
from edgewise.experiments.rows import Row
from edgewise.experiments.similarities import CODE, EXPLAINER
from edgewise.experiments.tasks import Outcome, Task
from edgewise.score import Score

NAME = "infection"
SEEDS, QUICK_EPOCHS = 10, 100
METHODS = ("positive_gradient", "gnn_explainer", "gradient", "occlusion", "random", "full")
TEXT_RATE = 0.003
"""The learning rate of GNNExplainer in the text; PyG's default, which the code uses, is 0.01."""


def tasks(options: Options) -> list[Task]:
    """Three for each seed."""
    found = []
    for seed in options.seeds_of(at_least=SEEDS):
        about = {"dataset": "Infection", "architecture": "GraphSAGE", "layers": 4, "seed": seed}
        explained = about | {"explainer": EXPLAINER}
        found += [
            Task(NAME, "input similarity", explained, 20.0),
            Task(NAME, "layerwise similarity", explained, 20.0),
            Task(NAME, "paths", about, 12.0),
        ]
    return found


def run(task: Task, desk: Desk) -> Outcome:
    """Train, which takes two seconds, and explain every node that has an edge."""
    start = time.perf_counter()
    trained = infection_model(task.settings["seed"])
    seconds = time.perf_counter() - start
    if task.part == "paths":
        return path_outcome(task, trained)
    if task.part == "layerwise similarity":
        return Outcome(list(_layer_rows(task, desk, trained)))
    accuracy = task.row("accuracy", trained.test_accuracy, count=trained.graphs.test.num_nodes, seconds=seconds)
    return Outcome([accuracy, *_input_rows(task, desk, trained), *_spread_rows(task, desk, trained)])


def _explain(
    task: Task, desk: Desk, trained: TrainedInfection, level: str
) -> tuple[dict[str, ew.ExplanationSet], float]:
    """By method, and the seconds that GNNExplainer took."""
    graph = trained.graphs.test
    nodes = graph.edge_index.unique()
    found, seconds = {}, 0.0
    for method in METHODS:
        start = time.perf_counter()
        settings = task.settings["explainer"] if method == "gnn_explainer" else {}
        found[method] = desk.explain(trained.model, graph, nodes, method=method, level=level, **settings)
        seconds = time.perf_counter() - start if method == "gnn_explainer" else seconds
    return found, seconds


def _pairs(task: Task, found: dict[str, ew.ExplanationSet], **where: Any) -> Iterator[Row]:
    for one, other in combinations(METHODS, 2):
        cosine = ew.similarity(found[one], found[other], per_layer=where["level"] == "layer")
        for layer, column in enumerate(cosine.view(len(cosine), -1).t(), start=1):
            average = Average.of(column)
            about = {"deviation": average.deviation, "count": average.count, "method": other, "reference": one}
            number = layer if where["level"] == "layer" else 0
            yield task.row("cosine", average.mean, layer=number, **about, **where)


def _input_rows(task: Task, desk: Desk, trained: TrainedInfection) -> Iterator[Row]:
    """Full masks are those of the four-hop neighbourhood; the code's are a hop wider."""
    found, seconds = _explain(task, desk, trained, "input")
    found["full"] = neighbourhood(found["full"], [4])
    yield from _pairs(task, found, level="input", seconds=seconds)
    wide = {**found, "full": neighbourhood(found["full"], [5])}
    yield from (row for row in _pairs(task, wide, level="input", variant=CODE) if row.method == "full")
    slower = desk.explain(
        trained.model, trained.graphs.test, found["full"].index, method="gnn_explainer",
        **{**task.settings["explainer"], "lr": TEXT_RATE},
    )  # fmt: skip
    average = Average.of(ew.similarity(slower, found["positive_gradient"]))
    about = {
        "level": "input",
        "method": "gnn_explainer",
        "reference": "positive_gradient",
        "variant": f"lr {TEXT_RATE}",
    }
    yield task.row("cosine", average.mean, deviation=average.deviation, count=average.count, **about)


def _layer_rows(task: Task, desk: Desk, trained: TrainedInfection) -> Iterator[Row]:
    """The text's full mask is the computation graph; the code's is the whole neighbourhood, a hop too wide in every layer."""
    found, seconds = _explain(task, desk, trained, "layer")
    yield from _pairs(task, found, level="layer", seconds=seconds)
    wide = {**found, "full": neighbourhood(found["full"], [5, 4, 3, 2])}
    yield from (row for row in _pairs(task, wide, level="layer", variant=CODE) if row.method == "full")


def _spread_rows(task: Task, desk: Desk, trained: TrainedInfection) -> Iterator[Row]:
    """On how many edges the gradient that moves GNNExplainer's masks has the sign of the logit's gradient at ω = 1.

    The masks start at ω = ½ and follow the log-probability; Positive Gradients look at the logit, at ω = 1.
    """
    graph = trained.graphs.test
    nodes = graph.edge_index.unique()

    def gradient(of: str, weight: float) -> tuple[Score, Tensor]:
        score = Score(trained.model, graph, nodes, of=of, device=desk.options.device)
        return score, weight_gradients(score, score.ones() * weight, None)[0].sum(dim=0)

    score, reference = gradient("logit", 1.0)
    for of, weight in (("log_prob", 1.0), ("logit", 0.5), ("log_prob", 0.5)):
        _, other = gradient(of, weight)
        counted = (reference != 0) | (other != 0)
        agree = _by_target(score, ((reference > 0) == (other > 0)) & counted) / _by_target(score, counted)
        average = Average.of(agree)
        about = {"deviation": average.deviation, "count": average.count, "reference": "logit at ω = 1"}
        yield task.row("sign agreement", average.mean, method=f"{of} at ω = {weight:g}", level="input", **about)


def _by_target(score: Score, flags: Tensor) -> Tensor:
    return torch.zeros(score.num_targets, dtype=torch.double).index_add_(0, score.owner.cpu(), flags.cpu().double())
