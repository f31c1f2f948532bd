"""Masks from scores: what several targets say together, in one number for each edge, node or feature.

`TargetScores` are scores of many targets without their zeros. Signed scores of several targets are added up, as PyG's own
gradients are. A mask in [0, 1] must stay there: each entry is the largest that one of the targets gives it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.results.entries import Entries
from edgewise.results.explanation_set import ExplanationSet
from edgewise.results.feature_factors import FeatureFactors, FeatureRows
from edgewise.results.feature_scores import FeatureSet
from edgewise.results.typed_explanation import TypedExplanation

_AT_ONCE = 2**24
"""Feature scores that are made from factors at a time."""


@dataclass(frozen=True)
class ScoreBlock:
    """Entries `[n]` of some targets, each of which is in one block alone: the target, the place, and the score."""

    row: Tensor
    place: Tensor
    score: Tensor

    def moved(self, place: Tensor) -> "ScoreBlock":
        """The same in other places; what meets in one place is added up, target by target.

        >>> block = ScoreBlock(torch.tensor([0, 0, 1]), torch.tensor([4, 5, 4]), torch.tensor([1.0, 2.0, 3.0]))
        >>> together = block.moved(block.place // 4)
        >>> together.row, together.place, together.score
        (tensor([0, 1]), tensor([1, 1]), tensor([3., 3.]))
        """
        width = int(place.max()) + 1 if len(place) else 1
        key, group = (self.row * width + place).unique(return_inverse=True)
        score = self.score.new_zeros(len(key)).index_add_(0, group, self.score)
        return ScoreBlock(key // width, key % width, score)


def edge_block(found: ExplanationSet) -> ScoreBlock:
    """Edge scores of a set, places are layer · E + column; of `random`, which stores none, those of the first target."""
    if found.edges is not None:
        return ScoreBlock(found.edges.rows(), found.edges.place, found.edges.score)
    first = found[0]
    score = (first.flat if isinstance(first, TypedExplanation) else first).scores.reshape(-1)
    place = torch.arange(len(score))
    return ScoreBlock(torch.zeros_like(place), place, score.cpu())


def feature_blocks(found: FeatureSet) -> Iterator[ScoreBlock]:
    """Feature scores of a set, places are node · F + feature; of `cam` and `grad_cam` those of nodes."""
    rows: FeatureRows | None = found.nodes if found.features is None else found.features
    assert rows is not None
    if isinstance(rows, Entries):
        yield ScoreBlock(rows.rows(), rows.place, rows.score)
        return
    width = found.num_features
    counts = rows.start.diff()
    target = torch.repeat_interleave(torch.arange(len(counts)), counts)
    for part in _parts(rows, _AT_ONCE // max(width, 1)):
        scores = rows.left[part] if rows.right is None else rows.left[part] @ rows.right  # [pairs, F]
        place = rows.node[part].view(-1, 1) * width + torch.arange(width)
        kept = scores.reshape(-1).nonzero().view(-1)
        yield ScoreBlock(target[part].repeat_interleave(width)[kept], place.reshape(-1)[kept], scores.reshape(-1)[kept])


def _parts(rows: FeatureFactors, at_most: int) -> Iterator[slice]:
    """Slices of the pairs (target, node) of whole targets, of about so many pairs."""
    begin, start = 0, rows.start.tolist()
    for this, following in zip(start[1:], [*start[2:], float("inf")], strict=True):
        if following - begin > at_most and this > begin:
            yield slice(begin, this)
            begin = this


def summed(blocks: Iterator[ScoreBlock], size: int, like: Tensor) -> Tensor:
    """`[size]`: the sum over all targets."""
    total = torch.zeros(size, dtype=like.dtype)
    for block in blocks:
        total.index_add_(0, block.place, block.score.to(total.dtype))
    return total


def largest(blocks: Iterator[ScoreBlock], size: int, like: Tensor) -> Tensor:
    """`[size]`: the largest over all targets, of scores that are not negative."""
    total = torch.zeros(size, dtype=like.dtype)
    for block in blocks:
        total.scatter_reduce_(0, block.place, block.score.to(total.dtype), "amax")
    return total


def unit(block: ScoreBlock) -> ScoreBlock:
    """Magnitudes, as shares of the largest of each target.

    >>> block = ScoreBlock(torch.tensor([0, 0, 1]), torch.tensor([2, 5, 5]), torch.tensor([-4.0, 1.0, 3.0]))
    >>> unit(block).score
    tensor([1.0000, 0.2500, 1.0000])
    """
    if len(block.row) == 0:
        return block
    size = block.score.abs()
    peak = size.new_zeros(int(block.row.max()) + 1).scatter_reduce_(0, block.row, size, "amax")[block.row]
    return ScoreBlock(block.row, block.place, size / peak.where(peak > 0, 1.0))
