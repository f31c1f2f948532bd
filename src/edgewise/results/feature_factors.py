"""FeatureFactors: the feature gradients of many targets as a product of two small matrices, multiplied when looked at.

Dense, the gradient of one target has a number for every feature of every node that can reach it: 36 nodes of Cora with 1433
features each. But what a first layer with the matrix B sends back is a short vector for each node times B, so the vectors
(`left`) and one B for all targets (`right`) say the same.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.results.entries import Entries


@dataclass(frozen=True, eq=False)
class FeatureFactors:
    """Rows (target, node) of feature scores: those of target t are `start[t]:start[t + 1]`, and each is `left` times `right`.

    >>> left, right = torch.tensor([[2.0]]), torch.tensor([[1.0, 0.0, -3.0]])
    >>> factors = FeatureFactors(torch.tensor([0, 1]), torch.tensor([2]), left, right)
    >>> factors.row(0)                                          # node 2 has three features: places 6, 7 and 8; 7 is zero
    (tensor([6, 8]), tensor([ 2., -6.]))
    """

    start: Tensor
    """`[T + 1]`: where the rows of each target begin, and the end of the last."""
    node: Tensor
    """`[P]`: the node of each row."""
    left: Tensor
    """`[P, H]`, or `[P, F]` if there is nothing to multiply."""
    right: Tensor | None = None
    """`[H, F]`; None: the left factor is the scores."""

    def __len__(self) -> int:
        return len(self.node) * (self.left.size(1) if self.right is None else self.right.size(1))

    def row(self, row: int) -> tuple[Tensor, Tensor]:
        """The places (node · F + feature) and scores of one target, without zeros."""
        begin, end = self.start[row : row + 2].tolist()
        rows = self.left[begin:end] if self.right is None else self.left[begin:end] @ self.right  # [nodes, F]
        place = self.node[begin:end].view(-1, 1) * rows.size(1) + torch.arange(rows.size(1))
        kept = rows.reshape(-1).nonzero().view(-1)
        return place.reshape(-1)[kept], rows.reshape(-1)[kept]

    def select(self, rows: Tensor) -> "FeatureFactors":
        """Some of the targets, in the given order."""
        count = self.start.diff()[rows]
        new = torch.repeat_interleave(torch.arange(len(rows)), count)
        begin = torch.cat([count.new_zeros(1), count.cumsum(0)])
        source = torch.arange(len(new)) + (self.start[rows] - begin[:-1])[new]
        return FeatureFactors(begin, self.node[source], self.left[source], self.right)


FeatureRows = Entries | FeatureFactors
"""How the scores of many targets are stored: entry by entry, or as factors."""


def stored_row(rows: FeatureRows, row: int) -> tuple[Tensor, Tensor]:
    """The places and scores of one target."""
    if isinstance(rows, FeatureFactors):
        return rows.row(row)
    begin, end = rows.start[row : row + 2].tolist()
    return rows.place[begin:end], rows.score[begin:end]


def joined_rows(parts: list[FeatureRows]) -> FeatureRows:
    """The rows of several blocks, one after the other; all of one kind, and factors with one right side."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, FeatureFactors):
        counts = torch.cat([part.start.diff() for part in parts])
        start = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        factors = [part for part in parts if isinstance(part, FeatureFactors)]
        node, left = (torch.cat([getattr(part, name) for part in factors]) for name in ("node", "left"))
        return FeatureFactors(start, node, left, first.right)
    return Entries.of_blocks([(part.start, part.place, part.score) for part in parts if isinstance(part, Entries)])
