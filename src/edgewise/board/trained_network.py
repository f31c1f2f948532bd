"""One network of a data set: the data of a seed, the model trained on it, the targets that it gets right, and their truth."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.utils import is_undirected

from edgewise import datasets
from edgewise.api.question import Question
from edgewise.arrays import plain_index
from edgewise.datasets.planted_data import PlantedData
from edgewise.errors import InputError

_CANDIDATES = 4
"""So many times the targets asked for are tried, to find as many that the model gets right."""


@dataclass(frozen=True, eq=False)
class BoardNetwork:
    """A trained model, and a question about targets whose right explanation is known."""

    name: str
    seed: int
    accuracy: float
    """On what was held out."""
    model: nn.Module
    data: Any
    """What is explained: a graph, or of a graph task the graphs that were chosen."""
    ask: Question
    index: tuple[int, ...]
    """The targets, as numbers in the data set."""
    truth: Sequence[Tensor]
    """For each target `[E]`, in the columns of its graph."""
    paths: Sequence[Sequence[Sequence[int]]] | None
    """For each target its true paths, where the data set has them."""
    both_ways: bool
    """Whether the truth is the same in both directions: then the two columns of an edge are ranked as one."""


def make_network(name: str, seed: int, targets: int) -> BoardNetwork:
    """Load the data of a seed, train on it, and choose targets at random among those that the model gets right."""
    found = datasets.load(name, seed)
    trained = found.train()
    order = _candidates(found, seed)[: _CANDIDATES * targets]
    graphs = found.task == "graph"
    data: Any = [found.data[number] for number in order.tolist()] if graphs else found.data
    asked = torch.arange(len(order)) if graphs else order
    wide = Question(trained.model, data, asked, task=found.task)
    right = (wide.target == _classes(found, order)).nonzero().view(-1)[:targets]
    if not len(right):
        raise InputError(f"The model of {name}, seed {seed}, gets none of {len(order)} targets right.")
    chosen = order[right]
    truth = list(found.truth(chosen))
    paths = [found.paths(node) for node in chosen.tolist()] if hasattr(found, "paths") else None
    edges = [data[i].edge_index if graphs else data.edge_index for i in plain_index(right)]
    both = all(is_undirected(edge_index, row) for edge_index, row in zip(edges, truth, strict=True))
    kept = [data[i] for i in right.tolist()] if graphs else data
    ask = Question(trained.model, kept, torch.arange(len(right)) if graphs else chosen, task=found.task)
    return BoardNetwork(
        name, seed, trained.test_accuracy, trained.model, kept, ask, tuple(chosen.tolist()), truth, paths, both
    )


def _candidates(found: PlantedData, seed: int) -> Tensor:
    """The targets in a random order of the seed; where graphs were held out from training, those alone."""
    targets = found.targets
    held_out = getattr(found, "test", None)
    if isinstance(held_out, Tensor):
        targets = targets[torch.isin(targets, held_out)]
    return targets[torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed))]


def _classes(found: PlantedData, index: Tensor) -> Tensor:
    """`[targets]`: the true classes."""
    if found.task == "graph":
        return torch.tensor([int(found.data[number].y) for number in index.tolist()])
    classes: Tensor = found.data.y[index]
    return classes
