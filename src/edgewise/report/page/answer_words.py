"""The sentences of a page's answer: about classes, about links, about values; never a technical term."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from edgewise.report.page.silence import chances, said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from edgewise.question.target import Target
    from edgewise.results.counterfactual_set import Counterfactual

COUNTS = ("no", "one", "both", "all three")
"""So many edges together, in words."""


def percent(share: float) -> str:
    """A probability in words.

    >>> percent(0.98), percent(0.99999), percent(0.0)
    ('98.0%', 'over 99.9%', 'under 0.1%')
    """
    if share >= 0.9995:
        return "over 99.9%"
    return f"{100 * share:.1f}%" if share >= 0.0005 else "under 0.1%"


def plain_number(value: float) -> str:
    """A value with four digits and a real minus sign.

    >>> plain_number(-1234.56), plain_number(0.5)
    ('−1235', '0.5')
    """
    return f"{value:.4g}".replace("-", "−")


@dataclass(frozen=True)
class Wording:
    """How one target is spoken of."""

    who: str
    """The node, the link or the graph by its name."""
    target: Target
    position: int
    classes: Sequence[str]
    edge: str = "edge"
    """What one step of the graph is called: an edge, or a bond."""

    @property
    def is_value(self) -> bool:
        """Whether the model gives a number, not a class."""
        return self.target.mode == "regression"

    @property
    def column(self) -> int:
        """The explained class."""
        return int(self.target.column[self.position])

    @property
    def truth(self) -> Tensor:
        """`[1, width]`: the model's output."""
        return self.target.truth[self.position : self.position + 1].detach().cpu().double()

    def verdict(self) -> str:
        """What the model says, and how sure it is."""
        if self.is_value:
            return f"{self._head()}: the model's value{self._of_output()} is {self._value(self.truth[0])}."
        name, share = self._said(self.truth[0])
        return f"{self._head()}: the model says “{name}”, and is {percent(share)} sure."

    def explained(self) -> str:
        """Which class is explained, where it is not the one that the model says."""
        if self.is_value or self.target.mode == "multilabel" or not self._is_other(self.truth[0]):
            return ""
        found = chances(self.truth, self.target.mode)
        assert found is not None
        share = percent(float(found[0, self.column]))
        return f"This page explains why not “{self.classes[self.column]}” ({share}): what speaks for it, and what against it."

    def without(self, row: Tensor, count: int = 1) -> str:
        """What the model says without an edge, or without the first `count` of them together."""
        them = "it" if count == 1 else COUNTS[count]
        if self.is_value:
            return f"without {them}: {self._value(row)} instead of {self._value(self.truth[0])}"
        if self.flips(row):
            name, share = self._said(row)
            return f"without {them} the model says “{name}” ({percent(share)})"
        before, after = (percent(self._chance(one)) for one in (self.truth[0], row))
        name = self.classes[self.column]
        return f"without {them}: {name} {f'{after} instead of {before}' if after != before else f'still {after}'}"

    def flips(self, row: Tensor) -> bool:
        """Whether the model says something else."""
        if self.is_value:
            return False
        return said(row.view(1, -1), self.target, self.column) != said(self.truth, self.target, self.column)

    def one_changes(self, name: str, row: Tensor) -> str:
        """One edge is enough."""
        if self.is_value:
            return (
                f"The {self.edge} with the largest effect is {name}: without it the value is {self._value(row)} instead of "
                f"{self._value(self.truth[0])}."
            )
        other, share = self._said(row)
        return f"One {self.edge} is enough. Without {name}, the model says “{other}” ({percent(share)})."

    def smallest(self, flip: Counterfactual, names: Sequence[str]) -> str:
        """What `ew.counterfactual` found: the smallest set of edges that changes the answer, or that none does.

        One edge is named here; several stand in a list below.
        """
        if flip.status == "none":
            if flip.num_units == 0:
                return self.no_change(0)
            considered = f"all {flip.num_units} were considered" if flip.num_units > 1 else "there is only one"
            return f"No set of {self.edge}s, however large, changes it. That is {flip.certainty}: {considered}."
        assert flip.after is not None
        other, share = self._said(torch.tensor(flip.after, dtype=torch.double))
        says = f"the model says “{other}” ({percent(share)})"
        if len(names) == 1:
            return f"One {self.edge} is enough. Without {names[0]}, {says}."
        proof = (
            f"No smaller set does it: that is {flip.certainty}."
            if flip.status == "proven"
            else f"Whether fewer would do is open; at least {flip.lower_bound} are needed (ew.counterfactual searches longer)."
        )
        return f"{len(names)} {self.edge}s together are enough. Without these, {says}. {proof}"

    def some_change(self, count: int, row: Tensor) -> str:
        """Several together; a count of 0 means all of them."""
        other, share = self._said(row)
        says = f"the model says “{other}” ({percent(share)})"
        if not count:
            return (
                f"No single {self.edge} among the strongest changes the answer, nor do they together. Without any {self.edge} "
                f"at all, {says}."
            )
        return (
            f"No single {self.edge} of those tried changes the answer, but {count} together do. Without these, {says}."
        )

    def no_change(self, tried: int, row: Tensor | None = None) -> str:
        """Nothing that was tried; `row` is the output without any edge."""
        if not tried:
            return f"No {self.edge} plays a part, so none can change it."
        if row is None:
            return f"None of the {tried} strongest {self.edge}s changes the answer, each taken away alone."
        name, share = self._said(row)
        return (
            f"Nothing that was tried changes it: no {self.edge} alone, not the strongest together, and without any "
            f"{self.edge} at all the model says “{name}” ({percent(share)})."
        )

    def nothing(self, *, any_edges: bool) -> str:
        """Where no edge is a reason."""
        if any_edges:
            return f"No single {self.edge} moves the answer noticeably."
        return f"No {self.edge} reaches it: the model used the features of {self.who} alone."

    def _said(self, row: Tensor) -> tuple[str, float]:
        """The class that a row says, and its probability."""
        rows = row.view(1, -1)
        found = chances(rows, self.target.mode)
        assert found is not None
        (number,) = said(rows, self.target, self.column)
        if self.target.mode != "multilabel":
            return self.classes[number], float(found[0, number])
        share = float(found[0, self.column])
        return (self.classes[self.column], share) if number else (f"not {self.classes[self.column]}", 1 - share)

    def _chance(self, row: Tensor) -> float:
        found = chances(row.view(1, -1), self.target.mode)
        assert found is not None
        return float(found[0, self.column])

    def _is_other(self, row: Tensor) -> bool:
        return said(row.view(1, -1), self.target, self.column) != [self.column]

    def _head(self) -> str:
        """The name at the beginning of a sentence; names that the user gave stay as they are."""
        is_ours = self.who.split(" ")[0] in ("node", "graph", "molecule", "link")
        return self.who[0].upper() + self.who[1:] if is_ours else self.who

    def _value(self, row: Tensor) -> str:
        return plain_number(float(row[self.column]))

    def _of_output(self) -> str:
        name = self.classes[self.column]
        return f" ({name})" if len(self.classes) > 1 or name not in ("output 0", "the score") else ""
