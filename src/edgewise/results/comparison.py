"""Comparison: what `compare` returns. How alike every two methods are, by several measures, and what each of them took.

An `Agreement` is one cell: two methods, one measure, one level (or one layer of it). The text tables are at the end.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from edgewise.arguments import one_of
from edgewise.contract import checked
from edgewise.errors import SettingError, missing_extra
from edgewise.student_intervals import held
from edgewise.text import columns, counted, for_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MEASURES = ("cosine", "spearman", "overlap", "sign")
"""The measures of agreement; `metrics/agreement.py` computes them."""
Key: TypeAlias = tuple[str, str, str, int | None, str]
"""(first method, second method, level, layer, measure)."""
NUMBERS = ("mean", "deviation", "low", "high")
"""The numbers of a cell, over targets and seeds."""


_FEW = 10
"""Below so many numbers, the numbers themselves are shown."""


@dataclass(frozen=True, eq=False)
class Agreement:
    """How alike two methods are by one measure, at one level; in one layer, or over all of it (`layer` is None).

    `mean`, `deviation` (of the population) and the ends of the Student interval leave out targets without a number.
    """

    first: str
    second: str
    measure: str
    level: str
    layer: int | None
    value: Tensor
    """`[runs, targets]`: a number for each seed (for a method with itself: each two seeds) and target; NaN if undefined."""
    mean: float
    deviation: float
    low: float
    high: float
    reasons: Mapping[str, int]
    """Why numbers are missing, and how many of them."""

    @property
    def defined(self) -> int:
        """How many (run, target) pairs have a number."""
        return int((~self.value.isnan()).sum())

    def to_row(self) -> dict[str, Any]:
        """One row of a table: the two methods, measure, level, layer and numbers; None where there is no number."""
        names = ("level", "layer", "measure", "first", "second")
        numbers = {name: for_json(getattr(self, name)) for name in NUMBERS}
        left_out = {"defined": self.defined, "undefined": self.value.numel() - self.defined}
        return {name: getattr(self, name) for name in names} | numbers | left_out | {"reasons": dict(self.reasons)}

    def __repr__(self) -> str:
        where = self.level if self.layer is None else f"layer {self.layer}"
        because = "".join(f"; {count} undefined: {reason}" for reason, count in self.reasons.items())
        return (
            f"{self.first} ~ {self.second}: {self.measure} ({where}) {self.mean:.4g} ± {self.deviation:.4g}, "
            f"{self._interval()}{because}"
        )

    def _interval(self) -> str:
        """The interval with what it stands on; few values speak for themselves."""
        known = self.value[~self.value.isnan()]
        values = f": {' '.join(f'{value:.3g}' for value in known.tolist())}" if len(known) < _FEW else ""
        if self.low != self.low:
            return f"{counted(len(known), 'number')}, too few for an interval{values}"
        units = counted(len(self.value), "seed") if len(self.value) > 1 else counted(len(known), "target")
        sure = "" if len(self.value) > 1 else f"; such intervals held {held(len(known), self.mean):.0%} of the time"
        return f"[{self.low:.4g}, {self.high:.4g}] ({units}{sure}){values}"


@dataclass(frozen=True)
class Running:
    """How long one method took at one level, or why it did not run."""

    method: str
    level: str
    seconds: float
    """For all targets, on average over the seeds; NaN if it did not run."""
    zero: int
    """The number of targets (over all seeds) whose scores are all zero."""
    absent: str = ""
    """Why it did not run; empty if it did."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Every two methods side by side; prints as tables.

    `matrix("cosine", "input")` are the means as a tensor, `pair(...)` everything about two methods, `plot()` a picture,
    `rows()` plain dicts, `to_frame()` a pandas data frame, `to_dict()` plain data ready for JSON.
    """

    methods: tuple[str, ...]
    levels: tuple[str, ...]
    seeds: tuple[int, ...]
    index: Tensor
    num_layers: int
    k: int
    by: str
    confidence: float
    running: tuple[Running, ...]
    agreements: Mapping[Key, Agreement]
    """For every two methods in the order of `methods`, and each with itself."""

    @checked
    def pair(
        self, first: str, second: str, measure: str = "cosine", level: str | None = None, layer: int | None = None
    ) -> Agreement:
        """How alike two methods are; their order does not matter. Without `level`, at the first compared level."""
        level = self._check(measure, level, layer)
        for name in (first, second):
            one_of("method", name, self.methods)
        first, second = sorted((first, second), key=self.methods.index)
        return self.agreements[first, second, level, layer, measure]

    @checked
    def matrix(
        self, measure: str = "cosine", level: str | None = None, layer: int | None = None, number: str = "mean"
    ) -> Tensor:
        """`[methods, methods]`: the mean (or `"deviation"`, or the `"low"` or `"high"` end); NaN where undefined."""
        one_of("number", number, NUMBERS)
        rows = [[getattr(self.pair(a, b, measure, level, layer), number) for b in self.methods] for a in self.methods]
        return torch.tensor(rows, dtype=torch.double)

    def _check(self, measure: str, level: str | None, layer: int | None) -> str:
        """The level that is meant, if there is a table for this measure, level and layer."""
        one_of("measure", measure, MEASURES)
        level = one_of("level", self.levels[0] if level is None else level, self.levels)
        if layer is not None and level != "layer":
            raise SettingError(f"layer={layer} needs level='layer': at input level an edge has one score.")
        if layer is not None and layer not in range(self.num_layers):
            raise SettingError(f"`layer` must be between 0 and {self.num_layers - 1}, got {layer!r}.")
        return level

    def rows(self) -> list[dict[str, Any]]:
        """A dict for every pair, measure, level and layer."""
        return [agreement.to_row() for agreement in self.agreements.values()]

    def to_frame(self) -> Any:
        """The rows as a `pandas.DataFrame`. Needs `edgewise[table]`; `rows()` gives the same without pandas."""
        try:
            import pandas
        except ImportError as error:
            raise missing_extra("pandas", "table", "to_frame()") from error
        return pandas.DataFrame(self.rows())

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, ready for JSON; None where there is no number."""
        return {
            "methods": list(self.methods),
            "levels": list(self.levels),
            "seeds": list(self.seeds),
            "index": self.index.tolist(),
            "layers": self.num_layers,
            "k": self.k,
            "by": self.by,
            "confidence": self.confidence,
            "running": [for_json(vars(run)) for run in self.running],
            "agreements": self.rows(),
        }

    @checked
    def plot(self, measure: str = "cosine", level: str | None = None, layer: int | None = None) -> "Figure":
        """A matrix of the means, one for each level unless one is named. Needs `edgewise[plot]`."""
        from edgewise.report.figure import draw_comparison

        self._check(measure, level, layer)
        return draw_comparison(self, measure, self.levels if level is None else (level,), layer)

    @checked
    def table(self, measure: str = "cosine", level: str | None = None, layer: int | None = None) -> str:
        """The means and deviations of one measure as text, and why numbers are missing."""
        return agreement_table(self, measure, self._check(measure, level, layer), layer)

    def __str__(self) -> str:
        return comparison_text(self)

    def _repr_html_(self) -> str:
        from edgewise.report.notebook import comparison_html

        return comparison_html(self)

    def __repr__(self) -> str:
        levels = " and ".join(self.levels)
        what = f"{len(self.methods)} methods, {counted(len(self.index), 'target')}, {counted(len(self.seeds), 'seed')}"
        return f"Comparison({what}, {levels} level; print it for the tables)"


# --- Comparisons as text -----------------------------------------------------------------------------------------------


_RANKED = {"support": "most supporting", "opposition": "most opposing", "magnitude": "strongest"}


def title(measure: str, k: int, by: str) -> str:
    """A measure in words.

    >>> title("overlap", 10, "support")
    'overlap of the 10 most supporting edges'
    """
    return {
        "cosine": "cosine",
        "spearman": "Spearman's rank correlation",
        "overlap": f"overlap of the {k} {_RANKED[by]} edges",
        "sign": "sign agreement (of edges to which either gives a sign)",
    }[measure]


def comparison_text(found: "Comparison") -> str:
    """What ran, and a table for every level and measure."""
    what = f"{len(found.methods)} methods, {counted(len(found.index), 'target')}, {counted(len(found.seeds), 'seed')}"
    lines = [f"{what}: mean±deviation over targets and seeds"]
    for level in found.levels:
        lines += ["", f"== {level} level ==", _running(found, level)]
        lines += [f"\n{agreement_table(found, measure, level, None)}" for measure in MEASURES]
    if "layer" in found.levels and found.num_layers > 1:
        lines += ["", f"one layer of {found.num_layers}: table('cosine', 'layer', layer=0)"]
    return "\n".join(lines)


def _running(found: "Comparison", level: str) -> str:
    """What every method took at one level, or why it did not run."""
    rows = [("method", "seconds", "zero vectors", "note")]
    for run in found.running:
        if run.level == level:
            ran = ("-", "-") if run.absent else (f"{run.seconds:.2f}", str(run.zero))
            rows.append((run.method, *ran, f"did not run: {run.absent}" if run.absent else ""))
    return columns(rows)


def agreement_table(found: "Comparison", measure: str, level: str, layer: int | None) -> str:
    """The lower half of the matrix, and why numbers are missing."""
    where = f"{level} level" if layer is None else f"layer {layer}"
    rows = [("", "", *(str(number + 1) for number in range(len(found.methods))))]
    missing: Counter[str] = Counter()
    for row, first in enumerate(found.methods):
        cells = []
        for second in found.methods[: row + 1]:
            one = found.pair(first, second, measure, level, layer)
            cells.append(_cell(one.mean, one.deviation))
            missing |= Counter(one.reasons)
        rows.append((str(row + 1), first, *cells, *[""] * (len(found.methods) - row - 1)))
    lines = [f"{title(measure, found.k, found.by)}, {where}", columns(rows)]
    lines += [f"undefined: {count} ({reason})" for reason, count in missing.items()]
    return "\n".join(lines)


def _cell(mean: float, deviation: float) -> str:
    """`0.93±0.04`, or a dash where the mean is NaN."""
    return "-" if mean != mean else f"{mean:.2f}±{deviation:.2f}"
