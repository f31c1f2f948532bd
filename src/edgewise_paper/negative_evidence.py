"""Negative Evidence with two colours: GNNExplainer follows the sign of the gradient, and reversed it finds the opposition."""

import time
from dataclasses import replace
from typing import Any

import torch
from torch import nn

import edgewise as ew
from edgewise.datasets.negative_evidence import FIRST_RATE, LAST_RATE, NegativeEvidence, negative_evidence
from edgewise.datasets.planted_data import Trained
from edgewise.results.explanation_set import Entries, Part
from edgewise_paper.context import Context
from edgewise_paper.similarity import Average, cosines
from edgewise_paper.task import PaperOptions, Row, Task, TaskOutcome

# --- Arithmetic on sets of explanations --------------------------------------------------------------------------------


def difference(one: ew.ExplanationSet, other: ew.ExplanationSet) -> ew.ExplanationSet:
    """Scores of the one minus scores of the other, for the same targets in the same order."""
    first, second = one.edges, other.edges
    assert first is not None
    assert second is not None
    row, place = (torch.cat(parts) for parts in ((first.rows(), second.rows()), (first.place, second.place)))
    stride = int(place.max()) + 1 if len(place) else 1
    key, where = (row * stride + place).unique(return_inverse=True)
    score = first.score.new_zeros(len(key)).index_add_(0, where, torch.cat([first.score, -second.score]))
    part = Part(key.div(stride, rounding_mode="floor"), key % stride, score)
    return replace(one, method=f"{one.method} − reversed", edges=Entries([part], len(one)), own=None)


# --- The whole ---------------------------------------------------------------------------------------------------------


NAME = "negative-evidence"
SEEDS = 10
EXPLAINER = {"epochs": 100, "lr": 0.5, "edge_size": 0.001, "edge_ent": 0.0}
EPSILON = 0.001
CONSTANT = "constant rate"
"""Variant: Adam at 0.01 to the end, as published. It steps around zero, and what it leaves on gray may exceed ε."""
PICTURE = "negative evidence"


def tasks(options: PaperOptions) -> list[Task]:
    """One for each seed."""
    return colour_tasks(NAME, "Negative Evidence", 2, options)


def run(task: Task, context: Context) -> TaskOutcome:
    """Train, explain every test node."""
    return explain_colours(task, context)


def colour_tasks(experiment: str, dataset: str, colours: int, options: PaperOptions) -> list[Task]:
    """The same for any number of colours."""
    seeds = options.seeds_of(at_least=SEEDS)
    settings = {
        "dataset": dataset,
        "colours": colours,
        "explainer": EXPLAINER,
        "epsilon": EPSILON,
        "last_rate": LAST_RATE,
    }
    return [Task(experiment, "similarity", settings | {"seed": seed, "layers": 1}, 5.0) for seed in seeds]


def explain_colours(task: Task, context: Context) -> TaskOutcome:
    """Rows and, for the first seed, the picture."""
    start = time.perf_counter()
    found = negative_evidence(task.settings["seed"], task.settings["colours"])
    trained = found.train_with(found.seed, task.settings["last_rate"])
    seconds = time.perf_counter() - start
    restless = found.train_with(found.seed, FIRST_RATE)

    def explain(model: nn.Module = trained.model, **settings: Any) -> ew.ExplanationSet:
        return context.explain(model, found.data, found.targets, **settings)

    gradient = explain(method="gradient")
    masks = explain(method="gnn_explainer", **task.settings["explainer"])
    rows = [
        task.row("accuracy", trained.test_accuracy, count=len(found.targets), seconds=seconds),
        task.row("accuracy", restless.test_accuracy, count=len(found.targets), variant=CONSTANT),
        _gray(task, found, trained, ""),
        _gray(task, found, restless, CONSTANT),
    ]
    for epsilon, variant in ((EPSILON, ""), (0.0, "ε = 0")):
        positive = explain(method="positive_gradient", epsilon=epsilon)
        rows.append(_row(task, cosines(masks, positive), "gnn_explainer", "positive_gradient", variant))
    positive = explain(restless.model, method="positive_gradient", epsilon=EPSILON)
    other = explain(restless.model, method="gnn_explainer", **task.settings["explainer"])
    rows.append(_row(task, cosines(other, positive), "gnn_explainer", "positive_gradient", CONSTANT))
    shown = {"edge gradients": gradient, "GNNExplainer": masks}
    if found.num_colours == 2:
        backwards = explain(method="gnn_explainer", target=1 - gradient.target, **task.settings["explainer"])
        signed = difference(masks, backwards)
        rows.append(_row(task, cosines(signed, gradient), "gnn_explainer − reversed", "gradient", ""))
        shown["GNNExplainer, class reversed"] = backwards
    pictures = {PICTURE: _picture(found, shown)} if task.settings["seed"] == 0 else {}
    return TaskOutcome(rows, pictures)


def _row(task: Task, cosine: torch.Tensor, method: str, reference: str, variant: str) -> Row:
    average = Average.of(cosine)
    return task.row(
        "cosine", average.mean, deviation=average.deviation, count=average.count, level="input", method=method,
        reference=reference, variant=variant,
    )  # fmt: skip


def _gray(task: Task, found: NegativeEvidence, trained: Trained, variant: str) -> Row:
    """The weight of gray, which says nothing: above ε it is taken for positive evidence."""
    weight = trained.model.get_parameter("lin_l.weight").detach()[:, found.num_colours]
    return task.row("weight of gray", float(weight.abs().max()), method="model", variant=variant)


def _picture(found: NegativeEvidence, shown: dict[str, ew.ExplanationSet]) -> dict[str, Any]:
    """The star around one node with few neighbours: their colours, and the scores of each explanation."""
    source, receiver = found.data.edge_index
    degree = torch.bincount(receiver, minlength=found.data.num_nodes)
    node = int(found.targets[degree[found.targets].argmin()])
    columns = (receiver == node).nonzero().view(-1)
    colour = found.data.x[source[columns]].argmax(dim=1)
    order = colour.argsort(stable=True)
    return {
        "node": node,
        "neighbours": source[columns][order].tolist(),
        "colours": [("blue", "red", "green")[c] if c < found.num_colours else "gray" for c in colour[order].tolist()],
        "scores": {name: explained.of(node).scores[columns][order].tolist() for name, explained in shown.items()},
    }
