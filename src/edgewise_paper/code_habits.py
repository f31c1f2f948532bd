"""Habits of the authors' code that the text does not have, so that published figures can be compared like with like.

Full masks that cover whole neighbourhoods, and occlusion without its sign. Each function takes explanations and returns others.
What decides the published numbers beyond that is in `authors_code/`.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

import edgewise as ew
from edgewise.results.entries import Entries, Part


def neighbourhood(like: ew.ExplanationSet, hops: Sequence[int]) -> ew.ExplanationSet:
    """Full masks of whole neighbourhoods: 1 on every edge between nodes from which the target is reached in so many steps.

    More than the computation graph: an edge that leads away from the target is inside too.

    Args:
        like: Explanations of the same targets, at the level of the masks.
        hops: Steps for each layer; one number at the input level.
    """
    edge_index, num_nodes = like.graph(0)
    reached = torch.zeros(len(like), num_nodes, dtype=torch.bool)  # [T, N]
    reached[torch.arange(len(like)), like.index] = True
    inside = {0: _between(reached, edge_index)}  # by hops, [T, E]
    for hop in range(1, max(hops) + 1):
        reached = _one_more(reached, edge_index)
        inside[hop] = _between(reached, edge_index)
    parts = []
    for layer, number in enumerate(hops):
        row, column = inside[number].nonzero(as_tuple=True)
        parts.append(Part(row, column + layer * edge_index.size(1), torch.ones(len(row), dtype=like.value.dtype)))
    return replace(like, method="full", edges=Entries(parts, len(like)), own=None)


def _between(reached: Tensor, edge_index: Tensor) -> Tensor:
    """`[T, E]`: edges both ends of which are among the nodes of `reached`, `[T, N]`."""
    return reached[:, edge_index[0]] & reached[:, edge_index[1]]


def _one_more(reached: Tensor, edge_index: Tensor) -> Tensor:
    """`[T, N]`: the nodes of `reached`, and all that send to one of them."""
    row, column = reached[:, edge_index[1]].nonzero(as_tuple=True)
    further = reached.clone()
    further[row, edge_index[0][column]] = True
    return further


def full_as_coded(like: ew.ExplanationSet) -> ew.ExplanationSet:
    """Layerwise full masks of the code: whole neighbourhoods, the smallest in the layer that reads the features."""
    return neighbourhood(like, range(1, like.num_layers + 1))


def magnitudes(found: ew.ExplanationSet) -> ew.ExplanationSet:
    """The same explanations without signs, as the code has the occlusion of a single logit."""
    edges = found.edges
    assert edges is not None
    return replace(found, edges=Entries.of_rows(edges.start, edges.place, edges.score.abs()))
