"""Infection as a test of walk searches: on which nodes the true path is clear, and whether a walk is that path."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.data import Data

from edgewise.datasets.infection import MAX_PATH_LENGTH


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
