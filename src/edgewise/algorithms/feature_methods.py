"""The methods of `ew.features`, and what their scores add up to.

With z the explained number and x the features of all nodes:

    gradient               ∂z/∂x
    gradient_x_input       x · ∂z/∂x: adds up to z where the model is linear without biases
    integrated_gradients   x · the mean of ∂z/∂x on the way from 0 to x: adds up to z(x) − z(0)
    occlusion              z(x) − z(x with this one number set to 0)

The way of integrated gradients is a straight line along which all features grow together, and the integral is taken by Gauss
and Legendre's rule. Edge attributes have scores of the same kind, by themselves: on their way the features of nodes stay as
they are, so they add up to z(attributes) − z(attributes 0).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from edgewise.algorithms.feature_copies import FeatureLosses, FeaturePath, FeatureSlopes
from edgewise.results.entries import Entries, Part, strongest
from edgewise.results.feature_factors import FeatureFactors, FeatureRows, stored_row


@dataclass(frozen=True)
class FeatureMethod:
    """A method by its name, with its settings and what its scores add up to."""

    name: str
    adds_up_to: str
    differentiates: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)
    scores_nodes: bool = False

    @property
    def changes_features(self) -> bool:
        """Whether the model gets other features, with which more may count than with the given ones."""
        return self.name in ("occlusion", "integrated_gradients")


FEATURE_METHODS = {
    method.name: method
    for method in (
        FeatureMethod("gradient", "nothing in particular: slopes have no sum"),
        FeatureMethod("gradient_x_input", "the explained number, where the model is linear without biases"),
        FeatureMethod(
            "occlusion", "the explained number less that of features 0, where the model is linear", differentiates=False
        ),
        FeatureMethod("integrated_gradients", "the explained number less that of features 0", settings={"steps": 50}),
        FeatureMethod(
            "cam", "the explained number less the bias of the readout", differentiates=False, scores_nodes=True
        ),
        FeatureMethod("grad_cam", "nothing in particular: a weighted sum of activations", scores_nodes=True),
    )
}


class FeatureEngine(Protocol):
    """Runs a question's model, or the program compiled from it, with features as variables."""

    way: str

    def slopes(self, positions: Tensor, path: FeaturePath) -> tuple[FeatureSlopes, FeatureSlopes | None]:
        """Gradients along a path, of node features and of edge attributes (None: the model reads none)."""

    def losses(self, positions: Tensor) -> tuple[FeatureLosses, FeatureLosses | None]:
        """What each number loses without one feature."""


def feature_rows(
    engine: FeatureEngine, method: FeatureMethod, positions: Tensor, top: int | None, settings: Mapping[str, Any]
) -> list[FeatureRows | None]:
    """The scores of one block of targets: of node features, and of edge attributes (None: the model reads none)."""
    targets = len(positions)
    if method.name == "occlusion":
        return [None if part is None else _of_losses(part, targets, top) for part in engine.losses(positions)]
    path = _path(int(settings["steps"])) if method.name == "integrated_gradients" else ((1.0, 1.0),)
    slopes = engine.slopes(positions, path)
    if method.name == "gradient":
        return [None if part is None else _of_slopes(part, targets, top) for part in slopes]
    return [None if part is None else _times_features(part, targets, top) for part in slopes]


def _path(steps: int) -> list[tuple[float, float]]:
    """Points in (0, 1) and their shares, which add up to 1.

    >>> _path(1)
    [(0.5, 1.0)]
    """
    points, shares = np.polynomial.legendre.leggauss(steps)
    return [(float(t), float(share)) for t, share in zip((points + 1) / 2, shares / 2, strict=True)]


def _of_slopes(slopes: FeatureSlopes, targets: int, top: int | None) -> FeatureRows:
    """Gradients as they are: rows of all features, or the strongest entries."""
    counts = torch.bincount(slopes.owner, minlength=targets).cpu()
    start = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    right = None if slopes.right is None else slopes.right.cpu()
    rows = FeatureFactors(start, slopes.item.cpu(), slopes.left.cpu(), right)
    if top is None:
        return rows
    parts = []
    for row in range(targets):
        place, score = stored_row(rows, row)
        kept = score.abs().argsort(descending=True, stable=True)[:top]
        parts.append(Part(torch.full_like(kept, row), place[kept], score[kept]))
    return Entries(parts, targets)


def _times_features(slopes: FeatureSlopes, targets: int, top: int | None) -> FeatureRows:
    """Gradients times features: nothing where a feature is 0, so only the others are multiplied."""
    assert slopes.given is not None
    pair, feature, given = slopes.given()  # [n] each
    slope = slopes.left[pair, feature] if slopes.right is None else _products(slopes.left, slopes.right, pair, feature)
    place = slopes.item[pair] * slopes.width + feature
    return entries(slopes.owner[pair], place, slope * given, targets, top)


def _products(left: Tensor, right: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Some entries of left times right, `[n]`; `row` ascends, and so does `column` within a row.

    >>> _products(torch.tensor([[2.0]]), torch.tensor([[1.0, 5.0, 7.0]]), torch.tensor([0, 0]), torch.tensor([0, 2]))
    tensor([ 2., 14.])
    """
    if left.is_cuda or not len(row):
        return torch.linalg.vecdot(left.index_select(0, row), right.t().contiguous().index_select(0, column))
    start = torch.zeros(len(left) + 1, dtype=torch.long)
    start[1:] = torch.bincount(row, minlength=len(left)).cumsum(0)
    size = (len(left), right.size(1))
    pattern = torch.sparse_csr_tensor(start, column, left.new_zeros(len(row)), size=size, check_invariants=False)
    return torch.sparse.sampled_addmm(pattern, left, right, beta=0.0).values()


def _of_losses(losses: FeatureLosses, targets: int, top: int | None) -> FeatureRows:
    return entries(losses.owner, losses.item * losses.width + losses.feature, losses.score, targets, top)


def entries(owner: Tensor, place: Tensor, score: Tensor, targets: int, top: int | None) -> Entries:
    """Scores that are not zero, of each target all or the strongest; `owner` ascends."""
    kept = score.nonzero().view(-1)
    if len(kept) < len(score):
        owner, place, score = owner[kept], place[kept], score[kept]
    if top is not None:
        kept = strongest(owner, score.abs(), top)
        owner, place, score = owner[kept], place[kept], score[kept]
    counts = torch.bincount(owner, minlength=targets).cpu()
    start = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Entries.of_rows(start, place.cpu(), score.cpu())
