"""Infection: how many steps away is the nearest infected node? A task whose right explanation is known.

Each graph has 1000 nodes, 50 of them infected. The class of a node is its distance to the nearest infected node: 0 for
the infected themselves, 5 for everything farther than four steps. Settings as in He, Rafiey, Mishne and Wang, KDD 2025;
the task is from Baldassarre and Azizpour, 2019. `clear_nodes` and `is_true_path`, at the end, make it a test of walk
searches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.datasets import InfectionDataset
from torch_geometric.datasets.graph_generator import ERGraph
from torch_geometric.nn import GraphSAGE

from edgewise.contract import checked
from edgewise.datasets.planted_data import PlantedData, Trained
from edgewise.errors import InputError
from edgewise.graph.inputs import read_graph
from edgewise.random_numbers import one_thread, seeded

NUM_NODES, EDGE_PROBABILITY = 1000, 0.004
NUM_INFECTED, MAX_PATH_LENGTH = 50, 4
NUM_FEATURES, NUM_CLASSES = 2, MAX_PATH_LENGTH + 2


@dataclass(frozen=True)
class InfectionGraphs:
    """Graphs with features `[healthy, infected]` and classes `y`.

    PyG's `edge_mask` is kept: 1 for edges on which an infection can spread within four steps.
    """

    training: tuple[Data, ...]
    test: Data


@dataclass(frozen=True)
class TrainedInfection:
    """A trained model in eval mode, the graphs it was made with, and the share of nodes that it gets right."""

    model: GraphSAGE
    graphs: InfectionGraphs
    training_accuracy: float
    test_accuracy: float


@checked
def infection(seed: int = 0, num_graphs: int = 5) -> InfectionGraphs:
    """Generate Infection graphs; the last one is for testing. Global random state is left as it was.

    >>> graphs = infection(seed=0, num_graphs=2)
    >>> len(graphs.training), graphs.test.num_nodes, int(graphs.test.x[:, 1].sum())
    (1, 1000, 50)
    """
    if num_graphs < 1:
        raise InputError(
            f"`num_graphs` must be an integer ≥ 1, and ≥ 2 to train on, got {num_graphs}. Use num_graphs=5."
        )
    with seeded(seed):
        return draw_graphs(num_graphs)


def draw_graphs(num_graphs: int) -> InfectionGraphs:
    """PyG's generator, from the current state of the global random numbers: `infection` seeds it."""
    graphs = InfectionDataset(
        ERGraph(NUM_NODES, EDGE_PROBABILITY),
        num_infected_nodes=NUM_INFECTED,
        max_path_length=MAX_PATH_LENGTH,
        num_graphs=num_graphs,
    )
    *training, test = [Data(x=g.x, edge_index=g.edge_index, y=g.y, edge_mask=g.edge_mask) for g in graphs]
    return InfectionGraphs(tuple(training), test)


@checked
def infection_model(
    seed: int = 0, *, graphs: InfectionGraphs | None = None, epochs: int = 100, hidden: int = 20, num_layers: int = 4
) -> TrainedInfection:
    """Train the GraphSAGE (sum) of the paper: two seconds on one thread.

    Args:
        seed: Random seed of the training, and of the graphs if they are not given.
        graphs: The graphs to train and test on. Without them, graphs and model are drawn from one stream of random numbers,
            as in the authors' code.
        epochs: Passes over the training graphs.
        hidden: Width of the hidden layers.
        num_layers: Number of layers; a node sees infections at most so many steps away.

    >>> trained = infection_model(epochs=1)             # one pass shows the form; a hundred learn the task
    >>> trained.model.num_layers, trained.graphs.test.num_nodes, len(trained.graphs.training)
    (4, 1000, 4)
    """
    if graphs is not None and not graphs.training:
        raise InputError("There is no graph to train on. Use graphs=infection(num_graphs=5).")
    with seeded(seed), one_thread():
        graphs = graphs or draw_graphs(num_graphs=5)
        model = GraphSAGE(NUM_FEATURES, hidden, num_layers, NUM_CLASSES, aggr="sum")
        _train(model, graphs.training, epochs)
        return TrainedInfection(model, graphs, _accuracy(model, *graphs.training), _accuracy(model, graphs.test))


@checked
def infection_paths(graph: Data, index: int) -> list[tuple[int, ...]]:
    """Every shortest path from an infected node to node `index`, infected node first; none if it is too far away.

    >>> from torch_geometric.data import Data
    >>> line = Data(x=torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]), edge_index=torch.tensor([[0, 1], [1, 2]]))
    >>> infection_paths(line, 2)
    [(0, 1, 2)]
    """
    graph = read_graph(graph, "graph")
    if graph.x.dim() != 2 or graph.x.size(1) < NUM_FEATURES:
        raise InputError(
            f"`graph.x` must have {NUM_FEATURES} columns, healthy and infected, got shape {list(graph.x.shape)}. Use "
            f"infection().test, for example."
        )
    if not 0 <= index < graph.x.size(0):
        raise InputError(f"`index` must be a node from 0 to {graph.x.size(0) - 1}, got {index}.")
    senders: dict[int, list[int]] = {}
    for sender, receiver in graph.edge_index.t().tolist():
        senders.setdefault(receiver, []).append(sender)
    infected = graph.x[:, 1] == 1
    paths: list[tuple[int, ...]] = [(index,)]
    for _ in range(MAX_PATH_LENGTH + 1):
        found = [path for path in paths if infected[path[0]]]
        if found:
            return found
        paths = [(sender, *path) for path in paths for sender in senders.get(path[0], []) if sender not in path]
    return []


def _train(model: GraphSAGE, graphs: tuple[Data, ...], epochs: int) -> None:
    """Adam, one step for each graph, in a random order in every epoch."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=3e-4)
    model.train()
    for _ in range(epochs):
        for position in torch.randperm(len(graphs)).tolist():  # a batch is one graph
            graph = graphs[position]
            optimizer.zero_grad()
            F.cross_entropy(model(graph.x, graph.edge_index), graph.y).backward()
            optimizer.step()
    model.zero_grad()
    model.eval()


@torch.no_grad()
def _accuracy(model: GraphSAGE, *graphs: Data) -> float:
    """The share of nodes of all graphs that the model gets right."""
    correct = [model(graph.x, graph.edge_index).argmax(dim=1) == graph.y for graph in graphs]
    return float(torch.cat(correct).double().mean())


# --- A test of walk searches: on which nodes the true path is clear, and whether a walk is that path -------------------


def clear_nodes(graph: Data) -> Tensor:
    """Nodes whose distance is known (class 0 to 4) and that have a single infected node within it (the paper's choice).

    >>> line = Data(
    ...     x=torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]), edge_index=torch.tensor([[0, 1], [1, 2]]),
    ...     y=torch.tensor([0, 1, 2]),
    ... )
    >>> clear_nodes(line)
    tensor([0, 1, 2])
    """
    sender, receiver = graph.edge_index
    size = graph.num_nodes
    # reached[v, i]: whether the i-th infected node is within `step` steps of v
    infected = (graph.x[:, 1] == 1).nonzero().view(-1)
    reached = torch.zeros(size, len(infected))
    reached[infected, torch.arange(len(infected))] = 1
    clear = torch.zeros(size, dtype=torch.bool)
    for step in range(MAX_PATH_LENGTH + 1):
        clear |= (graph.y == step) & (reached.sum(dim=1) == 1)
        reached = torch.maximum(
            reached, torch.zeros_like(reached).index_add_(0, receiver, reached[sender]).clamp(max=1)
        )
    return clear.nonzero().view(-1)


def is_true_path(graph: Data, index: int, nodes: Sequence[int]) -> bool:
    """Whether a walk starts at an infected node and visits one node for every step of the distance (it may wait)."""
    return bool(graph.x[nodes[0], 1] == 1) and len(set(nodes)) == int(graph.y[index]) + 1


# --- Infection as a data set with a planted truth ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class PlantedInfection(PlantedData):
    """The test graph of `infection`; the truth of a node is every edge on a shortest path from an infected node."""

    graphs: InfectionGraphs

    def paths(self, index: int) -> list[tuple[int, ...]]:
        """The shortest paths to a node, infected node first."""
        return infection_paths(self.data, index)

    def _truth(self, index: Tensor) -> Tensor:
        """`[T, E]`: edges on shortest paths, found by walking back from the targets, one step nearer to an infection a time.

        Path 0 → 1 → 2 with node 0 infected, so that `y` is (0, 1, 2): both edges lead one step farther (`closer`). From
        target 2 the first step takes the edge 1 → 2 and reaches node 1, the second takes 0 → 1.
        """
        source, receiver = self.data.edge_index
        closer = self.data.y[source] == self.data.y[receiver] - 1
        taken = torch.zeros(len(index), len(source), dtype=torch.bool)  # [T, E]
        on_path = torch.zeros(len(index), self.data.num_nodes, dtype=torch.bool)
        on_path[torch.arange(len(index)), index] = True
        for _ in range(MAX_PATH_LENGTH):
            taken |= on_path[:, receiver] & closer
            reached = taken.nonzero()
            on_path[reached[:, 0], source[reached[:, 1]]] = True
        return taken.to(torch.int8)

    def _train(self, seed: int) -> Trained:
        found = infection_model(seed, graphs=self.graphs)
        return Trained(found.model, found.training_accuracy, found.test_accuracy)


def planted_infection(seed: int) -> PlantedInfection:
    """Infection as a data set with a planted truth: that of nodes one to four steps away from an infected node."""
    graphs = infection(seed)
    away = ((graphs.test.y > 0) & (graphs.test.y <= MAX_PATH_LENGTH)).nonzero().view(-1)
    return PlantedInfection("infection", graphs.test, away, seed, graphs)
