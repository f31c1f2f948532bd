"""The four tasks of a trained network: train it, explain it at both levels, count sign flips."""

from collections.abc import Callable
from typing import Any

from edgewise.experiments.similarities import EXPLAINER
from edgewise.experiments.tasks import Task
from edgewise.experiments.training.recipe import Recipe

ACCURACY, INPUT, LAYERWISE, FLIPS = "accuracy", "input similarity", "layerwise similarity", "sign flips"


def about(recipe: Recipe) -> dict[str, Any]:
    """What every task of a network says about it."""
    named = {name: getattr(recipe, name) for name in ("dataset", "architecture", "layers", "seed")}
    return named | {"training": recipe.plain}


def network_tasks(
    experiment: str,
    recipe: Recipe,
    cost: Callable[[str, Recipe], float],
    *,
    flip_edges: int,
    references: tuple[str, ...] = (),
) -> list[Task]:
    """The first trains; the others wait for it. `references`: what layerwise masks are compared with besides occlusion."""
    settings = about(recipe)
    own: dict[str, dict[str, Any]] = {
        INPUT: {"explainer": EXPLAINER},
        LAYERWISE: {"explainer": EXPLAINER} | ({"references": list(references)} if references else {}),
        FLIPS: {"flip_edges": flip_edges},
    }
    first = Task(experiment, ACCURACY, settings, cost(ACCURACY, recipe))
    return [first, *(Task(experiment, part, settings | more, cost(part, recipe), first) for part, more in own.items())]
