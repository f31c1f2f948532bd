"""Negative Evidence: has a node more red or more blue neighbours? What supports one answer opposes the other.

Each graph has 2000 nodes: ten of each colour, the rest gray and joined at random. The k-th gray node is next to b blue and r
red nodes, where (b, r) runs through the ordered pairs of different numbers from 1 to 10, over and over. A gray node has a
truth if its counts all exceed 1 and, for two colours, differ by more than 1. After Faber et al., KDD 2021; settings as in He,
Rafiey, Mishne and Wang, KDD 2025.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import erdos_renyi_graph, scatter

from edgewise.datasets.planted_data import PlantedData, Trained, fit, share_right
from edgewise.random_numbers import seeded

NUM_NODES, PER_COLOUR, EDGE_PROBABILITY = 2000, 10, 0.005
NUM_TRAINING_GRAPHS = 4
EPOCHS, L1 = 1000, 0.01
FIRST_RATE, LAST_RATE = 0.01, 1e-4
"""The rate falls, because Adam at a constant rate steps around zero: what it leaves on gray would look like evidence."""


@dataclass(frozen=True, eq=False, repr=False)
class NegativeEvidence(PlantedData):
    """Features are one-hot colours (blue, red, [green,] gray); the class is the colour of the majority, in that order."""

    training: tuple[Data, ...]
    num_colours: int

    def _truth(self, index: Tensor) -> Tensor:
        """`[T, E]`: 1 for edges from the majority's colour, −1 for those from the other colours, 0 for gray ones."""
        source, receiver = self.data.edge_index
        colour = self.data.x.argmax(dim=1)[source]
        arrives = receiver == index.view(-1, 1)
        own = colour == self.data.y[index].view(-1, 1)
        other = (colour < self.num_colours) & ~own
        return (arrives & own).to(torch.int8) - (arrives & other).to(torch.int8)

    def _train(self, seed: int) -> Trained:
        return self.train_with(seed, LAST_RATE)

    def train_with(self, seed: int, last_rate: float) -> Trained:
        """Train with a rate of Adam that falls to `last_rate`; with `FIRST_RATE` it is constant, as in the paper."""
        outputs = 1 if self.num_colours == 2 else self.num_colours
        received = [(_neighbour_sums(graph), graph.y[graph.explained]) for graph in self.training]

        def losses(model: nn.Module) -> Iterator[Tensor]:
            linear = model.get_submodule("lin_l")  # the conv is linear: neighbours are summed once, not in every epoch
            for sums, label in received:
                yield _loss(linear(sums), label) + L1 * model.get_parameter("lin_l.weight").abs().sum()

        def make() -> SAGEConv:
            return SAGEConv(self.num_colours + 1, outputs, aggr="sum", root_weight=False, bias=False)

        model = fit(make, losses, seed=seed, epochs=EPOCHS, lr=FIRST_RATE, last_lr=last_rate)
        right = [_accuracy(model, *graphs) for graphs in (self.training, (self.data,))]
        return Trained(model, *right)


def _neighbour_sums(graph: Data) -> Tensor:
    """`[explained nodes, colours + 1]`: how many neighbours of each colour they have."""
    source, receiver = graph.edge_index
    return scatter(graph.x[source], receiver, dim=0, dim_size=graph.num_nodes, reduce="sum")[graph.explained]


def _loss(rows: Tensor, label: Tensor) -> Tensor:
    """Cross entropy of logits, or of one logit for two classes."""
    if rows.size(1) == 1:
        return F.binary_cross_entropy_with_logits(rows[:, 0], label.to(rows.dtype))
    return F.cross_entropy(rows, label)


@torch.no_grad()
def _accuracy(model: nn.Module, *graphs: Data) -> float:
    """The share of explained nodes that the model gets right."""
    rows = torch.cat([model(graph.x, graph.edge_index)[graph.explained] for graph in graphs])
    label = torch.cat([graph.y[graph.explained] for graph in graphs])
    return share_right((rows[:, 0] > 0).long() if rows.size(1) == 1 else rows.argmax(dim=1), label)


def negative_evidence(seed: int, num_colours: int = 2) -> NegativeEvidence:
    """Four graphs to train on and one to explain, with blue and red nodes, or blue, red and green ones."""
    with seeded(seed):
        *training, test = [_graph(num_colours) for _ in range(NUM_TRAINING_GRAPHS + 1)]
    name = "negative_evidence" if num_colours == 2 else "negative_evidence_multiclass"
    return NegativeEvidence(name, test, test.explained.nonzero().view(-1), seed, tuple(training), num_colours)


def _graph(num_colours: int) -> Data:
    """One graph: coloured nodes first; `y` is −1 for them, `explained` marks the nodes that have a truth.

    A gray node with the counts (2, 3) is joined to the first 2 blue and the first 3 red nodes of a random order that is its
    own: `rank` `[gray, colours, members]` is that order, and members whose rank is below the count are taken.
    """
    coloured = num_colours * PER_COLOUR
    gray = NUM_NODES - coloured
    patterns = torch.tensor(list(permutations(range(1, PER_COLOUR + 1), num_colours)))
    counts = patterns[torch.arange(gray) % len(patterns)]
    rank = torch.rand(gray, num_colours, PER_COLOUR).argsort(dim=-1)  # a random order of each colour's nodes
    node, colour, member = (rank < counts.unsqueeze(-1)).nonzero(as_tuple=True)
    ends = torch.stack([colour * PER_COLOUR + member, node + coloured])
    among = erdos_renyi_graph(gray, EDGE_PROBABILITY) + coloured
    clear = (counts > 1).all(dim=1)
    if num_colours == 2:
        clear &= (counts[:, 0] - counts[:, 1]).abs() > 1
    kind = torch.arange(NUM_NODES).div(PER_COLOUR, rounding_mode="floor").clamp(max=num_colours)
    return Data(
        x=F.one_hot(kind, num_colours + 1).float(),
        edge_index=torch.cat([ends, ends.flip(0), among], dim=1),
        y=torch.cat([torch.full((coloured,), -1), counts.argmax(dim=1)]),
        explained=torch.cat([torch.zeros(coloured, dtype=torch.bool), clear]),
    )
