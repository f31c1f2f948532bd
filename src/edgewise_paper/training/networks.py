"""The paper's networks (GCN, GAT and GIN of PyG), the recipes by which they are trained, and the tasks of a trained one.

All have ReLU and width 32; GAT is version 2 with four heads. `node_network` gives one logit a class for each node,
`graph_network` one logit a graph, after mean pooling. A `Recipe` decides how a network comes out of training; `network_tasks`
lists what is then done with it, `node_cost` and `graph_cost` what that takes.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn import GAT, GCN, GIN, MLP, GINEConv, GraphSAGE, global_mean_pool

from edgewise.arguments import one_of
from edgewise_paper.task import Task, fingerprint

ARCHITECTURES = ("GCN", "GAT", "GIN")
LINEAR = "linear GCN"
"""A GCN without activations, published as SGC: one matrix a layer (util/models.py of the authors, lines 26 to 34)."""
SAGE = "SAGE"
"""Means of neighbours and a root weight; not in the paper, but in the study of smallest flips."""
HIDDEN, DROPOUT, HEADS = 32, 0.5, 4
NODE_EPOCHS, GRAPH_EPOCHS, SENTENCE_EPOCHS = 1000, 2000, 100


class GINE(GIN):
    """GIN whose messages include the edge features (Hu et al., ICLR 2020), for the bonds of MUTAG."""

    supports_edge_weight, supports_edge_attr = False, True

    def init_conv(self, in_channels: int, out_channels: int, **settings: Any) -> GINEConv:
        """One layer: the MLP that PyG's GIN has, inside a GINE layer."""
        block = MLP(
            [in_channels, out_channels, out_channels],
            act=self.act,
            act_first=self.act_first,
            norm=self.norm,
            norm_kwargs=self.norm_kwargs,
        )
        return GINEConv(block, **settings)


class GraphClassifier(nn.Module):
    """One logit a graph: the mean over the nodes of a network with one output a node.

    Args:
        gnn: A model of `torch_geometric.nn` with one output channel.
    """

    def __init__(self, gnn: nn.Module) -> None:
        super().__init__()
        self.gnn = gnn

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        """Logits, `[graphs, 1]`; `batch` is the graph of each node, None for a single graph."""
        extras = {"edge_attr": edge_attr} if self.gnn.supports_edge_attr else {}
        return global_mean_pool(self.gnn(x, edge_index, batch=batch, **extras), batch)


def node_network(architecture: str, num_features: int, layers: int, num_classes: int) -> nn.Module:
    """A network for nodes, `[N, num_features]` to `[N, num_classes]`.

    >>> node_network("GCN", num_features=5, layers=2, num_classes=3)
    GCN(5, 3, num_layers=2)
    """
    if architecture == SAGE:
        return GraphSAGE(num_features, HIDDEN, layers, num_classes, DROPOUT)
    if architecture == LINEAR:
        return _network("GCN", num_features, layers, num_classes, {"act": nn.Identity()})
    return _network(architecture, num_features, layers, num_classes, {})


def graph_network(architecture: str, num_features: int, layers: int, edge_dim: int | None) -> nn.Module:
    """A network for graphs, with PyG's LayerNorm (over the whole graph) between the layers.

    Edge features of width `edge_dim` are used by GAT and GIN; None: the data set has none.
    """
    settings: dict[str, Any] = {"norm": "LayerNorm"}
    if edge_dim is not None and architecture != "GCN":  # GCN has no use for edge features
        settings["edge_dim"] = edge_dim
    return GraphClassifier(_network(architecture, num_features, layers, 1, settings))


def _network(architecture: str, num_features: int, layers: int, outputs: int, settings: dict[str, Any]) -> nn.Module:
    """PyG's model of an architecture, with the paper's width, dropout and heads; `settings` are further arguments of it."""
    one_of("architecture", architecture, ARCHITECTURES, also=f"or {LINEAR} for nodes")
    shape = (num_features, HIDDEN, layers, outputs, DROPOUT)
    if architecture == "GCN":
        return GCN(*shape, **settings)
    if architecture == "GAT":
        return GAT(*shape, v2=True, heads=HEADS, **settings)
    return (GINE if "edge_dim" in settings else GIN)(*shape, **settings)


# --- Recipes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """The settings of one training. The paper's settings for nodes are the defaults; `for_graphs` has those for graphs.

    >>> Recipe("Cora", "GCN", layers=2, seed=0).epochs
    1000
    >>> Recipe.for_graphs("MUTAG", "GIN", layers=3, seed=0).batch_size
    32
    """

    dataset: str
    architecture: str
    """One of `ARCHITECTURES`, `LINEAR` or `SAGE`."""
    layers: int
    seed: int
    epochs: int = NODE_EPOCHS
    lr: float = 0.003
    weight_decay: float = 1e-5
    batch_size: int = 0
    """Graphs in a batch; 0: the whole graph at once."""

    @staticmethod
    def for_graphs(dataset: str, architecture: str, layers: int, seed: int, epochs: int | None = None) -> "Recipe":
        """Batches of 32 for 2000 epochs; the large Graph-SST2 in batches of 128 for 100."""
        large = dataset == "Graph-SST2"
        usual, decay, size = (SENTENCE_EPOCHS, 1e-6, 128) if large else (GRAPH_EPOCHS, 1e-4, 32)
        return Recipe(dataset, architecture, layers, seed, epochs or usual, weight_decay=decay, batch_size=size)

    @staticmethod
    def read(settings: Mapping[str, Any]) -> "Recipe":
        """The recipe in the settings of a task."""
        return Recipe(**settings["training"])

    @property
    def plain(self) -> dict[str, Any]:
        """As a dict that JSON can write."""
        return asdict(self)

    @property
    def key(self) -> str:
        """The name under which the trained network is kept."""
        return fingerprint("model", self.plain)


# --- The tasks of a trained network: train it, then explain it at both levels and count sign flips ---------------------

ACCURACY, INPUT, LAYERWISE, FLIPS = "accuracy", "input similarity", "layerwise similarity", "sign flips"


def network_tasks(
    experiment: str,
    recipe: Recipe,
    cost: Callable[[str, Recipe], float],
    parts: Mapping[str, Mapping[str, Any]],
    **named: str,
) -> list[Task]:
    """The tasks of one network: the first trains it, the others wait for that.

    Args:
        experiment: The experiment's name in the registry.
        recipe: The network.
        cost: Expected seconds of a part (`node_cost` or `graph_cost`).
        parts: The other tasks, by name, with settings of their own.
        named: Columns of the rows that are not to be read off the recipe.
    """
    about = {name: getattr(recipe, name) for name in ("dataset", "architecture", "layers", "seed")}
    settings = about | {"training": recipe.plain} | named
    first = Task(experiment, ACCURACY, settings, cost(ACCURACY, recipe))
    own = [Task(experiment, part, settings | dict(more), cost(part, recipe), first) for part, more in parts.items()]
    return [first, *own]


# --- Expected seconds on one core: only the order of the work and the time left depend on them -------------------------

_NODE_EPOCH = {"GCN": 2.5, "GAT": 12.0, "GIN": 3.0, LINEAR: 2.5}  # milliseconds a layer, on Cora
_SIZE = {"Cora": 1.0, "CiteSeer": 1.0, "Cornell": 0.15, "Texas": 0.15, "Wisconsin": 0.2}
_GRAPH_STEP = {"GCN": 2.0, "GAT": 4.5, "GIN": 2.5}  # milliseconds a layer
_STEPS = {"MUTAG": 4, "PROTEINS": 21, "Graph-SST2": 330}
_SLOW = {"GCN": 1.0, "GAT": 7.0, "GIN": 1.0, LINEAR: 1.0}
_NODE_PARTS = {INPUT: 18.0, LAYERWISE: 80.0, FLIPS: 60.0}  # five layers of GCN on Cora
_GRAPH_PARTS = {INPUT: 1.0, LAYERWISE: 6.0, FLIPS: 12.0}
_SPREAD = {"Cora": 3.6, "CiteSeer": 2.6}  # how much larger computation graphs become with a layer


def node_cost(part: str, recipe: Recipe) -> float:
    """Expected seconds of a part of an experiment on the nodes of a graph."""
    if part == ACCURACY:
        return _NODE_EPOCH[recipe.architecture] * recipe.layers * _SIZE[recipe.dataset] * recipe.epochs / 1000
    size = _SPREAD.get(recipe.dataset, 1.3) ** (recipe.layers - 5) * (1.0 if recipe.dataset in _SPREAD else 0.02)
    return 0.5 + _NODE_PARTS[part] * _SLOW[recipe.architecture] * size


def graph_cost(part: str, recipe: Recipe) -> float:
    """Expected seconds of a part of an experiment on many graphs."""
    steps = _STEPS[recipe.dataset]
    if part == ACCURACY:
        return _GRAPH_STEP[recipe.architecture] * recipe.layers * steps * recipe.epochs / 1000
    return 0.5 + _GRAPH_PARTS[part] * steps / 4 * recipe.layers / 3
