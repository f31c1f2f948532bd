"""The linear network on Cora, where the theory is exact: the authors' extra, not in the paper."""

from edgewise.experiments import node_classification
from edgewise.experiments.architectures import LINEAR
from edgewise.experiments.desk import Desk
from edgewise.experiments.node_classification import depths_and_epochs, tasks_on_nodes
from edgewise.experiments.options import Options
from edgewise.experiments.tasks import Outcome, Task
from edgewise.experiments.training.recipe import Recipe

NAME = "sgc"


def tasks(options: Options) -> list[Task]:
    """Those of a network of the node experiment, for one to five steps."""
    depths, epochs = depths_and_epochs(options)
    recipes = [Recipe("Cora", LINEAR, layers, seed, epochs) for seed in options.seeds_of() for layers in depths]
    return [task for recipe in recipes for task in tasks_on_nodes(NAME, recipe, options)]


def run(task: Task, desk: Desk) -> Outcome:
    """As for any network on nodes."""
    return node_classification.run(task, desk)
