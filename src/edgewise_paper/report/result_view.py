"""ResultView: the results of a run, looked up by the columns of a row."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from edgewise_paper.comparison import Compared, compare
from edgewise_paper.runner import Reproduction
from edgewise_paper.task import Row


@dataclass(frozen=True, eq=False)
class ResultView:
    """Rows, compared numbers and pictures of a run, for the sections and figures of the report.

    `view.find(experiment="sgc", level="layer")` are the compared numbers with these columns.
    """

    run: Reproduction

    @cached_property
    def rows(self) -> list[Row]:
        """All rows of all tasks."""
        return [row for _, outcome in self.run.outcomes for row in outcome.rows]

    @cached_property
    def compared(self) -> list[Compared]:
        """One number for each key, over the seeds."""
        return list(compare(self.rows).values())

    def find(self, **columns: Any) -> list[Compared]:
        """Compared numbers whose columns have these values; a tuple stands for any of its values."""
        return [one for one in self.compared if _fits(one, columns)]

    def one(self, **columns: Any) -> Compared | None:
        """The first number that `find` returns, or None."""
        return next(iter(self.find(**columns)), None)

    def values(self, **columns: Any) -> dict[int, float]:
        """Values of the rows with these columns, by seed."""
        return {row.seed: row.value for row in self.rows if _fits(row, columns)}

    @cached_property
    def pictures(self) -> dict[tuple[str, str], Any]:
        """Pictures by experiment and name; if several seeds have one, that of the first."""
        found: dict[tuple[str, str], Any] = {}
        for task, outcome in self.run.outcomes:
            for name, picture in outcome.pictures.items():
                found.setdefault((task.experiment, name), picture)
        return found


def _fits(one: Compared | Row, columns: dict[str, Any]) -> bool:
    for name, wanted in columns.items():
        value = getattr(one, name)
        if isinstance(wanted, tuple):
            if value not in wanted:
                return False
        elif value != wanted:
            return False
    return True


def correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Pearson's correlation of a few points; NaN for fewer than three.

    >>> round(correlation([(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]), 6)
    1.0
    """
    import numpy as np

    return float(np.corrcoef(np.array(pairs).T)[0, 1]) if len(pairs) > 2 else float("nan")
