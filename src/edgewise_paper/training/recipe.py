"""What decides how a network comes out of training."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from edgewise_paper.architectures import LINEAR
from edgewise_paper.task import Task, fingerprint

NODE_EPOCHS, GRAPH_EPOCHS, SENTENCE_EPOCHS = 1000, 2000, 100


@dataclass(frozen=True)
class Recipe:
    """The paper's settings are the defaults for nodes; `for_graphs` has those for graphs."""

    dataset: str
    architecture: str
    layers: int
    seed: int
    epochs: int = NODE_EPOCHS
    lr: float = 0.003
    weight_decay: float = 1e-5
    batch_size: int = 0
    """0: the whole graph at once."""

    @staticmethod
    def for_graphs(dataset: str, architecture: str, layers: int, seed: int, epochs: int | None = None) -> "Recipe":
        """Batches of 32 for 2000 epochs; the large Graph-SST2 in batches of 128 for 100."""
        large = dataset == "Graph-SST2"
        usual, decay, size = (SENTENCE_EPOCHS, 1e-6, 128) if large else (GRAPH_EPOCHS, 1e-4, 32)
        return Recipe(dataset, architecture, layers, seed, epochs or usual, weight_decay=decay, batch_size=size)

    @staticmethod
    def read(settings: Mapping[str, Any]) -> "Recipe":
        """From the settings of a task."""
        return Recipe(**settings["training"])

    @property
    def plain(self) -> dict[str, Any]:
        """As a dict that JSON can write."""
        return asdict(self)

    @property
    def key(self) -> str:
        """The name of the trained network."""
        return fingerprint("model", self.plain)


# --- The tasks of a trained network: train it, then explain it at both levels and count sign flips ---------------------


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
