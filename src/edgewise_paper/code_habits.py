"""Habits of the authors' code that the text does not have, so that published figures can be compared like with like.

Full masks that cover whole neighbourhoods, occlusion without its sign, a wide start of GNNExplainer, and an edge 0 that is
trained although the target cannot be reached from it. Each function takes explanations and returns others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import edgewise as ew
from edgewise import random_numbers
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


def wide_start(num_layers: int, num_edges: int, spread: float) -> Tensor:
    """Start logits of GNNExplainer, `[layers, edges]`, of standard deviation `spread`; the same for all targets."""
    return torch.randn(num_layers, num_edges, generator=torch.Generator().manual_seed(0)) * spread


def with_stray_edge(explained: ew.ExplanationSet, settings: Mapping[str, Any]) -> ew.ExplanationSet:
    """One-layer masks in which edge 0, wherever it is, has been trained by the regularisers alone.

    The code's "no edges yet" is a vector of integer zeros that is later used as an index, so it picks edge 0. `settings` are
    those of GNNExplainer. Targets that edge 0 can reach keep its score.
    """
    edges, index = explained.edges, explained.index
    assert edges is not None
    start = random_numbers.normal(0, index, torch.tensor(0), torch.tensor(0)) * (2 / explained.graph(0)[1]) ** 0.5
    row, place = torch.arange(len(explained)), torch.zeros(len(explained), dtype=torch.long)
    absent = edges.at(row, place) == 0  # where edge 0 matters it has its own score
    mask = _regularised(start, settings).to(edges.score.dtype)
    parts = [Part(edges.rows(), edges.place, edges.score), Part(row[absent], place[absent], mask[absent])]
    return replace(explained, edges=Entries(parts, len(explained)))


def _regularised(logits: Tensor, settings: Mapping[str, Any]) -> Tensor:
    """Masks that only the size and entropy terms of GNNExplainer have moved from their start `logits`."""
    logits = logits.clone()
    optimizer = torch.optim.Adam([logits], lr=settings["lr"])
    for _ in range(settings["epochs"]):
        mask = logits.sigmoid()
        logits.grad = (settings["edge_size"] - settings["edge_ent"] * logits) * mask * (1 - mask)
        optimizer.step()
    return logits.sigmoid()
