"""The paper's numbers (`published`) and ours beside them (`compare`): mean and range over seeds, difference.

There is no verdict here: published numbers were made as the authors' code has it, and those are judged in `verdicts.py`.

`ResultView` has all of them for one run; the sections, reasons and figures of the report look them up by the columns of a
row.
"""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

from edgewise_paper.task import KEY, Row

if TYPE_CHECKING:
    from edgewise_paper.runner import Reproduction

# --- Published numbers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Published:
    """One published number."""

    value: float
    deviation: float
    """Standard deviation over targets; NaN if there is none."""
    source: str
    """A table, a figure (five digits; Infection's read off images, ± 0.005), the text, or the authors' public code."""


@cache
def published() -> dict[tuple[Any, ...], Published]:
    """Everything in `published/*.csv`, by the columns of `KEY`.

    He, Rafiey, Mishne and Wang, "Explaining GNN Explanations with Edge Gradients", KDD 2025. Their `variant` names those
    rows of ours that were made as the published ones were: where the code differs from the text, the code's.

    >>> key = ("node-classification", "accuracy", "Cora", "GCN", 2, "", 0, "", "", "")
    >>> published()[key].value
    0.827
    """
    return {key: number for file in _tables() for key, number in file}


def _tables() -> Iterator[Iterator[tuple[tuple[Any, ...], Published]]]:
    """The entries of each file."""
    folder = files("edgewise_paper") / "published"
    for name in ("accuracy", "similarity", "sign_flips", "infection", "scalars"):
        text = (folder / f"{name}.csv").read_text(encoding="utf-8")
        yield (_entry(line) for line in csv.DictReader(text.splitlines()))


def _entry(line: dict[str, str]) -> tuple[tuple[Any, ...], Published]:
    """One line of a file as key and number."""
    whole = ("layers", "layer")
    key = tuple(int(line[name]) if name in whole else line[name] for name in KEY)
    deviation = float(line["deviation"]) if line["deviation"] else math.nan
    return key, Published(float(line["value"]), deviation, line["source"])


# --- Ours beside them --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """One quantity: ours over the seeds, and the paper's. The columns of `KEY` are attributes too: `one.dataset`."""

    key: tuple[Any, ...]
    mean: float
    """Over the seeds."""
    spread: float
    """Standard deviation over the seeds; NaN for one seed."""
    low: float
    high: float
    seeds: int
    deviation: float
    """Standard deviation over the targets, mean over the seeds."""
    count: int
    """Targets, of the seed that has most."""
    seconds: float
    published: Published | None

    def __getattr__(self, name: str) -> Any:
        if name in KEY:
            return self.key[KEY.index(name)]
        raise AttributeError(name)

    @property
    def difference(self) -> float:
        """Ours minus theirs; NaN if nothing was published."""
        return math.nan if self.published is None else self.mean - self.published.value


def compare(rows: Iterable[Row]) -> dict[tuple[Any, ...], Compared]:
    """Rows that differ in the seed alone become one entry, in the order in which they came."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(row.key, []).append(row)
    return {key: _compared(key, some) for key, some in groups.items()}


def _compared(key: tuple[Any, ...], rows: list[Row]) -> Compared:
    values = [row.value for row in rows if not math.isnan(row.value)]
    low, high = (min(values), max(values)) if values else (math.nan, math.nan)
    return Compared(
        key,
        _mean(values),
        pstdev(values) if len(values) > 1 else math.nan,
        low,
        high,
        len({row.seed for row in rows}),
        _mean([row.deviation for row in rows]),
        max(row.count for row in rows),
        _mean([row.seconds for row in rows]),
        published().get(key),
    )


def _mean(values: list[float]) -> float:
    """The mean of those that are numbers; NaN if none is."""
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else math.nan


# --- The results of a run, looked up ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ResultView:
    """Rows, compared numbers and pictures of a run, for the sections and figures of the report.

    `view.find(experiment="sgc", level="layer")` are the compared numbers with these columns.
    """

    run: "Reproduction"

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
    """Whether a number has these columns; a tuple stands for any of its values."""
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
