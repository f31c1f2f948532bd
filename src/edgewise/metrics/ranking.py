"""How well scores rank true edges before others, for many targets at once; equal scores are treated as equal."""

from functools import cached_property

import torch
from torch import Tensor

from edgewise.metrics.measured import Conditions


class Ranking:
    """Entries (target, score, whether it is true), in groups of equal scores, best first."""

    def __init__(self, row: Tensor, score: Tensor, truth: Tensor, num_rows: int) -> None:
        order = score.argsort(descending=True, stable=True)
        order = order[row[order].argsort(stable=True)]
        row, score, self._truth, self.num_rows = row[order], score[order], truth[order], num_rows
        changed = torch.ones(len(row), dtype=torch.bool)
        changed[1:] = (row[1:] != row[:-1]) | (score[1:] != score[:-1])
        self._group = changed.cumsum(0) - 1
        self._row = row[changed]
        """`[groups]`: the target of each."""

    def _per_group(self, values: Tensor) -> Tensor:
        return torch.zeros(len(self._row), dtype=torch.double).index_add_(0, self._group, values.double())

    def _per_row(self, values: Tensor) -> Tensor:
        return torch.zeros(self.num_rows, dtype=torch.double).index_add_(0, self._row, values)

    def _before(self, per_group: Tensor) -> Tensor:
        """`[groups]`: the sum over the groups of the same target that rank higher."""
        until = per_group.cumsum(0) - per_group
        whole = self._per_row(per_group)
        return until - (whole.cumsum(0) - whole)[self._row]

    @cached_property
    def _size(self) -> Tensor:
        return self._per_group(torch.ones_like(self._group))

    @cached_property
    def _true(self) -> Tensor:
        return self._per_group(self._truth)

    @cached_property
    def edges(self) -> Tensor:
        """`[targets]`: how many."""
        return self._per_row(self._size)

    @cached_property
    def true_edges(self) -> Tensor:
        """`[targets]`: how many of them are true."""
        return self._per_row(self._true)

    def undefined(self, k: Tensor | None = None) -> Conditions:
        """Conditions under which a ranking says nothing, with the reason."""
        groups = self._per_row(torch.ones_like(self._size))
        found = [
            (self.true_edges == 0, "no edge that can matter is true"),
            (self.true_edges == self.edges, "every edge that can matter is true"),
            (groups < 2, "all scores are equal"),
        ]
        return found if k is None else [*found, (self.edges < k, "fewer than k edges can matter")]

    def auroc(self) -> Tensor:
        """The chance that a true edge ranks higher than another; equals count half."""
        higher = (self._size - self._true) * (self._before(self._true) + self._true / 2)
        return self._per_row(higher) / (self.true_edges * (self.edges - self.true_edges))

    def average_precision(self) -> Tensor:
        """Precision at every group, weighted by its share of the true edges."""
        precision = (self._before(self._true) + self._true) / (self._before(self._size) + self._size)
        return self._per_row(precision * self._true) / self.true_edges

    def precision(self, k: Tensor) -> Tensor:
        """Among the first k `[targets]`; of a group that is cut, the expected share."""
        taken = (k[self._row] - self._before(self._size)).clamp(min=0).minimum(self._size)
        return self._per_row(self._true * taken / self._size) / k
