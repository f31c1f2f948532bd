"""The experiment on real graphs that are classified: accuracy, similarities and sign flips of MUTAG, PROTEINS, Graph-SST2.

The networks have one logit; all test graphs are explained. Graph-SST2 takes part if its raw files are there.

| part of a task | its rows |
|---|---|
| `accuracy` | AUROC and accuracy, graphs one by one and in batches |
| `input similarity` | cosines to Positive Gradients |
| `layerwise similarity` | cosines to layerwise occlusion, and to layerwise gradients |
| `sign flips` | shares of gradients that change their sign |
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor

from edgewise.metrics.formulas import auroc
from edgewise_paper.context import Context
from edgewise_paper.data import Source
from edgewise_paper.sign_flips import flip_rows
from edgewise_paper.similarity import CODE, EXPLAINER, TrainedModel, input_rows, layer_rows
from edgewise_paper.task import PaperOptions, Row, Task, TaskOutcome
from edgewise_paper.training.networks import (
    ACCURACY,
    ARCHITECTURES,
    FLIPS,
    INPUT,
    LAYERWISE,
    Recipe,
    graph_cost,
    network_tasks,
)
from edgewise_paper.training.train import logits

NAME = "graph-classification"
DEPTHS = {"MUTAG": (1, 2, 3, 4, 5), "PROTEINS": (1, 3, 5), "Graph-SST2": (1, 2, 3, 4, 5)}
QUICK_DEPTHS, QUICK_EPOCHS = (2,), 60
GRAPH_EDGES = 40
"""Most edges of a graph that are varied for sign flips: the work grows with the square of their number."""


def tasks(options: PaperOptions) -> list[Task]:
    """Four tasks for each network, the first of which trains it."""
    parts: dict[str, dict[str, Any]] = {
        INPUT: {"explainer": EXPLAINER, "unsigned": ["occlusion"]},
        LAYERWISE: {"explainer": EXPLAINER, "references": ["gradient"]},
    }
    flips = {FLIPS: {"flip_edges": min(options.varied_edges, GRAPH_EDGES)}}
    return [task for recipe in _recipes(options) for task in network_tasks(NAME, recipe, graph_cost, parts | flips)]


def _recipes(options: PaperOptions) -> Iterator[Recipe]:
    """The paper's networks: every data set, seed, architecture and depth of a run."""
    epochs = QUICK_EPOCHS if options.quick else None
    for name in _sets(options):
        depths = QUICK_DEPTHS if options.quick else (1, 2, 3, 4, 5) if options.full else DEPTHS[name]
        seeds = options.seeds_of(at_most=None if name == "MUTAG" else 1)
        for seed, architecture, layers in product(seeds, ARCHITECTURES, depths):
            yield Recipe.for_graphs(name, architecture, layers, seed, epochs)


def _sets(options: PaperOptions) -> list[str]:
    if options.quick:
        return ["MUTAG"]
    return ["MUTAG", "PROTEINS", *(["Graph-SST2"] if _has_sentences(options) else [])]


def _has_sentences(options: PaperOptions) -> bool:
    return not Source(options.data, options.out).missing("Graph-SST2")


def notes(options: PaperOptions) -> list[str]:
    """What these options leave out, and why."""
    found: list[str] = []
    if options.quick:
        return found
    if not _has_sentences(options):
        found.append(
            "Graph-SST2 is left out: its raw files are not in the data folder (70,042 sentence graphs with BERT features, from "
            "https://github.com/divelab/DIG; put them into DIR/Graph-SST2/raw/ and use --data DIR)."
        )
    if not options.full:
        found.append("PROTEINS is shown for 1, 3 and 5 layers and one seed; --full trains all depths and seeds.")
    return found


def run(task: Task, context: Context) -> TaskOutcome:
    """One of the four tasks of a network."""
    recipe = Recipe.read(task.settings)
    found = context.graph_set(recipe.dataset)
    model, seconds = context.trained(recipe)
    _, test = found.split(recipe.seed)
    graphs = [found.graphs[i] for i in test.tolist()]
    label = torch.cat([graph.y for graph in graphs])
    if task.part == ACCURACY:
        batched = logits(model, graphs, recipe.batch_size)
        return TaskOutcome(_accuracies(task, logits(model, graphs), batched, label, seconds))
    network = TrainedModel(model, graphs, {"training": recipe.plain}, task="graph", as_coded=label == 1)
    if task.part == FLIPS:
        columns = [
            _some_edges(graph.num_edges, task.settings["flip_edges"], recipe.seed + i) for i, graph in enumerate(graphs)
        ]
        return TaskOutcome(list(flip_rows(task, context, network, columns)))
    rows = input_rows if task.part == INPUT else layer_rows
    return TaskOutcome(list(rows(task, context, network)))


def _accuracies(task: Task, alone: Tensor, batched: Tensor, label: Tensor, seconds: float) -> list[Row]:
    """AUROC and accuracy of graphs one by one, as they are explained; and (variant `code`) as the authors' code has them.

    What the code calls AUROC is the mean of the two classes' accuracies, in batches. The norm inside a GIN block looks at
    all graphs of a batch, in training too, so a GIN gives other logits to a graph alone.

    Args:
        task: Makes the rows.
        alone: Logits of graphs one by one, `[graphs]`.
        batched: Logits in batches, `[graphs]`.
        label: 0 or 1, `[graphs]`.
        seconds: What the training took.
    """
    right = (batched > 0) == (label == 1)
    balanced = torch.stack([right[label == value].double().mean() for value in (0, 1)]).mean()
    about = {"count": len(label), "seconds": seconds}
    return [
        task.row("AUROC", float(auroc(alone, label == 1)), **about),
        task.row("AUROC", float(balanced), variant=CODE, **about),
        task.row("accuracy", float(((alone > 0) == (label == 1)).double().mean()), **about),
        task.row("accuracy", float(right.double().mean()), variant=CODE, **about),
    ]


def _some_edges(number: int, at_most: int, seed: int) -> Tensor:
    """Random columns of a graph with so many edges."""
    return torch.randperm(number, generator=torch.Generator().manual_seed(seed))[:at_most]
