"""The edges, or steps of the unrolled computation graph, that deserve ink, and a sentence about the rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from edgewise.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor

    from edgewise.explanation import Explanation


@dataclass(frozen=True)
class Step:
    """One line of a picture: a message along an edge, or a node that hears itself."""

    score: float
    source: int
    receiver: int
    column: int | None = None
    """Of `edge_index`; `None` for a node that hears itself."""
    layer: int | None = None
    """`None` where all layers share the edge, or are summed."""


@dataclass(frozen=True)
class Strongest:
    """The steps of largest magnitude, weakest first so that the strongest are drawn on top."""

    steps: tuple[Step, ...]
    num_nonzero: int
    share: float
    """Of the total magnitude."""
    noun: str = "edges"
    not_finite: int = 0
    """Scores that are NaN or infinite: they have no width."""

    @property
    def nodes(self) -> set[int]:
        """The ends of the steps."""
        return {node for step in self.steps for node in (step.source, step.receiver)}

    @property
    def largest(self) -> float:
        """The largest magnitude; 1 where there is none, so that it can be divided by."""
        return max((abs(step.score) for step in self.steps), default=1.0)

    @property
    def crowding(self) -> float:
        """1, or less where many steps end at one node and have to be thinner."""
        ends = Counter((step.layer, step.receiver) for step in self.steps)
        return min(1.0, (14 / max(ends.values(), default=1)) ** 0.5)

    @property
    def hidden(self) -> int:
        """How many are not drawn."""
        return self.num_nonzero - len(self.steps)

    def sentence(self) -> str:
        """How much of the explanation these steps are."""
        if self.num_nonzero == 0:
            return self._unknown(f"No {self.noun} with a score other than zero.")
        if self.num_nonzero == len(self.steps) == 1:
            return self._unknown(f"The only one of the {self.noun} with a score other than zero.")
        if self.hidden == 0:
            return self._unknown(f"All {self.num_nonzero} {self.noun} with a score other than zero.")
        return self._unknown(
            f"The {len(self.steps)} strongest of {self.num_nonzero} {self.noun} with a score other than zero, "
            f"{self.share:.0%} of the total magnitude; {self.hidden} not drawn."
        )

    def _unknown(self, sentence: str) -> str:
        return f"{sentence} {self.not_finite} scores are NaN or infinite." if self.not_finite else sentence


def strongest_edges(why: Explanation, count: int) -> Strongest:
    """The `count` edges of largest magnitude, at layer level of the sum over layers; never one of score zero.

    >>> import torch
    >>> from edgewise import Explanation
    >>> why = Explanation(torch.tensor([1.0, -3.0, 0.0]), torch.tensor([[0, 1, 2], [1, 2, 0]]), 3, 2, 0, 1.0)
    >>> strongest_edges(why, 1).sentence()
    'The 1 strongest of 2 edges with a score other than zero, 75% of the total magnitude; 1 not drawn.'
    """
    return _strongest(why.edge_scores().view(1, -1), None, why.edge_index, count, "edges")


def strongest_steps(why: Explanation, count: int) -> Strongest:
    """The `count` strongest layers and edges of a layerwise explanation, self scores among them as steps that stay."""
    return _strongest(why.scores, why.self_scores, why.edge_index, count, "steps")


def _strongest(scores: Tensor, own: Tensor | None, edge_index: Tensor, count: Any, noun: str) -> Strongest:
    count = read_count("edges", count)
    rows = scores.detach().cpu().double()
    size = rows.size(1)
    if own is not None:
        rows = torch.cat([rows, own.detach().cpu().double()], dim=1)
    finite = rows.isfinite()
    magnitude = torch.where(finite, rows, 0.0).abs().reshape(-1)
    num_nonzero = int(magnitude.count_nonzero())
    places = magnitude.argsort(descending=True, stable=True)[: min(count, num_nonzero)].flip(0)
    layered = own is not None or len(rows) > 1 or noun == "steps"
    ends, values = edge_index.cpu(), rows.reshape(-1)[places].tolist()
    steps = []
    for place, score in zip(places.tolist(), values, strict=True):
        layer, at = divmod(place, rows.size(1))
        source, receiver = ends[:, at].tolist() if at < size else (at - size, at - size)
        steps.append(Step(score, source, receiver, at if at < size else None, layer if layered else None))
    total = float(magnitude.sum())
    share = float(magnitude[places].sum()) / total if total > 0 else 0.0
    return Strongest(tuple(steps), num_nonzero, share, noun, int((~finite).sum()))


def read_count(name: str, count: Any) -> int:
    """A whole number from 0 on."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise SettingError(f"{name} is {count!r}; needed is a whole number from 0 on, such as {name}=40.")
    return count
