"""What counts as a change of the prediction: margins that have to fall below 0.

For classes c (predicted) and j the margin is z_c − z_j. Another class is predicted if one of them is negative; the class t is
predicted if all z_j − z_t are. One logit, one label among several, and a number that crosses a threshold have a single margin.
Equality changes nothing: a tie is no flip.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Goal:
    """Margins z · directionsᵀ + offset, `[sets, J]`: one of them, or with `every` all, must be below 0.

    >>> goal = Goal.other_class(predicted=0, num_classes=3)
    >>> goal.margins(torch.tensor([[2.0, 1.0, 5.0]]).double())
    tensor([[ 1., -3.]], dtype=torch.float64)
    >>> goal.verdict(torch.tensor([[1.0, -3.0]]), torch.tensor([0.5, 0.5]))      # −3 is below 0, whatever the rounding
    tensor([1])
    """

    directions: Tensor
    """`[J, columns]`, float64."""
    offset: Tensor
    """`[J]`, float64."""
    every: bool = False
    """Whether all margins must be below 0; otherwise one is enough."""

    @staticmethod
    def other_class(predicted: int, num_classes: int) -> "Goal":
        """Any class but the predicted one."""
        unit = torch.eye(num_classes, dtype=torch.double)
        others = [j for j in range(num_classes) if j != predicted]
        return Goal(unit[predicted] - unit[others], torch.zeros(len(others), dtype=torch.double))

    @staticmethod
    def this_class(wanted: int, num_classes: int) -> "Goal":
        """One class, above all others."""
        unit = torch.eye(num_classes, dtype=torch.double)
        others = [j for j in range(num_classes) if j != wanted]
        return Goal(unit[others] - unit[wanted], torch.zeros(len(others), dtype=torch.double), every=True)

    @staticmethod
    def across(column: int, num_columns: int, threshold: float, *, downwards: bool) -> "Goal":
        """One number below (or above) a threshold."""
        sign = 1.0 if downwards else -1.0
        directions = torch.zeros(1, num_columns, dtype=torch.double)
        directions[0, column] = sign
        return Goal(directions, torch.tensor([-sign * threshold], dtype=torch.double))

    def margins(self, rows: Tensor) -> Tensor:
        """`[sets, J]` of outputs `[sets, columns]`."""
        return rows.double() @ self.directions.t() + self.offset

    def score(self, margins: Tensor) -> Tensor:
        """`[sets]`: one number to go down along: below 0 exactly where the prediction has changed."""
        return margins.amax(dim=1) if self.every else margins.amin(dim=1)

    def verdict(self, margins: Tensor, slack: Tensor) -> Tensor:
        """`[sets]`: 1 where the prediction has surely changed, −1 where it surely has not, 0 where rounding hides it.

        `slack` `[J]` says how far each margin may be from its true value.
        """
        below, above = margins < -slack, margins - slack >= 0
        changed = below.all(dim=1) if self.every else below.any(dim=1)
        kept = above.any(dim=1) if self.every else above.all(dim=1)
        return changed.long() - kept.long()

    def parts(self) -> list["Goal"]:
        """Goals of which one must be reached: one for each margin, or the whole if all must be."""
        if self.every:
            return [self]
        places = range(len(self.offset))
        return [Goal(self.directions[j : j + 1], self.offset[j : j + 1]) for j in places]
