"""Edge Shapley values by sampled permutations (Castro et al., 2009): what an edge adds when edges come in random order.

All targets play their own games at once: G is 1 at input level and L at layer level, and `[G, M]` are the players, the edge
copies (in a layer) that can change their target at all.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise import random_numbers
from edgewise.algorithms.occlusion import Repeated, players
from edgewise.arrays import occurrence
from edgewise.score import CopyScores, Score


@torch.no_grad()
def shapley(score: Score, level: str, *, samples: int, seed: int) -> CopyScores:
    """The mean over random orders of z(edges up to e) − z(edges before e); ω = 0 for edges that have not come yet.

    Self terms stay on, and no order is cut short, so the scores sum to z(all edges) − z(no edges) exactly. At layer level
    every (layer, edge) comes by itself. The orders of a target depend on the seed and the target alone.

    >>> from edgewise.examples import path_score
    >>> found = shapley(path_score(gains=[2.0, 3.0]), "input", samples=400, seed=0)
    >>> found.edge.sum()                                       # z = 6·ω₀·ω₁: whichever edge comes last adds 6
    tensor(6.)
    >>> bool((found.edge - 3).abs().max() < 4 * found.error.max())
    True
    """
    inside = players(score, level)
    orders = _Orders(score, inside, seed)
    steps = int(orders.count.max()) if orders.count.numel() else 0
    repeated = Repeated(score, samples * max(steps - 1, 1))
    at_once = max(1, repeated.times // max(steps - 1, 1))
    moments = _Moments(torch.zeros_like(inside, dtype=score.target.truth.dtype))
    for sample in torch.arange(samples, device=inside.device).split(at_once) if steps else ():
        rank = orders.of(sample)
        value = _values(repeated, inside, rank, steps)
        turn = torch.arange(len(sample), device=rank.device).view(-1, 1, 1)
        after, before = (value[turn, (rank + more).clamp(max=steps), score.owner] for more in (1, 0))
        moments.add(torch.where(inside, after - before, 0.0))
    error = torch.where(inside, moments.standard_error(), 0.0)
    return CopyScores(*((moments.mean, None, error) if level == "layer" else (moments.mean[0], None, error[0])))


@dataclass(frozen=True, eq=False)
class _Orders:
    """Random orders of the players of each target; `inside` `[G, M]` are the players."""

    score: Score
    inside: Tensor
    seed: int

    @property
    def count(self) -> Tensor:
        """`[targets]`: how many players each has."""
        weights = self.inside.sum(dim=0).double()
        return torch.bincount(self.score.owner, weights, minlength=self.score.num_targets).long()

    def of(self, sample: Tensor) -> Tensor:
        """`[samples, G, M]`: when each player comes, from 0; those who do not play come last.

        Every player draws a number, and the numbers are ranked within each game (a sample of a target).
        """
        score, groups = self.score, len(self.inside)
        target = score.key.to(sample.device)[score.owner]
        layer = torch.arange(groups, device=sample.device).view(-1, 1)
        ticket = random_numbers.uniform(self.seed, target, sample.view(-1, 1, 1), layer, score.edge_id)
        ticket = torch.where(self.inside, ticket, torch.inf).reshape(-1)
        # [samples, 1, M]
        game = (sample - sample[0]).view(-1, 1, 1) * score.num_targets + score.owner
        by_ticket = ticket.argsort()
        rank = torch.empty_like(by_ticket)
        rank[by_ticket] = occurrence(game.expand(-1, groups, -1).reshape(-1)[by_ticket])
        return rank.view(len(sample), groups, -1)


def _values(repeated: Repeated, inside: Tensor, rank: Tensor, steps: int) -> Tensor:
    """`[samples, steps + 1, targets]`: the explained numbers with the first 0, 1, … players on.

    The first and the last step are the same in every sample; those in between are run `repeated.times` at a time.
    """
    score = repeated.base
    groups, copies = inside.shape
    value = score.target.truth.new_empty(len(rank), steps + 1, score.num_targets)
    value[:, 0] = score(torch.where(inside, 0.0, score.ones()[:groups]).expand(score.num_layers, copies))
    value[:, steps] = score(score.ones())
    flat = torch.cartesian_prod(torch.arange(len(rank)), torch.arange(1, steps)).to(rank.device)
    for part in flat.split(repeated.times) if len(flat) else ():
        sample, step = part.unbind(1)
        on = (rank[sample] < step.view(-1, 1, 1)) | ~inside
        weight = on.to(value.dtype).expand(-1, score.num_layers, -1)
        value[sample, step] = repeated.rows(repeated.score(repeated.weights(weight)), len(part))
    return value


class _Moments:
    """Mean and spread of samples that come in groups (Chan et al., 1979)."""

    def __init__(self, zero: Tensor) -> None:
        self.mean, self._squares, self._count = zero, torch.zeros_like(zero), 0

    def add(self, found: Tensor) -> None:
        """Add samples, `[samples, …]`."""
        new, mean = len(found), found.mean(dim=0)
        total, step = self._count + new, mean - self.mean
        self._squares = self._squares + (found - mean).square().sum(dim=0) + step.square() * (self._count * new / total)
        self.mean, self._count = self.mean + step * (new / total), total

    def standard_error(self) -> Tensor:
        """The standard error of the mean; NaN for a single sample."""
        if self._count < 2:
            return torch.full_like(self.mean, torch.nan)
        return (self._squares / ((self._count - 1) * self._count)).sqrt()
