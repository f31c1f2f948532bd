"""Full masks of whole neighbourhoods: every edge between nodes from which the target can be reached in so many steps."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

import edgewise as ew
from edgewise.entries import Entries, Part


def neighbourhood(like: ew.ExplanationSet, hops: Sequence[int]) -> ew.ExplanationSet:
    """1 on every edge inside of the neighbourhood of a node, 0 elsewhere; one number of hops for each layer, or just one.

    More than the computation graph: an edge that leads away from the target is inside too. `like` says which targets.
    """
    edge_index, num_nodes = like.graph(0)
    reached = torch.zeros(len(like), num_nodes, dtype=torch.bool)
    reached[torch.arange(len(like)), like.index] = True
    inside = {0: _between(reached, edge_index)}
    for hop in range(1, max(hops) + 1):
        reached = _one_more(reached, edge_index)
        inside[hop] = _between(reached, edge_index)
    parts = []
    for layer, number in enumerate(hops):
        row, column = inside[number].nonzero(as_tuple=True)
        parts.append(Part(row, column + layer * edge_index.size(1), torch.ones(len(row), dtype=like.value.dtype)))
    return replace(like, method="full", edges=Entries(parts, len(like)), own=None)


def _between(reached: Tensor, edge_index: Tensor) -> Tensor:
    """`[targets, E]`: edges whose both ends are among the nodes."""
    return reached[:, edge_index[0]] & reached[:, edge_index[1]]


def _one_more(reached: Tensor, edge_index: Tensor) -> Tensor:
    """The nodes, and all that send to one of them."""
    row, column = reached[:, edge_index[1]].nonzero(as_tuple=True)
    further = reached.clone()
    further[row, edge_index[0][column]] = True
    return further
