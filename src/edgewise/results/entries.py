"""Entries: the scores of many targets, row by row, without their zeros. What an `ExplanationSet` stores."""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from edgewise.arrays import group_order, rank_in_group


@dataclass(frozen=True, eq=False)
class Part:
    """Entries `[n]` in any order: the row (target), the place in it, and the score."""

    row: Tensor
    place: Tensor
    score: Tensor


Block: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""Rows in order: where each begins and the end of the last `[rows + 1]`, places and scores `[n]`."""


def _zeros(size: int, like: Tensor) -> Tensor:
    """`[size]` zeros; those that are never touched cost neither time nor memory, as numpy asks for them."""
    if like.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(np.zeros(size, dtype=np.float32 if like.dtype == torch.float32 else np.float64))
    return like.new_zeros(size)


class Entries:
    """Rows of (place, score), one row for each target, ordered by row when first looked at.

    `place` is layer · width + column, where the width is the number of edges (or nodes) of the target's graph: with 3 edges,
    column 1 of layer 1 has place 4. Two targets with the entries (place 2, −1) and (place 4, 0.5) are stored as
    start = (0, 1, 2), place = (2, 4), score = (−1, 0.5), as in a CSR matrix. Places have 32 or 64 bits.
    """

    def __init__(self, parts: list[Part], num_rows: int) -> None:
        self._parts, self.num_rows = parts, num_rows
        self._blocks: list[Block] = []

    @staticmethod
    def of_rows(start: Tensor, place: Tensor, score: Tensor) -> "Entries":
        """Entries that are in order already: those of row t are `start[t]:start[t + 1]`."""
        entries = Entries([], len(start) - 1)
        entries.__dict__["_ordered"] = (start, place, score)
        return entries

    @staticmethod
    def of_blocks(blocks: "list[Block]") -> "Entries":
        """Entries that are in order already, in blocks of rows, which are joined when first looked at."""
        if len(blocks) == 1:
            return Entries.of_rows(*blocks[0])
        entries = Entries([], sum(len(begin) - 1 for begin, _, _ in blocks))
        entries._blocks = blocks
        return entries

    @cached_property
    def _ordered(self) -> tuple[Tensor, Tensor, Tensor]:
        """`start` `[rows + 1]`, `place` and `score` `[entries]`; the parts are freed."""
        if self._blocks:
            count = torch.cat([begin.diff() for begin, _, _ in self._blocks])
            place, score = (torch.cat([block[part] for block in self._blocks]) for part in (1, 2))
            self._blocks = []
            return torch.cat([count.new_zeros(1), count.cumsum(0)]), place, score
        if self.num_rows == 1:
            place, score = (torch.cat([getattr(p, name) for p in self._parts]) for name in ("place", "score"))
            self._parts = []
            return torch.tensor([0, len(place)]), place, score
        row = torch.cat([part.row for part in self._parts])
        order = group_order(row, self.num_rows)
        start = torch.zeros(self.num_rows + 1, dtype=torch.long)
        start[1:] = torch.bincount(row, minlength=self.num_rows).cumsum(0)
        place = torch.cat([part.place for part in self._parts]).index_select(0, order)
        score = torch.cat([part.score for part in self._parts]).index_select(0, order)
        self._parts = []
        return start, place, score

    def in_order(self) -> "Entries":
        """The same entries, those of each row by their places, in 64 bits: what files hold, however the entries were found.

        >>> Entries.of_rows(torch.tensor([0, 2]), torch.tensor([4, 2]), torch.tensor([0.5, -1.0])).in_order().place
        tensor([2, 4])
        """
        start, place, score = self._ordered
        order = torch.from_numpy(np.lexsort([place.numpy(), self.rows().numpy()]))
        return Entries.of_rows(start, place[order].long(), score[order])

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
        parts = [part.score for part in self._parts] or [score for _, _, score in self._blocks]
        return sum(map(len, parts)) if parts else len(self.score)

    def rows(self) -> Tensor:
        """`[entries]`: the row of each entry."""
        return torch.repeat_interleave(torch.arange(self.num_rows), self.start.diff())

    def dense(self, row: int, size: int) -> Tensor:
        """`[size]`: one row with its zeros."""
        full = _zeros(size, self.score)
        begin, end = self.start[row : row + 2].tolist()
        full[self.place[begin:end]] = self.score[begin:end]
        return full

    @cached_property
    def _by_key(self) -> tuple[Tensor, Tensor, int]:
        """Entries sorted by the key row · stride + place, for a binary search: keys, scores, stride."""
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
        """Some of the rows, in the given order; a row may be asked for twice."""
        count = self.start.diff()[rows]
        new = torch.repeat_interleave(torch.arange(len(rows)), count)  # [entries]: the new row of each
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
    return order[rank_in_group(row[order]) < (k[row[order]] if isinstance(k, Tensor) else k)]
