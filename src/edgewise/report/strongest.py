"""The edges of an explanation that deserve ink, and a sentence about the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Strongest:
    """The edges of largest magnitude, weakest first so that the strongest are drawn on top."""

    scores: list[float]
    edges: list[tuple[int, int]]
    num_nonzero: int
    share: float
    """Of the total magnitude."""

    @property
    def nodes(self) -> set[int]:
        """The ends of the edges."""
        return {node for edge in self.edges for node in edge}

    @property
    def largest(self) -> float:
        """The largest magnitude; 1 where there is none, so that it can be divided by."""
        return max((abs(score) for score in self.scores), default=1.0)

    def joins(self, one: int, other: int) -> bool:
        """Whether an edge runs between two nodes, in either direction."""
        return (one, other) in self.edges or (other, one) in self.edges

    def sentence(self) -> str:
        """How much of the explanation these edges are."""
        if not self.edges:
            return "Every edge has score zero: nothing to draw."
        hidden = self.num_nonzero - len(self.edges)
        if hidden == 0:
            return f"All {self.num_nonzero} edges with a score other than zero."
        return (
            f"The {len(self.edges)} strongest of {self.num_nonzero} edges with a score other than zero, "
            f"{self.share:.0%} of the total magnitude; {hidden} are not drawn."
        )


def strongest_edges(scores: Tensor, edge_index: Tensor, count: int) -> Strongest:
    """Pick the `count` edges of largest magnitude, never one of score zero.

    >>> import torch
    >>> picked = strongest_edges(torch.tensor([1.0, -3.0, 0.0]), torch.tensor([[0, 1, 2], [1, 2, 0]]), count=1)
    >>> picked.edges, picked.sentence()
    ([(1, 2)], 'The 1 strongest of 2 edges with a score other than zero, 75% of the total magnitude; 1 are not drawn.')
    """
    magnitude = scores.abs()
    num_nonzero = int(magnitude.count_nonzero())
    columns = magnitude.argsort(descending=True, stable=True)[: min(count, num_nonzero)].flip(0)
    edges = [(source, receiver) for source, receiver in edge_index[:, columns].t().tolist()]
    share = float(magnitude[columns].sum() / magnitude.sum()) if edges else 0.0
    return Strongest(scores[columns].tolist(), edges, num_nonzero, share)
