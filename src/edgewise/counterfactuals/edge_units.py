"""What is taken away at once: a column of the graph, or with `undirected` all columns between the same two nodes."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class EdgeUnits:
    """Units of the columns that can matter to one target, numbered from 0 in the order of their first columns.

    >>> units = EdgeUnits.of(torch.tensor([4, 7, 9]), torch.tensor([[0, 1, 2], [1, 0, 1]]), undirected=True)
    >>> units.count, units.unit_of(torch.tensor([9, 7, 4])).tolist()                 # 4 and 7 are one edge, both ways
    (2, [1, 0, 0])
    >>> units.columns([0])
    ((4, 7),)
    """

    column: Tensor
    """`[n]`: columns, rising."""
    unit: Tensor
    """`[n]`: the unit of each."""
    count: int

    @staticmethod
    def of(columns: Tensor, ends: Tensor, *, undirected: bool) -> "EdgeUnits":
        """Units of some columns `[n]`, each once; `ends` `[2, n]` are their nodes."""
        column, order = columns.cpu().sort()
        if not undirected or len(column) == 0:
            return EdgeUnits(column, torch.arange(len(column)), len(column))
        low, high = ends.cpu()[:, order].sort(dim=0).values
        _, unit = torch.stack([low, high]).unique(dim=1, return_inverse=True)
        first = torch.full((int(unit.max()) + 1 if len(unit) else 0,), len(unit), dtype=torch.long)
        first = first.scatter_reduce(0, unit, torch.arange(len(unit)), "amin")
        rank = first.argsort().argsort()
        return EdgeUnits(column, rank[unit], len(first))

    def unit_of(self, columns: Tensor) -> Tensor:
        """The units of some of the columns."""
        return self.unit[torch.searchsorted(self.column, columns.cpu())]

    def columns(self, units: list[int]) -> tuple[tuple[int, ...], ...]:
        """The columns of some units."""
        return tuple(tuple(self.column[self.unit == one].tolist()) for one in units)
