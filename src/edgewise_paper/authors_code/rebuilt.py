"""Published networks that can be rebuilt from their seed: Infection and Negative Evidence, whose random numbers are the CPU's.

Every draw is made in the order of `nbks/infection.py` and of the two notebooks on Negative Evidence, so that seed 0 gives
their data and their start. Training is full-precision arithmetic on one thread here, on a GPU there: the same up to rounding.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

from edgewise.datasets.infection import NUM_CLASSES, NUM_FEATURES, InfectionGraphs, draw_graphs
from edgewise.random_numbers import one_thread, seeded

EXAMPLE_NODE = 50
EXAMPLE_WALKS = {"dag": (960, 866, 340, 340, 50), "amp_ave_additive": (109, 9, 9, 340, 50)}
"""nbks/infection.ipynb, cell 12: the walks that it prints, infected end first."""


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """A network in eval mode, the graph that is explained, and the targets."""

    model: nn.Module
    data: Data
    targets: Tensor
    accuracy: float


def rebuilt_infection(seed: int = 0, epochs: int = 100, order: int | None = None) -> Rebuilt:
    """The published Infection network for seed 0 (nbks/infection.py, lines 24 to 85), its test graph, all nodes with an edge.

    The gradient clipping of line 61 stands before `backward` and does nothing; `state` of line 81 is an alias of the live
    weights, so the last epoch is kept.

    Args:
        seed: 0 is the published one.
        epochs: Passes over the four training graphs.
        order: None trains in float64, which any machine repeats, and rounds the weights in the end. A number trains in float32,
            as published, with edges (and so the sums over neighbours) in the n-th random order; 0 is the order of the data.
    """
    with seeded(seed), one_thread():
        graphs: InfectionGraphs = draw_graphs(num_graphs=5)  # lines 34 to 39
        loader: Any = DataLoader(range(4), shuffle=True)  # type: ignore[arg-type]  # line 41: one graph is a batch
        model = GraphSAGE(NUM_FEATURES, 20, 4, NUM_CLASSES, aggr="sum")  # lines 48 to 51
        training = [_in_order(graph, order) for graph in graphs.training]
        model = model.to(training[0].x.dtype)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=3e-4)  # line 52
        model.train()
        for _ in range(epochs):  # line 77
            for position in loader:  # lines 57 to 63
                graph = training[int(position)]
                optimizer.zero_grad()
                functional.cross_entropy(model(graph.x, graph.edge_index), graph.y).backward()
                optimizer.step()
        model.zero_grad()
        model.float().eval()
        with torch.no_grad():
            right = model(graphs.test.x, graphs.test.edge_index).argmax(dim=1) == graphs.test.y
    return Rebuilt(model, graphs.test, graphs.test.edge_index.unique(), float(right.double().mean()))


def _in_order(graph: Data, order: int | None) -> Data:
    """The graph in float64 (None), or with its edges in the n-th random order, which changes nothing but the rounding."""
    if order is None:
        return Data(x=graph.x.double(), edge_index=graph.edge_index, y=graph.y)
    columns = torch.arange(graph.num_edges)
    if order:
        columns = torch.randperm(graph.num_edges, generator=torch.Generator().manual_seed(order))
    return Data(x=graph.x, edge_index=graph.edge_index[:, columns], y=graph.y)


# --- Negative Evidence ------------------------------------------------------------------------------------------------

NUM_NODES, PER_COLOUR, GRAY_CHANCE = 2000, 10, 0.005
NOTEBOOK_WEIGHTS = {
    2: ((-1.7631e-04, -1.7218, 1.7219),),
    3: (
        (3.0977e-04, 2.3981, -5.4696e-04, -3.4883e-04),
        (1.7874e-05, 2.8829e-04, 2.4045, -3.7745e-04),
        (-2.5918e-04, -2.7572e-04, -6.7056e-04, 2.4051),
    ),
}
"""By colours: the trained weights that the notebooks print (cell 6 of the one, cell 5 of the other), gray first."""


def coloured_graph(colours: int, draw: random.Random) -> tuple[Data, Tensor]:
    """A graph of `create_dataset` (cell 0 of both notebooks), and its test nodes; features are one-hot, gray first."""
    gray = range(colours * PER_COLOUR, NUM_NODES)
    edges = [pair for pair in itertools.combinations(gray, 2) if draw.random() < GRAY_CHANCE]
    counts = list(itertools.permutations(range(1, PER_COLOUR + 1), colours))
    members = [list(range(PER_COLOUR * colour, PER_COLOUR * (colour + 1))) for colour in range(colours)]
    label = [node // PER_COLOUR for node in range(colours * PER_COLOUR)]
    tested = []
    for number, node in enumerate(gray):
        count = counts[number % len(counts)]
        far = abs(count[0] - count[1]) > 1 if colours == 2 else True
        if far and min(count) > 1:
            tested.append(node)
        for some, how_many in zip(members, count, strict=True):
            edges += [(node, other) for other in draw.sample(some, how_many)]
        label.append(count.index(max(count)))
    ends = torch.tensor(edges).t()
    colour = [1 + node // PER_COLOUR for node in range(colours * PER_COLOUR)] + [0] * len(gray)
    x = functional.one_hot(torch.tensor(colour)).float()
    return Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], dim=1), y=torch.tensor(label)), torch.tensor(tested)


def rebuilt_negative_evidence(colours: int = 2, seed: int = 0, epochs: int = 1000) -> Rebuilt:
    """The published network for seed 0: four graphs to train on, one to explain, a constant learning rate."""
    draw = random.Random(seed)
    *training, (test, targets) = [coloured_graph(colours, draw) for _ in range(5)]  # cell 2
    with seeded(seed), one_thread():
        outputs = 1 if colours == 2 else colours
        settings: dict[str, Any] = {"aggr": "sum", "bias": False, "root_weight": False}
        model = GraphSAGE(colours + 1, 3, 1, outputs, **settings)  # cell 4; three colours: cell 3
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        sums = [(_neighbours(graph)[tested], graph.y[tested]) for graph, tested in training]
        for _ in range(epochs):  # cell 5; three colours: cell 4
            for rows, label in sums:
                optimizer.zero_grad()
                (_loss(rows @ model.convs[0].lin_l.weight.t(), label) + _size(model)).backward()
                optimizer.step()
        model.zero_grad()
        model.eval()
        with torch.no_grad():
            out = model(test.x, test.edge_index)[targets]
    right = (out.view(-1) > 0).long() if outputs == 1 else out.argmax(dim=1)
    return Rebuilt(model, test, targets, float((right == test.y[targets]).double().mean()))


def _neighbours(graph: Data) -> Tensor:
    """`[N, d]`: sums of the neighbours' features, which is all that this model sees of a graph."""
    sender, receiver = graph.edge_index
    return torch.zeros_like(graph.x).index_add_(0, receiver, graph.x[sender])


def _loss(out: Tensor, label: Tensor) -> Tensor:
    if out.size(1) == 1:
        return functional.binary_cross_entropy_with_logits(out.view(-1), label.float())
    return functional.cross_entropy(out, label)


def _size(model: nn.Module) -> Tensor:
    """0.01 · ‖W‖₁."""
    return 0.01 * sum((parameter.abs().sum() for parameter in model.parameters()), torch.zeros(()))


def weights_beside_notebook(found: Rebuilt, colours: int) -> Iterator[tuple[float, float]]:
    """(ours, theirs) for every weight of the network of seed 0."""
    ours = found.model.get_parameter("convs.0.lin_l.weight").detach()
    theirs = torch.tensor(NOTEBOOK_WEIGHTS[colours])
    yield from zip(ours.flatten().tolist(), theirs.flatten().tolist(), strict=True)
