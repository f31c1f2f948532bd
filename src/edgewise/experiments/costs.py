"""Seconds that tasks are expected to take on one core: only the order of the work and the time left depend on them."""

from edgewise.experiments.architectures import LINEAR
from edgewise.experiments.networks import ACCURACY, CODED, FLIPS, INPUT, LAYERWISE
from edgewise.experiments.training.recipe import Recipe

_NODE_EPOCH = {"GCN": 2.5, "GAT": 12.0, "GIN": 3.0, LINEAR: 2.5}  # milliseconds a layer, on Cora
_SIZE = {"Cora": 1.0, "CiteSeer": 1.0, "Cornell": 0.15, "Texas": 0.15, "Wisconsin": 0.2}
_GRAPH_STEP = {"GCN": 2.0, "GAT": 4.5, "GIN": 2.5}  # milliseconds a layer
_STEPS = {"MUTAG": 4, "PROTEINS": 21, "Graph-SST2": 330}
_SLOW = {"GCN": 1.0, "GAT": 7.0, "GIN": 1.0, LINEAR: 1.0}
_WHOLE = {INPUT: 18.0, LAYERWISE: 80.0, CODED: 40.0, FLIPS: 60.0}  # five layers of GCN on Cora
_SPREAD = {"Cora": 3.6, "CiteSeer": 2.6}  # how much larger computation graphs become with a layer


def node_cost(part: str, recipe: Recipe) -> float:
    """Of a part of an experiment on a graph."""
    if part == ACCURACY:
        return _NODE_EPOCH[recipe.architecture] * recipe.layers * _SIZE[recipe.dataset] * recipe.epochs / 1000
    size = _SPREAD.get(recipe.dataset, 1.3) ** (recipe.layers - 5) * (1.0 if recipe.dataset in _SPREAD else 0.02)
    whole = {
        "input similarity": 18.0,
        "layerwise similarity": 80.0,
        "layerwise explainer as coded": 40.0,
        "sign flips": 60.0,
    }[part]
    return 2.0 + whole * _SLOW[recipe.architecture] * size


def graph_cost(part: str, recipe: Recipe) -> float:
    """Of a part of an experiment on many graphs."""
    steps = _STEPS[recipe.dataset]
    if part == ACCURACY:
        return _GRAPH_STEP[recipe.architecture] * recipe.layers * steps * recipe.epochs / 1000
    whole = {INPUT: 1.0, LAYERWISE: 6.0, FLIPS: 12.0}[part]
    return 2.0 + whole * steps / 4 * recipe.layers / 3
