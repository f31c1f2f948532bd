"""Our numbers beside the published ones: means over seeds, their range, the difference, and a verdict."""

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import fmean, pstdev
from typing import Any

from edgewise_paper.task import KEY, Row

AGREES, IN_RANGE, DIFFERS = "agrees", "in our range", "differs"
_TOLERANCES = {
    ("negative-evidence", "cosine"): 0.005,
    ("negative-evidence-multiclass", "cosine"): 0.005,
    ("sgc", "cosine"): 0.05,
    ("sgc", "sign flips"): 0.01,
}
_USUAL = {"cosine": 0.08, "accuracy": 0.03, "AUROC": 0.03, "sign flips": 0.05, "path recovery": 0.03}


READ_OFF = 0.005
"""How exactly points were read off the published figures."""
_STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""97.5 % points of Student's distribution, by the number of seeds."""


@dataclass(frozen=True)
class Compared:
    """One quantity: ours over the seeds, and what the paper has."""

    key: tuple[Any, ...]
    mean: float
    spread: float
    """Standard deviation over the seeds; NaN for one seed."""
    low: float
    high: float
    seeds: int
    deviation: float
    """Over the targets, mean over the seeds."""
    count: int
    seconds: float
    published: Published | None

    def __getattr__(self, name: str) -> Any:
        """The columns of the key by their names."""
        if name in KEY:
            return self.key[KEY.index(name)]
        raise AttributeError(name)

    @property
    def difference(self) -> float:
        """Ours minus theirs."""
        return math.nan if self.published is None else self.mean - self.published.value

    @property
    def by_chance(self) -> bool:
        """Whether two shares of so few targets may differ so much (95 %, normal); other quantities may not."""
        if self.quantity not in ("accuracy", "AUROC") or not self.count:
            return False
        return abs(self.difference) <= 1.96 * math.sqrt(max(self.mean * (1 - self.mean), 1e-9) / self.count)

    def inside_range(self, slack: float = 0.0) -> bool:
        """Whether the published number lies between the lowest and the highest seed, or so near to them."""
        return self.published is not None and self.low - slack <= self.published.value <= self.high + slack

    @property
    def inside_prediction(self) -> bool:
        """Whether the published number lies where one more seed of ours would, 19 times in 20 (Student)."""
        if self.published is None or self.seeds < 2:
            return False
        deviation = self.spread * math.sqrt(self.seeds / (self.seeds - 1))
        half = _STUDENT.get(self.seeds, 2.0) * deviation * math.sqrt(1 + 1 / self.seeds)
        return abs(self.difference) <= half

    @property
    def verdict(self) -> str:
        """`agrees` within a tolerance, `in our range` over the seeds (or by chance, for accuracies), `differs`; or nothing."""
        if self.published is None or self.quantity == "seconds per target" or math.isnan(self.mean):
            return ""
        if abs(self.difference) <= tolerance(self.experiment, self.quantity):
            return AGREES
        return IN_RANGE if self.inside_range() or self.by_chance else DIFFERS


def tolerance(experiment: str, quantity: str) -> float:
    """How far apart two numbers may be that are called equal."""
    return _TOLERANCES.get((experiment, quantity), _USUAL.get(quantity, 0.05))


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
    known = [value for value in values if not math.isnan(value)]
    return fmean(known) if known else math.nan


@dataclass(frozen=True)
class Published:
    """One published number; `deviation` is over targets."""

    value: float
    deviation: float
    source: str


@cache
def published() -> dict[tuple[Any, ...], Published]:
    """By the columns of `KEY`.

    >>> key = ("node-classification", "accuracy", "Cora", "GCN", 2, "", 0, "", "", "")
    >>> published()[key].value
    0.827
    """
    return {key: number for file in _tables() for key, number in file}


def _tables() -> Iterator[Iterator[tuple[tuple[Any, ...], Published]]]:
    folder = files("edgewise_paper") / "published"
    for name in ("accuracy", "similarity", "sign_flips", "infection", "scalars"):
        text = (folder / f"{name}.csv").read_text(encoding="utf-8")
        yield (_entry(line) for line in csv.DictReader(text.splitlines()))


def _entry(line: dict[str, str]) -> tuple[tuple[Any, ...], Published]:
    whole = ("layers", "layer")
    key = tuple(int(line[name]) if name in whole else line[name] for name in KEY)
    deviation = float(line["deviation"]) if line["deviation"] else math.nan
    return key, Published(float(line["value"]), deviation, line["source"])
