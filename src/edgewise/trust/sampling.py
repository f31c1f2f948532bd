"""Gradients at many weights of one edge at a time, by passes through any model: every target varies an edge of its own."""

import torch
from torch import Tensor

from edgewise.algorithms.gradient import gradients_at_one, weight_gradients
from edgewise.algorithms.occlusion import layer_groups, one_per_target, players
from edgewise.algorithms.repeated import Repeated
from edgewise.blocks import blocks
from edgewise.problem import Problem
from edgewise.score import Score
from edgewise.trust.questions import EVERYTHING, Draw, Questions

_NOISE = {torch.float64: 1e-12}  # of a target's largest gradient; below it a sign says nothing
_COARSE_NOISE = 1e-6


def sampled_gradients(
    problem: Problem,
    level: str,
    weights: tuple[float, ...],
    memory: int,
    batch_size: int | None = None,
    draw: Draw = EVERYTHING,
) -> tuple[Questions, tuple[Tensor, Tensor, Tensor]]:
    """∂z/∂ω_e at ω = 1, and its least and greatest value over the weights."""
    owner, column, parts = [], [], []
    for positions in blocks(problem, memory, batch_size):
        score = Score.of_block(problem, positions)
        position = positions[score.owner.cpu()]
        kept = draw.keeps(problem, position, score.edge_id.cpu())
        owner.append(position[kept])
        column.append(score.edge_id.cpu()[kept])
        parts.append(_block(score, level, weights, kept.to(score.owner.device)).cpu()[..., kept])
    questions, order = Questions.of(problem.index, torch.cat(owner), torch.cat(column))
    gradient, lowest, highest = torch.cat(parts, dim=-1)[..., order]
    return questions, (gradient, lowest, highest)


def _block(score: Score, level: str, weights: tuple[float, ...], kept: Tensor) -> Tensor:
    """`[3, M]` or `[3, L, M]`: at 1, least, greatest; right for the copies that are `kept`."""
    at_one, _ = gradients_at_one(score)
    groups = layer_groups(score, level)
    found = torch.stack([at_one[group].sum(dim=0) for group in groups])
    found = torch.stack([found, found, found])
    tried = [weight for weight in weights if weight != 1.0]
    repeated = Repeated(score, len(tried))
    for number, (group, inside) in enumerate(zip(groups, players(score, level), strict=True)):
        for places in one_per_target((inside & kept).nonzero().view(-1), score.owner) if tried else ():
            at = _own_gradients(repeated, group, places, tried)
            found[1, number, places] = torch.minimum(found[1, number, places], at.amin(dim=0))
            found[2, number, places] = torch.maximum(found[2, number, places], at.amax(dim=0))
    quiet = _without_noise(found, score)
    return quiet if level == "layer" else quiet[:, 0]


def _own_gradients(repeated: Repeated, group: list[int], places: Tensor, tried: list[float]) -> Tensor:
    """`[weights, places]`: the gradient of each place by its own weight, shared by the layers of the group."""
    found, ones = [], repeated.base.ones()
    for begin in range(0, len(tried), repeated.times):
        part = tried[begin : begin + repeated.times]
        weight = ones.repeat(len(part), 1, 1)
        for layer in group:
            weight[:, layer, places] = ones.new_tensor(part).view(-1, 1)
        gradient, _ = weight_gradients(repeated.score, repeated.weights(weight), None)
        found.append(repeated.single(gradient, len(part))[:, group][:, :, places].sum(dim=1))
    return torch.cat(found)


def _without_noise(found: Tensor, score: Score) -> Tensor:
    """Numbers that rounding alone may have made are set to 0."""
    largest = found.abs().amax(dim=(0, 1))
    scale = largest.new_zeros(score.num_targets).scatter_reduce(0, score.owner, largest, "amax")
    return found.masked_fill(found.abs() <= _NOISE.get(found.dtype, _COARSE_NOISE) * scale[score.owner], 0.0)
