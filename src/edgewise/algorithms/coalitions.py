"""Values of many coalitions of edges of one target: equal ones are run once, different ones share rows or go side by side."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from edgewise.algorithms.occlusion import Repeated
from edgewise.program.kernels import arrays, kernels_for
from edgewise.score import Score

if TYPE_CHECKING:
    from edgewise.program.shared_rows import SharedRows

_CACHE = 2**24  # bytes of a pass that stays in the processor's cache


class CoalitionValues:
    """The explained number of a score's only target as a function of sets of its edges; ω = 0 outside a set.

    >>> from edgewise.examples import path_score
    >>> coalitions = CoalitionValues(path_score(gains=[2.0, 3.0]))                   # z = 6·ω₀·ω₁
    >>> coalitions.values(torch.tensor([[True, True], [True, False], [True, True]]))
    tensor([6., 0., 6.], dtype=torch.float64)
    >>> coalitions.asked, coalitions.run
    (3, 2)
    """

    def __init__(self, score: Score, expected: int = 0) -> None:
        self.score, self._expected = score, expected  # about how many coalitions will be asked for
        self.asked = 0
        """Coalitions whose value was asked for."""
        self.run = 0
        """Different ones, which were run."""
        self._shared: SharedRows | None = None
        self._repeated: Repeated | None = None

    @torch.no_grad()
    def values(self, on: Tensor) -> Tensor:
        """`[coalitions]`, float64: the explained numbers under sets of edge copies, `[coalitions, M]` bool."""
        score = self.score
        different, place = distinct(on)
        self.asked, self.run = self.asked + len(on), self.run + len(different)
        if self._shared is None and self._repeated is None:
            self._shared = score.shared_rows(max(self._expected, len(different)) * on.size(1))
        if self._shared is not None:
            return self._shared.values(different).double()[place]
        wanted = min(len(different), max(1, _CACHE // max(score.pass_bytes, 1)))
        if self._repeated is None or self._repeated.times < wanted:
            self._repeated = Repeated(score, wanted)
        repeated, found = self._repeated, []
        for part in different.split(repeated.times):
            weight = part.to(score.target.truth.dtype).unsqueeze(1).expand(-1, score.num_layers, -1)
            found.append(repeated.rows(repeated.score(repeated.weights(weight)), len(part)).view(-1))
        return torch.cat(found).double()[place]


_BITS = 62  # of a whole number


def distinct(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of bools, each once, and `[rows]`: which of them each row is; as whole numbers they are quick to compare.

    >>> distinct(torch.tensor([[True, False], [True, True], [True, False]]))
    (tensor([[ True, False],
            [ True,  True]]), tensor([0, 1, 0]))
    """
    kernels = kernels_for(rows.numel(), torch.empty(0, device=rows.device))
    if kernels is not None:
        place, one = torch.empty(2, len(rows), dtype=torch.long)
        table = torch.full((2 ** (2 * len(rows)).bit_length(),), -1)
        count = kernels.equal_rows(*arrays(rows.contiguous(), table, place, one))
        return rows[one[:count]], place
    place = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
    for part in rows.split(_BITS, dim=1):
        word, number = (
            (part.long() << torch.arange(part.size(1), device=rows.device)).sum(dim=1).unique(return_inverse=True)
        )
        key, place = (place * len(word) + number).unique(return_inverse=True)
    key = key if rows.size(1) else place[:1]
    one_of_them = torch.zeros(len(key), dtype=torch.long, device=rows.device)
    one_of_them[place] = torch.arange(len(rows), device=rows.device)
    return rows[one_of_them], place


def subsets(size: int, device: torch.device) -> Tensor:
    """`[2^size, size]`: every subset."""
    numbers = torch.arange(2**size, device=device).view(-1, 1)
    return (numbers >> torch.arange(size, device=device)) & 1 == 1
