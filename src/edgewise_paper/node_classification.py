"""Node classification on real graphs: accuracy, similarities and sign flips of GCN, GAT and GIN with one to five layers."""

from itertools import product
from typing import Any

import torch

import edgewise as ew
from edgewise_paper.architectures import ARCHITECTURES
from edgewise_paper.context import Context
from edgewise_paper.data import NODE_SETS, NodeSet
from edgewise_paper.sign_flips import flip_rows
from edgewise_paper.similarity import EXPLAINER, SPREAD, TrainedModel, coded_rows, input_rows, layer_rows
from edgewise_paper.task import PaperOptions, Task, TaskOutcome
from edgewise_paper.training.recipe import (
    ACCURACY,
    CODED,
    FLIPS,
    INPUT,
    LAYERWISE,
    NODE_EPOCHS,
    Recipe,
    network_tasks,
    node_cost,
)
from edgewise_paper.training.train import accuracy

NAME = "node-classification"
DEPTHS = range(1, 6)
SHOWN, PICTURE = ("Cora", "GCN", 2, 0), "cora node"
PUBLISHED_EXAMPLE = 0.9570
QUICK_SETS, QUICK_DEPTHS, QUICK_EPOCHS = ("Cora", "Cornell"), range(1, 3), 100


def tasks(options: PaperOptions) -> list[Task]:
    """Five for each network, the first of which trains it."""
    return [task for recipe in _recipes(options) for task in tasks_on_nodes(NAME, recipe, options)]


def tasks_on_nodes(experiment: str, recipe: Recipe, options: PaperOptions) -> list[Task]:
    """For any network on a graph."""
    return network_tasks(experiment, recipe, node_cost, parts_on_nodes(options.varied_edges))


def parts_on_nodes(flip_edges: int) -> dict[str, dict[str, Any]]:
    """What is asked of a network on a graph, with the settings of each."""
    return {
        INPUT: {"explainer": EXPLAINER},
        LAYERWISE: {"explainer": EXPLAINER, "longer": False},
        CODED: {"explainer": EXPLAINER, "spread": SPREAD},
        FLIPS: {"flip_edges": flip_edges},
    }


def depths_and_epochs(options: PaperOptions) -> tuple[range, int]:
    """Of the paper, or of a quick look."""
    return (QUICK_DEPTHS, QUICK_EPOCHS) if options.quick else (DEPTHS, NODE_EPOCHS)


def _recipes(options: PaperOptions) -> list[Recipe]:
    depths, epochs = depths_and_epochs(options)
    grid = product(options.seeds_of(), QUICK_SETS if options.quick else NODE_SETS, ARCHITECTURES, depths)
    return [Recipe(name, architecture, layers, seed, epochs) for seed, name, architecture, layers in grid]


def run(task: Task, context: Context) -> TaskOutcome:
    """One of the five."""
    recipe = Recipe.read(task.settings)
    found = context.node_set(recipe.dataset)
    model, seconds = context.trained(recipe)
    if task.part == ACCURACY:
        return TaskOutcome([task.row("accuracy", accuracy(model, found), count=len(found.test), seconds=seconds)])
    subject = TrainedModel(model, found.data, {"training": recipe.plain}, found.test)
    if task.part == FLIPS:
        columns = _edges_near(found, task.settings["flip_edges"], recipe.seed)
        return TaskOutcome(list(flip_rows(task, context, subject, columns)))
    if task.part == INPUT:
        shown = (recipe.dataset, recipe.architecture, recipe.layers, recipe.seed) == SHOWN
        return TaskOutcome(list(input_rows(task, context, subject)), {PICTURE: _one_node(context, subject)} if shown else {})
    rows = coded_rows if task.part == CODED else layer_rows
    return TaskOutcome(list(rows(task, context, subject)))


def _one_node(context: Context, subject: TrainedModel) -> dict[str, Any]:
    """A node of moderate size whose two explanations agree as much as those of the paper's example."""
    masks, positive = (subject.explain(context, method, "input") for method in ("gnn_explainer", "positive_gradient"))
    cosine = ew.similarity(masks, positive)
    assert masks.edges is not None
    size = masks.edges.start.diff()
    fits = ((size >= 10) & (size <= 40)).nonzero().view(-1)
    place = int(fits[(cosine[fits] - PUBLISHED_EXAMPLE).abs().nan_to_num(1.0).argmin()])
    one, other = masks[place], positive[place]
    columns = (one.scores != 0).nonzero().view(-1)
    return {
        "node": one.index,
        "cosine": float(cosine[place]),
        "edges": one.edge_index[:, columns].t().tolist(),
        "scores": {"Positive Gradients": other.scores[columns].tolist(), "GNNExplainer": one.scores[columns].tolist()},
    }


def _edges_near(found: NodeSet, at_most: int, seed: int) -> torch.Tensor:
    """Random edges among those next to a test node, as the authors choose them; on small graphs every edge."""
    columns = torch.arange(found.data.num_edges)
    if len(columns) > at_most:
        near = torch.isin(found.data.edge_index, found.test).any(dim=0).nonzero().view(-1)
        columns = near[torch.randperm(len(near), generator=torch.Generator().manual_seed(seed))[:at_most]]
    return columns
