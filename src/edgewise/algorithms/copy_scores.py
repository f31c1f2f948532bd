"""What a method returns: a number for every edge copy, and perhaps for every self copy, of a `Score`."""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.score import Score

LEVELS = ("input", "layer")


@dataclass(frozen=True)
class CopyScores:
    """`edge` is `[M]` (input level) or `[L, M]`, `own` is `[S]`, `[L, S]` or None, `error` is like `edge` or None."""

    edge: Tensor
    own: Tensor | None = None
    error: Tensor | None = None
    """Standard errors of the edge scores, of methods that sample."""


@dataclass(frozen=True)
class SparseScores:
    """Scores of a whole question, entry by entry: the target at `position`, in a layer, a column or (`of_self`) a node."""

    position: Tensor
    layer: Tensor
    item: Tensor
    score: Tensor
    of_self: bool


def at_level(edge: Tensor, own: Tensor | None, level: str) -> CopyScores:
    """Layerwise scores as they are, or summed over the layers: an input weight is a layer weight with its rows tied."""
    if level == "layer":
        return CopyScores(edge, own)
    return CopyScores(edge.sum(dim=0), None if own is None else own.sum(dim=0))


def has_own_terms(score: Score) -> bool:
    """Whether any call's self edges can be scored."""
    return any(score.separable)


def in_computation_graph(score: Score) -> Tensor:
    """`[L, M]`: whether a message sent on an edge in a layer can still arrive at the target (paper, Definition 1)."""
    remaining = torch.arange(score.num_layers - 1, -1, -1, device=score.edge_hops.device)
    return score.edge_hops <= remaining.view(-1, 1)
