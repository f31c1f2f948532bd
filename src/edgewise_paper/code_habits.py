"""Habits of the authors' code that the text does not have, so that published figures can be compared like with like."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import edgewise as ew
from edgewise import random_numbers
from edgewise.results.explanation_set import Entries, Part

# --- Full masks of whole neighbourhoods: every edge between nodes from which the target can be reached in so many steps ---


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


# --- The whole ---------------------------------------------------------------------------------------------------------


def full_as_coded(like: ew.ExplanationSet) -> ew.ExplanationSet:
    """Layerwise full masks: whole neighbourhoods, the smallest in the layer that reads the features."""
    return neighbourhood(like, range(1, like.num_layers + 1))


def magnitudes(found: ew.ExplanationSet) -> ew.ExplanationSet:
    """Without signs, as the code has the occlusion of a single logit."""
    edges = found.edges
    assert edges is not None
    return replace(found, edges=Entries.of_rows(edges.start, edges.place, edges.score.abs()))


def wide_start(num_layers: int, num_edges: int, spread: float) -> Tensor:
    """Start logits of GNNExplainer, `[layers, edges]`, the same for all targets."""
    return torch.randn(num_layers, num_edges, generator=torch.Generator().manual_seed(0)) * spread


def with_stray_edge(explained: ew.ExplanationSet, settings: Mapping[str, Any]) -> ew.ExplanationSet:
    """Edge 0 of a one-layer network, wherever it is, trained by the regularisers alone: "no edges yet" is a 0 that picks it."""
    edges, index = explained.edges, explained.index
    assert edges is not None
    start = random_numbers.normal(0, index, torch.tensor(0), torch.tensor(0)) * (2 / explained.graph(0)[1]) ** 0.5
    row, place = torch.arange(len(explained)), torch.zeros(len(explained), dtype=torch.long)
    absent = edges.at(row, place) == 0  # where edge 0 matters it has its own score
    mask = _regularised(start, settings).to(edges.score.dtype)
    parts = [Part(edges.rows(), edges.place, edges.score), Part(row[absent], place[absent], mask[absent])]
    return replace(explained, edges=Entries(parts, len(explained)))


def _regularised(logits: Tensor, settings: Mapping[str, Any]) -> Tensor:
    """Masks that only the size and entropy terms of GNNExplainer have moved."""
    logits = logits.clone()
    optimizer = torch.optim.Adam([logits], lr=settings["lr"])
    for _ in range(settings["epochs"]):
        mask = logits.sigmoid()
        logits.grad = (settings["edge_size"] - settings["edge_ent"] * logits) * mask * (1 - mask)
        optimizer.step()
    return logits.sigmoid()
