"""Two experiments on Negative Evidence, with two colours and with three.

With two colours GNNExplainer follows the sign of the gradient, and explaining the other class it finds the opposing edges.
With three there is one logit a colour, so other colours need not oppose the prediction.

Rows: accuracy, the model's weight of gray, cosines of GNNExplainer to Positive Gradients, and (two colours) the cosine of
GNNExplainer minus GNNExplainer of the other class to the gradients. The rate of Adam is constant, as
published; the variant `falling rate` lets it fall to 0.0001.
"""

import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import edgewise as ew
from edgewise.datasets.negative_evidence import FIRST_RATE, LAST_RATE, NegativeEvidence, negative_evidence
from edgewise.datasets.planted_data import Trained
from edgewise.results.entries import Entries, Part
from edgewise_paper.context import Context
from edgewise_paper.similarity import Average, cosines
from edgewise_paper.task import PaperOptions, Row, Task, TaskOutcome

NAME, MULTICLASS = "negative-evidence", "negative-evidence-multiclass"
SEEDS = 10
QUICK_EVERY = 4
"""A quick run explains each n-th test node."""
EXPLAINER = {"epochs": 100, "lr": 0.5, "edge_size": 0.001, "edge_ent": 0.0}
EPSILON = 0.001
"""Positive Gradients count an edge as positive if its gradient is above this, as in the paper."""
FALLING = "falling rate"
"""Variant: Adam's rate falls. At 0.01 to the end it steps around zero, and the weight that it leaves on gray may exceed ε."""
PICTURE = "negative evidence"


def tasks(options: PaperOptions) -> list[Task]:
    """Two colours: one task for each seed."""
    return _colour_tasks(NAME, "Negative Evidence", 2, options)


def multiclass_tasks(options: PaperOptions) -> list[Task]:
    """Three colours: one task for each seed."""
    return _colour_tasks(MULTICLASS, "Negative Evidence (three colours)", 3, options)


def _colour_tasks(experiment: str, dataset: str, colours: int, options: PaperOptions) -> list[Task]:
    """The tasks of one experiment; the data set has so many colours besides gray."""
    seeds = options.seeds_of(at_least=SEEDS)
    settings: dict[str, Any] = {
        "dataset": dataset,
        "colours": colours,
        "explainer": EXPLAINER,
        "epsilon": EPSILON,
        "last_rate": LAST_RATE,
    }
    if options.quick:
        settings["every"] = QUICK_EVERY
    return [Task(experiment, "similarity", settings | {"seed": seed, "layers": 1}, 5.0) for seed in seeds]


def run(task: Task, context: Context) -> TaskOutcome:
    """Train on the colours of the task and explain its test nodes; the first seed also gives the picture."""
    start = time.perf_counter()
    found = negative_evidence(task.settings["seed"], task.settings["colours"])
    trained = found.train_with(found.seed, FIRST_RATE)
    seconds = time.perf_counter() - start
    falling = found.train_with(found.seed, task.settings["last_rate"])
    targets = found.targets[:: task.settings.get("every", 1)]

    def explain(model: nn.Module = trained.model, **settings: Any) -> ew.ExplanationSet:
        """Explanations of the test nodes."""
        return context.explain(model, found.data, targets, **settings)

    gradient = explain(method="gradient")
    masks = explain(method="gnn_explainer", **task.settings["explainer"])
    rows = [
        task.row("accuracy", trained.test_accuracy, count=len(found.targets), seconds=seconds),
        task.row("accuracy", falling.test_accuracy, count=len(found.targets), variant=FALLING),
        _gray(task, found, trained, ""),
        _gray(task, found, falling, FALLING),
    ]
    for epsilon, variant in ((EPSILON, ""), (0.0, "ε = 0")):
        positive = explain(method="positive_gradient", epsilon=epsilon)
        rows.append(_row(task, cosines(masks, positive), "gnn_explainer", "positive_gradient", variant))
    positive = explain(falling.model, method="positive_gradient", epsilon=EPSILON)
    other = explain(falling.model, method="gnn_explainer", **task.settings["explainer"])
    rows.append(_row(task, cosines(other, positive), "gnn_explainer", "positive_gradient", FALLING))
    shown = {"edge gradients": gradient, "GNNExplainer": masks}
    if found.num_colours == 2:
        backwards = explain(method="gnn_explainer", target=1 - gradient.target, **task.settings["explainer"])
        signed = difference(masks, backwards)
        rows.append(_row(task, cosines(signed, gradient), "gnn_explainer − reversed", "gradient", ""))
        shown["GNNExplainer, class reversed"] = backwards
    pictures = {PICTURE: _picture(found, targets, shown)} if task.settings["seed"] == 0 else {}
    return TaskOutcome(rows, pictures)


def _row(task: Task, cosine: torch.Tensor, method: str, reference: str, variant: str) -> Row:
    """The row of a mean cosine; `cosine` is `[targets]`."""
    average = Average.of(cosine)
    return task.row(
        "cosine", average.mean, deviation=average.deviation, count=average.count, level="input", method=method,
        reference=reference, variant=variant,
    )  # fmt: skip


def _gray(task: Task, found: NegativeEvidence, trained: Trained, variant: str) -> Row:
    """The model's largest weight of gray, a colour that means nothing: above ε gray edges count as positive evidence."""
    weight = trained.model.get_parameter("lin_l.weight").detach()[:, found.num_colours]
    return task.row("weight of gray", float(weight.abs().max()), method="model", variant=variant)


def _picture(found: NegativeEvidence, targets: Tensor, shown: dict[str, ew.ExplanationSet]) -> dict[str, Any]:
    """For the figure: the test node with the fewest neighbours, their colours, and the scores of each explanation."""
    source, receiver = found.data.edge_index
    degree = torch.bincount(receiver, minlength=found.data.num_nodes)
    node = int(targets[degree[targets].argmin()])
    columns = (receiver == node).nonzero().view(-1)
    colour = found.data.x[source[columns]].argmax(dim=1)
    order = colour.argsort(stable=True)
    return {
        "node": node,
        "neighbours": source[columns][order].tolist(),
        "colours": [("blue", "red", "green")[c] if c < found.num_colours else "gray" for c in colour[order].tolist()],
        "scores": {name: explained.of(node).scores[columns][order].tolist() for name, explained in shown.items()},
    }


def difference(one: ew.ExplanationSet, other: ew.ExplanationSet) -> ew.ExplanationSet:
    """Scores of the one minus scores of the other, edge by edge, for the same targets in the same order.

    An entry is a (target, place) pair with its score; a pair that only one of the two has counts as 0 in the other.
    """
    first, second = one.edges, other.edges
    assert first is not None
    assert second is not None
    row, place = (torch.cat(parts) for parts in ((first.rows(), second.rows()), (first.place, second.place)))
    stride = int(place.max()) + 1 if len(place) else 1
    key, where = (row * stride + place).unique(return_inverse=True)  # one key for each (target, place)
    score = first.score.new_zeros(len(key)).index_add_(0, where, torch.cat([first.score, -second.score]))
    part = Part(key.div(stride, rounding_mode="floor"), key % stride, score)
    return replace(one, method=f"{one.method} − reversed", edges=Entries([part], len(one)), own=None)
