"""The tasks of a trained network: train it, then explain it at both levels and count sign flips."""

from collections.abc import Callable, Mapping
from typing import Any

from edgewise.experiments.tasks import Task
from edgewise.experiments.training.recipe import Recipe

ACCURACY, INPUT, LAYERWISE, FLIPS = "accuracy", "input similarity", "layerwise similarity", "sign flips"
CODED = "layerwise explainer as coded"


def about(recipe: Recipe) -> dict[str, Any]:
    """What every task of a network says about it."""
    named = {name: getattr(recipe, name) for name in ("dataset", "architecture", "layers", "seed")}
    return named | {"training": recipe.plain}


def network_tasks(
    experiment: str,
    recipe: Recipe,
    cost: Callable[[str, Recipe], float],
    parts: Mapping[str, Mapping[str, Any]],
    **named: str,
) -> list[Task]:
    """The first trains; the others, `parts` with their own settings, wait for it. `named` overrides columns of the rows."""
    settings = about(recipe) | named
    first = Task(experiment, ACCURACY, settings, cost(ACCURACY, recipe))
    own = [Task(experiment, part, settings | dict(more), cost(part, recipe), first) for part, more in parts.items()]
    return [first, *own]
