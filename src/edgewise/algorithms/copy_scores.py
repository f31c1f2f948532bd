"""What a method returns: a number for every edge copy, and perhaps for every self copy, of a `Score`.

A `Score` lays the computation graphs of its targets side by side; M edge copies and S self copies are the edges and nodes of
all of them, and each copy belongs to one target (`score.owner`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.score import Score

LEVELS = ("input", "layer")


@dataclass(frozen=True)
class CopyScores:
    """Scores of the copies of one block of targets."""

    edge: Tensor
    """`[M]` at input level, `[L, M]` at layer level."""
    own: Tensor | None = None
    """`[S]` or `[L, S]`: scores of the nodes' own terms (self-loop, root weight); None if they cannot be scored."""
    error: Tensor | None = None
    """Like `edge`: standard errors, for methods that sample."""


@dataclass(frozen=True)
class SparseScores:
    """Scores of a whole question, entry by entry, `[n]` each; what is not listed is zero."""

    position: Tensor
    """The position of the target in the question."""
    layer: Tensor
    """The layer; 0 at input level."""
    item: Tensor
    """The column of `edge_index`, or with `of_self` the node."""
    score: Tensor
    of_self: bool
    """Whether these are scores of own terms."""


def at_level(edge: Tensor, own: Tensor | None, level: str) -> CopyScores:
    """Layerwise scores `[L, M]` as they are, or summed over the layers.

    The sum is right for gradients: an input weight is a layer weight with its rows tied.
    """
    if level == "layer":
        return CopyScores(edge, own)
    return CopyScores(edge.sum(dim=0), None if own is None else own.sum(dim=0))


def has_own_terms(score: Score) -> bool:
    """Whether the own terms of any call can be scored by themselves."""
    return any(score.separable)


def in_computation_graph(score: Score) -> Tensor:
    """`[L, M]`: whether a message sent on an edge in a layer can still arrive at the target (paper, Definition 1)."""
    remaining = torch.arange(score.num_layers - 1, -1, -1, device=score.edge_hops.device)
    return score.edge_hops <= remaining.view(-1, 1)
