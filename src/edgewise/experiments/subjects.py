"""What some experiments explain: the Infection network of a seed, or a trained network on a real graph."""

from typing import Any

from torch import Tensor, nn

from edgewise.datasets.infection import infection_model
from edgewise.experiments.desk import Desk
from edgewise.experiments.tasks import Task
from edgewise.experiments.training.recipe import Recipe


def subject_of(task: Task, desk: Desk) -> tuple[nn.Module, Any, Tensor]:
    """The model, the graph, and the nodes to explain: those with an edge (each, or every n-th), or the test nodes."""
    if task.settings["dataset"] == "Infection":
        trained = infection_model(task.settings["seed"])
        nodes = trained.graphs.test.edge_index.unique()
        return trained.model, trained.graphs.test, nodes[:: task.settings.get("every", 1)]
    recipe = Recipe.read(task.settings)
    found = desk.node_set(recipe.dataset)
    return desk.trained(recipe)[0], found.data, found.test
