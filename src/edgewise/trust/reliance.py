"""Can gradients be relied on here? One decision, for `method="auto"`, for `check` and for the page.

Signs are measured in two ways that can differ as much as they like. *Flips alone*: one edge's weight goes from 1 to 0, all
others stay 1; the share of the edges whose own gradient changes its sign. *Flips together*: all weights go from 1 to 0 at
once; the share of the gradient, by size, on edges whose gradient has another sign somewhere on that way.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from edgewise.algorithms.gradient import weight_gradients
from edgewise.algorithms.occlusion import players
from edgewise.score import Score
from edgewise.text import counted
from edgewise.trust.flips import SignFlips
from edgewise.trust.gradient_vs_occlusion import Effects

AGREEMENT, FLIPS, SATURATION = 0.95, 0.05, 0.5
"""Gradients are relied on from this cosine to occlusion on, up to this share of flips, and up to this saturation."""
_STEPS = 5  # points between no edges and all edges
_NOISE = 1e-3  # of a target's largest gradient at a point; below it a sign counts for nothing


@dataclass(frozen=True)
class Reliance:
    """What was measured about gradients with one weight per edge, and what follows from it.

    >>> seen = Reliance(1, 20, agreement=0.98, flips_alone=0.0, flips_together=0.52, saturation=0.1)
    >>> seen.holds, seen.doubts
    (False, ('they change their signs when all edges are weakened together',))
    """

    targets: int
    edges: int
    """Edges that can reach a measured target, over all of them."""
    agreement: float
    """Mean cosine of gradients and occlusions; NaN where all of one are zero."""
    flips_alone: float
    """The share of the edges whose own gradient changes its sign while this edge alone is weakened; NaN if none has one."""
    flips_together: float
    """The share of the gradient, by size, on edges whose sign changes while all edges are weakened together."""
    saturation: float
    """How much smaller gradients are with all edges than on the way there: 0 not at all, 1 they vanish."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why gradients cannot be relied on; empty if they can."""
        if self.edges == 0:
            return ()
        weakened = (
            ("an edge is weakened alone", self.flips_alone),
            ("all edges are weakened together", self.flips_together),
        )
        turned = " and when ".join(how for how, share in weakened if share > FLIPS)
        found = (
            ("they differ from occlusions", not self.agreement >= AGREEMENT),
            (f"they change their signs when {turned}", bool(turned)),
            ("they are saturated", self.saturation > SATURATION),
        )
        return tuple(text for text, doubted in found if doubted)

    @property
    def holds(self) -> bool:
        """Whether gradients can be relied on."""
        return not self.doubts

    @property
    def measured(self) -> str:
        """The numbers, in words."""
        alone = "-" if self.flips_alone != self.flips_alone else f"{self.flips_alone:.0%} of the edges"
        return (
            f"cosine to occlusion {self.agreement:.2f}, flips alone {alone}, flips together {self.flips_together:.0%} of the "
            f"gradient, saturation {self.saturation:.2f}, on {counted(self.targets, 'target')}"
        )

    @property
    def sentence(self) -> str:
        """The decision with its reasons, without a full stop."""
        if self.edges == 0:
            return "no edge can reach these targets" if self.targets != 1 else "no edge can reach this target"
        if self.holds:
            return f"gradients can be relied on here ({self.measured})"
        return f"gradients cannot be relied on here: {' and '.join(self.doubts)} ({self.measured})"


def reliance_of(effects: Effects, flips: SignFlips, paths: Tensor, positions: Sequence[int] | None = None) -> Reliance:
    """The reliance on some targets, or on all of them together.

    `effects` and `flips` are those of the input level, `paths` `[4, T]` are of `path_of`.
    """
    some = torch.arange(paths.size(1)) if positions is None else torch.tensor(positions, dtype=torch.long)
    edges, opposed, size, before = (float(part) for part in paths[:, some].sum(dim=1))
    mine = torch.isin(flips.owner, some)
    number = int((flips.counted & mine).sum())
    return Reliance(
        targets=len(some),
        edges=int(edges),
        agreement=float(effects.cosine()[some, 0].nanmean()),
        flips_alone=int((flips.flipped & mine).sum()) / number if number else float("nan"),
        flips_together=opposed / size if size > 0 else 0.0,
        saturation=max(0.0, 1 - size / before) if before > 0 else 0.0,
    )


def path_of(score: Score, gradient: Tensor) -> Tensor:
    """`[4, T]`: gradients `[M]` at ω = 1 against those at some ω = (t, …, t) below it.

    For each target the number of edges that can reach it, Σ |gradient| on edges whose sign changes, Σ |gradient|, and
    Σ |gradient| on the way, on average.

    z = (2ω₀ − 1)² has gradient 4 at ω = 1 and a negative one below ½: its flips together are 100%.
    """
    inside = players(score, "input")[0]
    gradient = torch.where(inside, gradient, 0.0)
    nodes, shares = np.polynomial.legendre.leggauss(_STEPS)
    before, flipped = torch.zeros_like(gradient), torch.zeros_like(gradient, dtype=torch.bool)
    for node, share in zip((nodes + 1) / 2, shares / 2, strict=True):
        edge = torch.where(inside, weight_gradients(score, score.ones() * float(node), None)[0].sum(dim=0), 0.0)
        before += edge.abs() * float(share)
        flipped |= (edge * gradient < 0) & (edge.abs() > _NOISE * _largest(edge.abs(), score)[score.owner])
    size = gradient.abs()
    parts = torch.stack([inside.to(size.dtype), torch.where(flipped, size, 0.0), size, before]).double()
    return parts.new_zeros(4, score.num_targets).index_add_(1, score.owner, parts).cpu()


def _largest(values: Tensor, score: Score) -> Tensor:
    """`[T]`: the largest of the values `[M]` of a target's copies."""
    return values.new_zeros(score.num_targets).scatter_reduce_(0, score.owner, values, "amax")
