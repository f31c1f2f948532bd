"""Neighbourhoods that are too large: how large one may be, and a sample of it where that was asked for.

A sample keeps, of the edges into a node, those with the smallest random numbers: at most `sizes[0]` into the target itself,
`sizes[1]` into each of its neighbours, and so on; the last size holds for all further hops. An edge has its number by the
seed and its column alone, so a target has the same sample in every run.
"""

from dataclasses import dataclass

import numpy as np
import torch

from edgewise.arrays import rank_in_group
from edgewise.errors import ModelError
from edgewise.random_numbers import uniform


class LargeNeighbourhoodError(ModelError):
    """What a target can see is beyond the memory that it may take."""


@dataclass(frozen=True)
class Bounds:
    """What a cut may take, and how it is sampled: None is all of it."""

    most: int
    """Bytes of its nodes and edges."""
    sizes: tuple[int, ...] = ()
    """Edges that are kept into each node, by hop; empty: all."""
    seed: int = 0

    def check(self, taken: int) -> None:
        """Refuse a cut that is larger."""
        if not self.sizes and taken > self.most:
            raise LargeNeighbourhoodError(
                f"The neighbourhood takes more than {self.most // 2**10} KB. Use a larger memory=, or neighbors=[25, 10] to "
                f"explain a sample of such neighbourhoods."
            )

    def kept(self, hop: int, receiver: np.ndarray, column: np.ndarray) -> np.ndarray | None:
        """`[kept]`: which of the edges of a hop are in the sample; None: all of them.

        >>> kept = Bounds(0, sizes=(2,)).kept(0, np.array([7, 7, 5, 7]), np.array([0, 1, 2, 3]))
        >>> len(kept), 2 in kept                                       # two of the three edges into node 7
        (3, True)
        """
        if not self.sizes:
            return None
        size = self.sizes[min(hop, len(self.sizes) - 1)]
        number = uniform(self.seed, torch.from_numpy(column)).numpy()
        order = np.lexsort([number, receiver])
        rank = rank_in_group(torch.from_numpy(receiver[order])).numpy()
        return None if len(rank) == 0 or int(rank.max()) < size else np.sort(order[rank < size])
