"""Which targets of a job to look at first, and why: those whose explanation, or whose prediction, is least to be relied on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgewise.jobs.summary.job_facts import TargetFacts

NOTICED = 0.5
"""A doubt, 0 to 1, that is said in words."""


@dataclass(frozen=True, eq=False)
class Doubts:
    """Doubts about targets, 0 (none) to 1: `[n]` each; zero where nothing is known."""

    disagreement: Tensor
    """With another job, which explains the same targets with another method: one minus the cosine."""
    label: Tensor
    """1 where the explained class is not the label of the data."""
    opposition: Tensor
    """1 where half of the magnitude speaks for and half against."""
    balance: Tensor
    """How far what the scores add up to is from the explained number, as a share of it."""

    @classmethod
    def of(cls, facts: TargetFacts, labels: Tensor | None) -> Doubts:
        """Doubts from facts; `labels` `[n]` are those of the targets, −1 where there is none."""
        wrong = torch.zeros(len(facts.value), dtype=torch.double)
        if labels is not None:
            wrong = ((labels >= 0) & (labels != facts.target)).double()
        return cls(
            (1 - facts.agreement).clamp(0, 1).nan_to_num(nan=0.0),
            wrong,
            facts.against.double(),
            (facts.complete - 1).abs().clamp(max=1).nan_to_num(nan=0.0),
        )

    def order(self) -> Tensor:
        """Positions of the targets, those with most doubts first."""
        each = torch.stack([self.disagreement, self.label, self.opposition, self.balance])
        return ((each >= NOTICED).sum(dim=0) + each.sum(dim=0) / len(each)).argsort(descending=True, stable=True)

    def counts(self) -> list[tuple[int, str]]:
        """(how many targets, what is doubtful about them), for every doubt that was noticed."""
        said = [
            (self.disagreement, "are explained differently by the other job (cosine below 0.5)"),
            (self.label, "are predicted as another class than their label"),
            (self.opposition, "have edges that speak against one another (more than a quarter of the magnitude)"),
            (self.balance, "have scores that add up to less than half or more than one and a half of the number"),
        ]
        return [(int((doubt >= NOTICED).sum()), words) for doubt, words in said if bool((doubt >= NOTICED).any())]

    def words(self, at: int, facts: TargetFacts, labels: Tensor | None, class_names: Sequence[str]) -> str:
        """Why to look at a target; of several reasons all that were noticed, else the largest."""
        said = {
            f"the other method says something else (cosine {float(facts.agreement[at]):.2f})": self.disagreement,
            f"the label is {_class(labels, at, class_names)}": self.label,
            f"{float(facts.against[at]) / 2:.0%} of the magnitude speaks against the rest": self.opposition,
            f"the scores add up to {float(facts.complete[at]):.2f} of the number": self.balance,
        }
        by_size = sorted(said, key=lambda words: -float(said[words][at]))
        noticed = [words for words in by_size if float(said[words][at]) >= NOTICED]
        found = noticed or [words for words in by_size[:1] if float(said[words][at]) > 0] or ["nothing in particular"]
        return "; ".join(found).replace("-", "−")


def _class(labels: Tensor | None, at: int, class_names: Sequence[str]) -> str:
    if labels is None:
        return ""
    number = int(labels[at])
    return class_names[number] if 0 <= number < len(class_names) else f"class {number}"
