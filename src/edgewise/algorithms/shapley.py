"""Edge Shapley values by sampled permutations (Castro et al., 2009): what an edge adds when edges come in random order.

All targets play their own games at once: G is 1 at input level and L at layer level, and `[G, M]` are the players, the edge
copies (in a layer) that can change their target at all.

What an edge adds is often next to nothing and now and then much, so the spread of twenty orders tells too little about the
rest. How much too little, the two halves of the orders say: if the mean of one half is further from that of the other than
Student's t allows, for more than a twentieth of the target's edges, the standard errors of the target grow by as much
(`_tails`; docs/trust.md has the shares of intervals that held).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from edgewise import random_numbers
from edgewise.algorithms.occlusion import Repeated, players
from edgewise.arrays import occurrence
from edgewise.score import CopyScores, Score
from edgewise.student_intervals import student_quantile

_ROUNDINGS = 4.0
"""Units in the last place of the largest number in a game by which samples differ although nothing differs."""
_NUMBERS = 2**20
"""Values of coalitions, and players in their orders, that are held at once."""
_MANY = 40
"""Differences between halves, two for each player, from which on their twentieth largest says something."""


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
    values, fits = _evaluation(score, samples, steps)
    at_once = max(1, fits // max(steps - 1, 1))
    zero = torch.zeros_like(inside, dtype=score.target.truth.dtype)
    halves = (_Moments(zero), _Moments(zero))  # of every other order
    largest = score.target.truth.new_zeros(score.num_targets)
    for sample in torch.arange(samples, device=inside.device).split(at_once) if steps else ():
        rank = orders.of(sample)
        value = values(inside, rank, steps)
        turn = torch.arange(len(sample), device=rank.device).view(-1, 1, 1)
        after, before = (value[turn, (rank + more).clamp(max=steps), score.owner] for more in (1, 0))
        added = torch.where(inside, after - before, 0.0)
        largest = torch.maximum(largest, value.abs().amax(dim=(0, 1)))
        for parity, half in enumerate(halves):
            half.add(added[sample % 2 == parity])
    every, rounding = halves[0].with_(halves[1]), (_ROUNDINGS * torch.finfo(largest.dtype).eps * largest)[score.owner]
    error = every.standard_error(rounding) * _tails(halves, score, rounding)[score.owner]
    error = torch.where(inside, error, 0.0)
    return CopyScores(*((every.mean, None, error) if level == "layer" else (every.mean[0], None, error[0])))


def _tails(halves: "tuple[_Moments, _Moments]", score: Score, rounding: Tensor) -> Tensor:
    """`[targets]`, at least 1: by how much Student's t makes the intervals of a target too narrow.

    The difference of two half means in units of a half's own standard error, over √2, is Student's t for a normal spread.
    With q the value that a twentieth of a target's differences exceeds and t Student's, intervals of half of the orders are too
    narrow by q / t. What skewness does falls with √samples, so for all orders q / t − 1 is divided by √2.
    """
    ones = score.target.truth.new_ones(score.num_targets)
    apart = (halves[0].mean - halves[1].mean).abs()
    ratios, owners = [], []
    for half in halves:
        if half.count < 4:
            return ones
        error = half.standard_error(rounding)
        known = error > 0
        ratios.append((apart / error)[known] / math.sqrt(2))
        owners.append(score.owner.expand_as(error)[known])
    ratio, owner = torch.cat(ratios), torch.cat(owners)
    by_size = ratio.argsort()
    by_owner = by_size[owner[by_size].argsort(stable=True)]  # within each target from the smallest on
    count = torch.bincount(owner, minlength=score.num_targets)
    many = count >= _MANY
    place = (count.cumsum(0) - count + (0.95 * (count - 1)).ceil().long())[many]
    excess = ratio[by_owner[place]] / student_quantile(0.975, halves[1].count - 1) - 1
    return ones.masked_scatter(many, 1 + excess.clamp(min=0) / math.sqrt(2))


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


def _evaluation(score: Score, samples: int, steps: int) -> tuple[Callable[[Tensor, Tensor, int], Tensor], int]:
    """How coalitions are evaluated (`_values`, or the same in compiled loops), and how many at once."""
    loops = score.growing(samples * steps * score.num_targets)
    if loops is not None:
        return loops.run, _NUMBERS // score.num_targets
    repeated = Repeated(score, samples * max(steps - 1, 1))
    return partial(_values, repeated), repeated.times


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

    def __init__(self, mean: Tensor, squares: Tensor | None = None, count: int = 0) -> None:
        self.mean, self.count = mean, count
        self.squares = torch.zeros_like(mean) if squares is None else squares
        """Σ (sample − mean)²."""

    def add(self, found: Tensor) -> None:
        """Add samples, `[samples, …]`."""
        if len(found):
            mean = found.mean(dim=0)
            both = self.with_(_Moments(mean, (found - mean).square().sum(dim=0), len(found)))
            self.mean, self.squares, self.count = both.mean, both.squares, both.count

    def with_(self, other: "_Moments") -> "_Moments":
        """The moments of both groups together."""
        total, step = max(self.count + other.count, 1), other.mean - self.mean
        squares = self.squares + other.squares + step.square() * (self.count * other.count / total)
        return _Moments(self.mean + step * (other.count / total), squares, total)

    def standard_error(self, rounding: Tensor) -> Tensor:
        """The standard error of the mean; NaN for a single sample, 0 where samples differ by no more than `rounding`."""
        if self.count < 2:
            return torch.full_like(self.mean, torch.nan)
        deviation = (self.squares / (self.count - 1)).sqrt()
        return torch.where(deviation > rounding, deviation, 0.0) / math.sqrt(self.count)
