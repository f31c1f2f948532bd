"""Two experiments on the nodes of real graphs: GCN, GAT and GIN with one to five layers, and a linear network on Cora.

The linear network (`sgc`), where the theory is exact, is an extra of the authors' code; its tasks are the same. All test
nodes are explained.

| part of a task | its rows |
|---|---|
| `accuracy` | accuracy on the test nodes; this task trains the network |
| `input similarity` | cosines to Positive Gradients; a picture of one node of Cora |
| `layerwise similarity` | cosines to layerwise occlusion |
| `sign flips` | shares of gradients that change their sign |
"""

from itertools import product
from typing import Any

import torch

import edgewise as ew
from edgewise_paper.context import Context
from edgewise_paper.data import NODE_SETS, NodeSet
from edgewise_paper.sign_flips import flip_rows
from edgewise_paper.similarity import EXPLAINER, TrainedModel, input_rows, layer_rows
from edgewise_paper.task import PaperOptions, Task, TaskOutcome
from edgewise_paper.training.networks import (
    ACCURACY,
    ARCHITECTURES,
    FLIPS,
    INPUT,
    LAYERWISE,
    LINEAR,
    NODE_EPOCHS,
    Recipe,
    network_tasks,
    node_cost,
)
from edgewise_paper.training.train import accuracy

NAME, LINEAR_NAME = "node-classification", "sgc"
DEPTHS = range(1, 6)
SHOWN, PICTURE = ("Cora", "GCN", 2, 0), "cora node"
QUICK_SETS, QUICK_DEPTHS, QUICK_EPOCHS = ("Cornell",), range(1, 3), 100


def tasks(options: PaperOptions) -> list[Task]:
    """Four tasks for each network, the first of which trains it."""
    datasets = QUICK_SETS if options.quick else NODE_SETS
    depths, epochs = _depths_and_epochs(options)
    grid = product(options.seeds_of(), datasets, ARCHITECTURES, depths)
    recipes = [Recipe(name, architecture, layers, seed, epochs) for seed, name, architecture, layers in grid]
    return _tasks_of(NAME, recipes, options)


def linear_tasks(options: PaperOptions) -> list[Task]:
    """The same four for the linear network on Cora."""
    depths, epochs = _depths_and_epochs(options)
    recipes = [Recipe("Cora", LINEAR, layers, seed, epochs) for seed in options.seeds_of() for layers in depths]
    return _tasks_of(LINEAR_NAME, recipes, options)


def _depths_and_epochs(options: PaperOptions) -> tuple[range, int]:
    """Numbers of layers, and epochs of training: the paper's, or those of a quick run."""
    return (QUICK_DEPTHS, QUICK_EPOCHS) if options.quick else (DEPTHS, NODE_EPOCHS)


def _tasks_of(experiment: str, recipes: list[Recipe], options: PaperOptions) -> list[Task]:
    """The tasks of several networks."""
    parts = parts_on_nodes(options.varied_edges)
    return [task for recipe in recipes for task in network_tasks(experiment, recipe, node_cost, parts)]


def parts_on_nodes(flip_edges: int) -> dict[str, dict[str, Any]]:
    """The tasks of a network besides its training, with the settings of each."""
    return {
        INPUT: {"explainer": EXPLAINER},
        LAYERWISE: {"explainer": EXPLAINER},
        FLIPS: {"flip_edges": flip_edges},
    }


def run(task: Task, context: Context) -> TaskOutcome:
    """One of the four tasks of a network, of either experiment."""
    recipe = Recipe.read(task.settings)
    found = context.node_set(recipe.dataset)
    model, seconds = context.trained(recipe)
    if task.part == ACCURACY:
        return TaskOutcome([task.row("accuracy", accuracy(model, found), count=len(found.test), seconds=seconds)])
    network = TrainedModel(model, found.data, {"training": recipe.plain}, found.test)
    if task.part == FLIPS:
        columns = _edges_near(found, task.settings["flip_edges"], recipe.seed)
        return TaskOutcome(list(flip_rows(task, context, network, columns)))
    if task.part == INPUT:
        shown = (recipe.dataset, recipe.architecture, recipe.layers, recipe.seed) == SHOWN
        return TaskOutcome(
            list(input_rows(task, context, network)), {PICTURE: _one_node(context, network)} if shown else {}
        )
    return TaskOutcome(list(layer_rows(task, context, network)))


def _one_node(context: Context, network: TrainedModel) -> dict[str, Any]:
    """For the figure: the first test node, which is the paper's example (nbks/real_data_plots.ipynb, cell 5)."""
    masks, positive = (network.explain(context, method, "input") for method in ("gnn_explainer", "positive_gradient"))
    cosine = ew.similarity(masks, positive)
    one, other = masks[0], positive[0]
    columns = (one.scores != 0).nonzero().view(-1)
    return {
        "node": one.index,
        "cosine": float(cosine[0]),
        "edges": one.edge_index[:, columns].t().tolist(),
        "scores": {"Positive Gradients": other.scores[columns].tolist(), "GNNExplainer": one.scores[columns].tolist()},
    }


def _edges_near(found: NodeSet, at_most: int, seed: int) -> torch.Tensor:
    """Columns of edges to vary: random ones among those next to a test node, as the authors choose; on small graphs all."""
    columns = torch.arange(found.data.num_edges)
    if len(columns) > at_most:
        near = torch.isin(found.data.edge_index, found.test).any(dim=0).nonzero().view(-1)
        columns = near[torch.randperm(len(near), generator=torch.Generator().manual_seed(seed))[:at_most]]
    return columns
