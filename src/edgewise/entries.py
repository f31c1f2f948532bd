"""Sparse rows, one for each target: how an `ExplanationSet` stores what is not zero."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Part:
    """Entries in any order: the row (target), the place in it, and the score."""

    row: Tensor
    place: Tensor
    score: Tensor


class Entries:
    """Rows of (place, score); `place` is the layer times the width, plus the column. Ordered by row when first looked at."""

    def __init__(self, parts: list[Part], num_rows: int) -> None:
        self._parts, self.num_rows = parts, num_rows

    @staticmethod
    def of_rows(start: Tensor, place: Tensor, score: Tensor) -> "Entries":
        """Already in order: those of row t are `start[t]:start[t + 1]`."""
        entries = Entries([], len(start) - 1)
        entries.__dict__["_ordered"] = (start, place, score)
        return entries

    @cached_property
    def _ordered(self) -> tuple[Tensor, Tensor, Tensor]:
        row = torch.cat([part.row for part in self._parts])
        order = row.argsort(stable=True)
        start = torch.zeros(self.num_rows + 1, dtype=torch.long)
        start[1:] = torch.bincount(row, minlength=self.num_rows).cumsum(0)
        place = torch.cat([part.place for part in self._parts]).index_select(0, order)
        score = torch.cat([part.score for part in self._parts]).index_select(0, order)
        self._parts = []
        return start, place, score

    @property
    def start(self) -> Tensor:
        """Where each row begins, and the end of the last."""
        return self._ordered[0]

    @property
    def place(self) -> Tensor:
        """The places, row after row."""
        return self._ordered[1]

    @property
    def score(self) -> Tensor:
        """The scores, row after row."""
        return self._ordered[2]

    def __len__(self) -> int:
        return sum(len(part.score) for part in self._parts) if self._parts else len(self.score)

    def rows(self) -> Tensor:
        """The row of each entry."""
        return torch.repeat_interleave(torch.arange(self.num_rows), self.start.diff())

    def dense(self, row: int, size: int) -> Tensor:
        """One row in full."""
        full = self.score.new_zeros(size)
        span = slice(int(self.start[row]), int(self.start[row + 1]))
        full[self.place[span]] = self.score[span]
        return full

    @cached_property
    def _by_key(self) -> tuple[Tensor, Tensor, int]:
        stride = int(self.place.max()) + 1 if len(self.place) else 1
        key, order = (self.rows() * stride + self.place).sort()
        return key, self.score[order], stride

    def at(self, row: Tensor, place: Tensor) -> Tensor:
        """The scores of pairs (row, place); 0 where nothing is stored.

        >>> entries = Entries([Part(torch.tensor([1, 0]), torch.tensor([4, 2]), torch.tensor([0.5, -1.0]))], num_rows=2)
        >>> entries.at(torch.tensor([0, 0, 1]), torch.tensor([2, 4, 4]))
        tensor([-1.0000,  0.0000,  0.5000])
        """
        key, score, stride = self._by_key
        if len(key) == 0:
            return score.new_zeros(row.shape)
        asked = row * stride + place
        found = torch.searchsorted(key, asked).clamp(max=len(key) - 1)
        return torch.where((key[found] == asked) & (place < stride), score[found], 0.0)

    def select(self, rows: Tensor) -> "Entries":
        """Some of the rows, in the given order."""
        count = self.start.diff()[rows]
        new = torch.repeat_interleave(torch.arange(len(rows)), count)
        begin = torch.cat([count.new_zeros(1), count.cumsum(0)])
        source = torch.arange(len(new)) + (self.start[rows] - begin[:-1])[new]
        return Entries.of_rows(begin, self.place[source], self.score[source])


def strongest(row: Tensor, strength: Tensor, k: int | Tensor) -> Tensor:
    """Positions of the k largest of each row, equals in their order; `k` is one number, or one for each row.

    >>> strongest(torch.tensor([0, 0, 0, 1]), torch.tensor([1.0, 3.0, 3.0, 2.0]), k=2).tolist()
    [1, 2, 3]
    """
    order = strength.argsort(descending=True, stable=True)
    order = order[row[order].argsort(stable=True)]
    start = torch.searchsorted(row[order], row[order])
    rank = torch.arange(len(order), device=row.device) - start
    return order[rank < (k[row[order]] if isinstance(k, Tensor) else k)]
