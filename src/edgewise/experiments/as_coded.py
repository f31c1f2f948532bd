"""Habits of the authors' code that the text does not have, so that published figures can be compared like with like."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

import edgewise as ew
from edgewise import randomness
from edgewise.algorithms.gnn_explainer import entropy_share, loss_gradient, start_logits
from edgewise.blocks import DEFAULT_MEMORY, blocks
from edgewise.entries import Entries, Part
from edgewise.experiments.neighbourhoods import neighbourhood
from edgewise.problem import pose
from edgewise.score import Score


def full_as_coded(like: ew.ExplanationSet) -> ew.ExplanationSet:
    """Layerwise full masks: whole neighbourhoods, the smallest in the layer that reads the features."""
    return neighbourhood(like, range(1, like.num_layers + 1))


def explainer_as_coded(
    like: ew.ExplanationSet, model: nn.Module, data: Data, device: str, settings: Mapping[str, Any]
) -> ew.ExplanationSet:
    """Layerwise GNNExplainer of nodes as the code trains it: the loop over the layers is around the loop over the epochs.

    Every mask is trained so many times longer as there are layers, and a layer has regularisers in its own turn alone, the
    output's layer first; before, they pull at edge 0, wherever it is. Our reading, which fits the published curves best.
    """
    problem = pose(
        model, data, like.index, target=like.target, task="node", mode=None, of="logit", forward=None, device=device
    )
    width = data.edge_index.size(1)
    parts = []
    with problem.borrowed():
        for positions in blocks(problem, DEFAULT_MEMORY, None):
            score = Score.of_block(problem, positions)
            masks = _in_turns(score, settings).cpu()
            row, column = positions[score.owner.cpu()], score.edge_id.cpu()
            parts += [Part(row, column + layer * width, mask) for layer, mask in enumerate(masks)]
    found = replace(like, method="gnn_explainer", edges=_without_zeros(Entries(parts, len(like))), own=None)
    return _with_stray_edge(found, settings)


def _in_turns(score: Score, settings: Mapping[str, Any]) -> Tensor:
    logits = start_logits(score, "layer", None, seed=0)
    logits.grad = torch.zeros_like(logits)
    optimizer = torch.optim.Adam([logits], lr=settings["lr"], fused=True)
    active, pull = torch.zeros_like(logits), torch.zeros_like(logits)
    for layer in reversed(range(score.num_layers)):
        for epoch in range(settings["epochs"]):
            mask = logits.sigmoid()
            gradient = loss_gradient(score, mask)
            gradient[layer] += active[layer] * (settings["edge_size"] - pull[layer] * logits[layer])
            torch.mul(gradient, mask * (1 - mask), out=logits.grad)
            if epoch == 0:
                active[layer] = (logits.grad[layer] != 0).to(logits.dtype)
                pull = settings["edge_ent"] * entropy_share(active, score)
            optimizer.step()
    return logits.sigmoid() * active


def _without_zeros(entries: Entries) -> Entries:
    kept = entries.score != 0
    return Entries([Part(entries.rows()[kept], entries.place[kept], entries.score[kept])], entries.num_rows)


def _with_stray_edge(explained: ew.ExplanationSet, settings: Mapping[str, Any]) -> ew.ExplanationSet:
    """Edge 0 of every layer, trained by the regularisers alone: "no edges yet" is a list of zeros that later picks it."""
    edges, layers = explained.edges, explained.num_layers
    assert edges is not None
    edge_index, num_nodes = explained.graph(0)
    layer = torch.arange(layers)
    start = randomness.normal(0, explained.index.view(-1, 1), layer, torch.tensor(0)) * (2 / num_nodes) ** 0.5
    mask = _regularised(start, settings["epochs"] * layers, settings)
    place = (layer * edge_index.size(1)).expand(len(explained), -1).reshape(-1)
    row = torch.arange(len(explained)).repeat_interleave(layers)
    absent = edges.at(row, place) == 0  # where edge 0 matters it has its own score
    stray = Part(row[absent], place[absent], mask.reshape(-1)[absent].to(edges.score.dtype))
    kept = Part(edges.rows(), edges.place, edges.score)
    return replace(explained, edges=Entries([kept, stray], len(explained)))


def _regularised(logits: Tensor, steps: int, settings: Mapping[str, Any]) -> Tensor:
    """Masks that only the size and entropy terms of GNNExplainer have moved."""
    logits = logits.clone()
    optimizer = torch.optim.Adam([logits], lr=settings["lr"])
    for _ in range(steps):
        mask = logits.sigmoid()
        logits.grad = (settings["edge_size"] - settings["edge_ent"] * logits) * mask * (1 - mask)
        optimizer.step()
    return logits.sigmoid()
