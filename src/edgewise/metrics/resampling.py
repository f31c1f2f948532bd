"""Bootstrap: how far a mean over targets and seeds may move if other ones had been drawn."""

import torch
from torch import Tensor

from edgewise import randomness

_DRAWS_AT_ONCE = 2**22  # (draws × targets)


def intervals(values: Tensor, resamples: int, confidence: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Percentile intervals of means: `[cells]` each, from values `[cells, runs, targets]` in which NaN is left out.

    Targets and runs (seeds, or pairs of seeds) are drawn again with replacement, independently of each other, and the same
    draws serve every cell. NaN where a cell has fewer than two numbers: one says nothing about the next.

    >>> low, high = intervals(torch.tensor([[[1.0, 2.0, 3.0, 4.0]], [[2.0, 2.0, 2.0, torch.nan]]]), 500, 0.95)
    >>> bool(low[0] < 2.5 < high[0]), (low[1], high[1]) == (2.0, 2.0)
    (True, True)
    """
    known = ~values.isnan()
    filled, counted = torch.where(known, values, 0.0).double(), known.double()
    means = []
    for draws in torch.arange(resamples).split(max(_DRAWS_AT_ONCE // max(values.size(2), 1), 1)):
        targets, runs = (_counts(values.size(axis), draws, seed, axis) for axis in (2, 1))
        sums, sizes = (torch.einsum("crd,rd->cd", part @ targets, runs) for part in (filled, counted))
        means.append(sums / torch.where(sizes > 0, sizes, torch.nan))
    found = torch.cat(means, dim=1)
    ends = torch.tensor([(1 - confidence) / 2, (1 + confidence) / 2], dtype=torch.double)
    low, high = found.nanquantile(ends, dim=1)
    alone = known.sum(dim=(1, 2)) < 2
    return low.masked_fill(alone, torch.nan), high.masked_fill(alone, torch.nan)


def _counts(size: int, draws: Tensor, seed: int, axis: int) -> Tensor:
    """`[size, draws]`: how often each of `size` things comes up in as many draws with replacement."""
    drawn = randomness.uniform(seed, torch.tensor(axis), draws.view(-1, 1), torch.arange(size))
    column = torch.arange(len(draws)).view(-1, 1).expand_as(drawn)
    counts = torch.zeros(size, len(draws), dtype=torch.double)
    place = ((drawn * size).long(), column)
    return counts.index_put_(place, torch.ones((), dtype=torch.double), accumulate=True)
