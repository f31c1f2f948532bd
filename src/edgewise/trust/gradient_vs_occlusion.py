"""Gradient against occlusion, edge by edge: what the gradient predicts, and what is lost without the edge."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.algorithms.occlusion import edge_drops, layer_groups, players
from edgewise.algorithms.occlusion_drops import lowered_drops
from edgewise.arrays import plain_index
from edgewise.question import PosedQuestion
from edgewise.results.entries import Entries, Part
from edgewise.score import Score
from edgewise.trust.target_edges import Draw

Drops = Callable[[Score, Tensor], Tensor]
"""A score and a mask of the copies that are asked about `[M]` ↦ their occlusions `[groups, M]`; a group is a layer, or all."""


@dataclass(frozen=True)
class WorstEdge:
    """The edge whose gradient is furthest from its occlusion."""

    index: Any
    """The explained node or graph."""
    source: Any
    """A node; of a typed graph `(node type, number)`."""
    receiver: Any
    column: int
    gradient: float
    occlusion: float


@dataclass(frozen=True, eq=False)
class Effects:
    """Gradients beside occlusions, in groups: each layer, or (input level) all layers together."""

    products: Tensor
    """`[3, T, groups]`: Σ gradient · occlusion, Σ gradient², Σ occlusion²."""
    difference: Tensor
    """`[T, groups]`: the largest |gradient − occlusion|, relative to the largest gradient of the target or its |z|."""
    worst: tuple[WorstEdge | None, ...]
    """The worst edge of each group; None if there is no edge."""

    def cosine(self) -> Tensor:
        """`[T, groups]`: the cosine of gradients and occlusions; NaN where one of the two is zero."""
        return self.products[0] / (self.products[1].sqrt() * self.products[2].sqrt())

    @staticmethod
    def joined(parts: list["Effects"]) -> "Effects":
        """The effects on all targets, from blocks of them."""
        worst = [max(group, key=_distance) for group in zip(*(part.worst for part in parts), strict=True)]
        products = torch.cat([part.products for part in parts], dim=1)
        return Effects(products, torch.cat([part.difference for part in parts]), tuple(worst))


def _distance(edge: WorstEdge | None) -> float:
    return -1.0 if edge is None else abs(edge.gradient - edge.occlusion)


def drops_of(question: PosedQuestion, level: str, memory: int) -> Drops:
    """How to get occlusions: for a lowered model once for all targets, otherwise by passes for each block."""
    if question.lowering is None:
        return lambda score, asked: edge_drops(score, level, among=asked).view(
            len(layer_groups(score, level)), len(asked)
        )
    width = question.graphs[0].edge_index.size(1)
    found = [entries for _, entries in lowered_drops(question, level, memory, of_self=(False,))]
    parts = [Part(part.position.cpu(), (part.layer * width + part.item).cpu(), part.score.cpu()) for part in found]
    nothing = Part(torch.zeros(0).long(), torch.zeros(0).long(), question.target.truth.new_zeros(0).cpu())
    table = Entries([nothing, *parts], len(question.index))

    def look_up(score: Score, asked: Tensor) -> Tensor:
        position, edge = score.positions[score.owner.cpu()], score.edge_id.cpu()
        layers = range(1 if level == "input" else score.num_layers)
        return torch.stack([table.at(position, layer * width + edge) for layer in layers]).to(asked.device)

    return look_up


def effects_of(
    question: PosedQuestion, score: Score, gradient: Tensor, level: str, draw: Draw, drops: Drops
) -> Effects:
    """The effects on the targets of a score, whose gradients at ω = 1 are `gradient` `[L, M]`, for the edges of a draw.

    z = 6 ω₀ ω₁ of a path with two layers: at layer level each edge has gradient 6 and occlusion 6, so the cosine is 1 and
    the difference 0; at input level the occlusion of an edge is still 6, and so is its gradient.
    """
    position = score.positions[score.owner.cpu()]
    kept = draw.keeps(question, position, score.edge_id.cpu()).to(score.owner.device)
    inside = players(score, level) & kept
    grouped = torch.stack([gradient[group].sum(dim=0) for group in layer_groups(score, level)])  # [groups, M]
    first, second = (torch.where(inside, part, 0.0).double() for part in (grouped, drops(score, kept)))
    products = torch.stack([_sums(part, score) for part in (first * second, first.square(), second.square())])
    off = (first - second).abs()  # [groups, M]
    # [T]: the largest gradient of a target, or its |z| if that is larger
    scale = torch.maximum(_largest(first, score).amax(dim=1), score.target.value(score.target.truth).abs().double())
    relative = _largest(off, score) / torch.where(scale > 0, scale, 1.0).view(-1, 1)
    worst = [
        _worst(score, row, *pair) for row, *pair in zip(torch.where(inside, off, -1.0), first, second, strict=True)
    ]
    return Effects(products.cpu(), relative.cpu(), tuple(worst))


def _sums(values: Tensor, score: Score) -> Tensor:
    """`[T, groups]`: sums of values `[groups, M]` over a target's copies."""
    return values.new_zeros(score.num_targets, len(values)).index_add_(0, score.owner, values.t())


def _largest(values: Tensor, score: Score) -> Tensor:
    """`[T, groups]`: the largest magnitude among a target's copies."""
    place = score.owner.view(-1, 1).expand(-1, len(values))
    return values.new_zeros(score.num_targets, len(values)).scatter_reduce_(0, place, values.abs().t(), "amax")


def _worst(score: Score, off: Tensor, gradient: Tensor, occlusion: Tensor) -> WorstEdge | None:
    """The edge with the largest `off` `[M]` (negative where it was not asked about); None if there is none."""
    if off.numel() == 0 or float(off.max()) < 0:
        return None
    place = int(off.argmax())
    source, receiver = score.ends()[:, place].tolist()
    index, column = plain_index(score.index)[int(score.owner[place])], int(score.edge_id[place])
    types = score.types_of(int(score.owner[place]))
    if types is not None:
        source, receiver = types.node(source), types.node(receiver)
        index = types.asked(index) if types.explained else index
    return WorstEdge(index, source, receiver, column, float(gradient[place]), float(occlusion[place]))
