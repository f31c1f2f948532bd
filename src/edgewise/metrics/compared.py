"""What `compare` returns: how alike every two methods are, by several measures, and what each of them took."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from edgewise.errors import MissingExtraError, SettingError
from edgewise.metrics.measured import plain
from edgewise.metrics.pairs import MEASURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Key: TypeAlias = tuple[str, str, str, int | None, str]
"""(first method, second method, level, layer, measure)."""
NUMBERS = ("mean", "deviation", "low", "high")


@dataclass(frozen=True, eq=False)
class Agreement:
    """How alike two methods are by one measure, at one level; in one layer, or over all of it (`layer` is None).

    `mean`, `deviation` (of the population) and the ends of the bootstrap interval leave out targets without a number.
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
        """How many numbers there are."""
        return int((~self.value.isnan()).sum())

    def to_row(self) -> dict[str, Any]:
        """Plain numbers and texts; None where there is no number."""
        names = ("level", "layer", "measure", "first", "second")
        numbers = {name: plain(getattr(self, name)) for name in NUMBERS}
        left_out = {"defined": self.defined, "undefined": self.value.numel() - self.defined}
        return {name: getattr(self, name) for name in names} | numbers | left_out | {"reasons": dict(self.reasons)}

    def __repr__(self) -> str:
        where = self.level if self.layer is None else f"layer {self.layer}"
        because = "".join(f"; {count} undefined: {reason}" for reason, count in self.reasons.items())
        return (
            f"{self.first} ~ {self.second}: {self.measure} ({where}) {self.mean:.4g} ± {self.deviation:.4g}, "
            f"[{self.low:.4g}, {self.high:.4g}], {self.defined} numbers{because}"
        )


@dataclass(frozen=True)
class Running:
    """What a method took at one level."""

    method: str
    level: str
    seconds: float
    """For all targets, on average over the seeds; NaN if it did not run."""
    zero: int
    """Of how many targets (over all seeds) the scores are all zero."""
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

    def pair(
        self, first: str, second: str, measure: str = "cosine", level: str | None = None, layer: int | None = None
    ) -> Agreement:
        """How alike two methods are, whichever comes first."""
        level = self._check(measure, level, layer)
        for name in (first, second):
            if name not in self.methods:
                raise SettingError(f"{name!r} is not among the compared methods: {', '.join(self.methods)}.")
        first, second = sorted((first, second), key=self.methods.index)
        return self.agreements[first, second, level, layer, measure]

    def matrix(
        self, measure: str = "cosine", level: str | None = None, layer: int | None = None, number: str = "mean"
    ) -> Tensor:
        """`[methods, methods]`: the mean (or `"deviation"`, or the `"low"` or `"high"` end); NaN where undefined."""
        if number not in NUMBERS:
            raise SettingError(f"number is {number!r}; known are {', '.join(NUMBERS)}.")
        rows = [[getattr(self.pair(a, b, measure, level, layer), number) for b in self.methods] for a in self.methods]
        return torch.tensor(rows, dtype=torch.double)

    def _check(self, measure: str, level: str | None, layer: int | None) -> str:
        level = self.levels[0] if level is None else level
        if measure not in MEASURES:
            raise SettingError(f"measure is {measure!r}; known are {', '.join(MEASURES)}.")
        if level not in self.levels:
            raise SettingError(f"level is {level!r}; compared were {', '.join(map(repr, self.levels))}.")
        if layer is not None and level != "layer":
            raise SettingError(f"layer={layer} needs level='layer': at input level an edge has one score.")
        if layer is not None and layer not in range(self.num_layers):
            raise SettingError(f"layer is {layer!r}; there are {self.num_layers}, 0 to {self.num_layers - 1}.")
        return level

    def rows(self) -> list[dict[str, Any]]:
        """A dict for every pair, measure, level and layer."""
        return [agreement.to_row() for agreement in self.agreements.values()]

    def to_frame(self) -> Any:
        """The rows as a `pandas.DataFrame`."""
        try:
            pandas = import_module("pandas")  # has no types, and no extra of ours brings it
        except ImportError as error:
            raise MissingExtraError(
                "to_frame() needs pandas, which is not installed. Type: pip install pandas; rows() gives the same as a list "
                "of dicts and needs nothing."
            ) from error
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
            "running": [{name: plain(value) for name, value in vars(run).items()} for run in self.running],
            "agreements": self.rows(),
        }

    def plot(self, measure: str = "cosine", level: str | None = None, layer: int | None = None) -> "Figure":
        """A matrix of the means, one for each level unless one is named. Needs `edgewise[plot]`."""
        from edgewise.report.matrix import draw_comparison

        self._check(measure, level, layer)
        return draw_comparison(self, measure, self.levels if level is None else (level,), layer)

    def table(self, measure: str = "cosine", level: str | None = None, layer: int | None = None) -> str:
        """The means and deviations of one measure as text, and why numbers are missing."""
        from edgewise.metrics.tables import agreement_table

        return agreement_table(self, measure, self._check(measure, level, layer), layer)

    def __str__(self) -> str:
        from edgewise.metrics.tables import comparison_text

        return comparison_text(self)

    def __repr__(self) -> str:
        levels = " and ".join(self.levels)
        what = f"{len(self.methods)} methods, {len(self.index)} targets, {len(self.seeds)} seeds"
        return f"Comparison({what}, {levels} level; print it for the tables)"
