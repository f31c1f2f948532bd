"""How far two results are apart: the largest difference of a target's scores, relative to its largest |score|."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Deviation:
    """Over some targets: the worst of them; how many have scores to compare, and how many of these are too far apart.

    A target all of whose compared scores are zero on both sides (the sampled edges cannot reach it) proves little: it
    counts for `worst`, not for `compared`.
    """

    worst: float = 0.0
    compared: int = 0
    apart: int = 0

    def joined(self, other: "Deviation") -> "Deviation":
        return Deviation(max(self.worst, other.worst), self.compared + other.compared, self.apart + other.apart)


def by_target(ours: Sequence[Any], asked: Tensor, theirs: Sequence[Tensor], units: Tensor) -> Deviation:
    """The peer explained some targets: compare each edge's score, ours summed over layers."""
    place = {int(target): i for i, target in enumerate(asked)}
    found = Deviation()
    for unit, other in zip(units.tolist(), theirs, strict=True):
        mine = ours[place[unit]].edge_scores()
        found = found.joined(of_target(mine, other, _largest(mine)))
    return found


def by_edge(ours: Sequence[Any], asked: Tensor, theirs: Tensor, units: Tensor) -> Deviation:
    """The peer left out some edges (or layers and edges), once for all targets: `theirs` is `[units, targets]`."""
    found = Deviation()
    for i, target in enumerate(asked.tolist()):
        mine = ours[i].scores.reshape(-1)
        found = found.joined(of_target(mine[units], theirs[:, target], _largest(mine)))
    return found


def between(ours: Sequence[Any], theirs: Sequence[Any]) -> Deviation:
    """Two explanations of each target."""
    found = Deviation()
    for mine, other in zip(ours, theirs, strict=True):
        found = found.joined(of_target(mine.scores.cpu(), other.scores.cpu(), _largest(mine.scores)))
    return found


def of_target(mine: Tensor, other: Tensor, our_largest: float) -> Deviation:
    """The scores of one target, ours and the peer's."""
    scale = max(our_largest, _largest(other))
    if scale == 0:
        return Deviation()
    worst = _largest(mine - other) / scale
    return Deviation(worst, int(bool((mine != 0).any() or (other != 0).any())), int(not worst <= TOLERANCE))


def _largest(scores: Tensor) -> float:
    return float(scores.abs().max()) if scores.numel() else 0.0
