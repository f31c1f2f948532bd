"""What a metric returns: a number for every target, and in words why some have none."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import torch
from torch import Tensor

Conditions: TypeAlias = list[tuple[Tensor, str]]
"""`[targets]` booleans under which a number is undefined, each with the reason."""


@dataclass(frozen=True, eq=False)
class Measured:
    """One number for each target; NaN where the metric is undefined, with the reason.

    Undefined targets are counted and named, never averaged in.

    >>> found = Measured("precision", torch.tensor([1.0, torch.nan, 0.5]), torch.tensor([4, 8, 9]), ("", "no truth", ""))
    >>> found
    precision: 0.75 ± 0.25 (higher is better), 2 of 3 targets; undefined: 1 (no truth)
    >>> found.mean(), found.undefined
    (0.75, 1)
    """

    name: str
    value: Tensor
    """`[targets]`."""
    index: Tensor
    """`[targets]`: the node or graph that each number belongs to."""
    reasons: tuple[str, ...]
    """Why a number is NaN; empty where it is not."""
    better: str = "higher"
    """`"higher"`, `"lower"`, or empty where neither is."""

    def __len__(self) -> int:
        return len(self.value)

    @property
    def defined(self) -> Tensor:
        """`[targets]`: whether there is a number."""
        return ~self.value.isnan()

    @property
    def undefined(self) -> int:
        """How many targets have none."""
        return int(self.value.isnan().sum())

    def mean(self) -> float:
        """Of the targets that have a number; NaN if none has."""
        return float(self.value[self.defined].double().mean())

    def deviation(self) -> float:
        """The standard deviation over those targets (of the population: 0 for a single one)."""
        return float(self.value[self.defined].double().std(correction=0)) if bool(self.defined.any()) else torch.nan

    def why_undefined(self) -> dict[str, int]:
        """Reason → number of targets."""
        return dict(Counter(reason for reason in self.reasons if reason))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, ready for JSON; None where there is no number."""
        return {
            "name": self.name,
            "better": self.better,
            "mean": plain(self.mean()),
            "deviation": plain(self.deviation()),
            "targets": len(self),
            "undefined": self.undefined,
            "why_undefined": self.why_undefined(),
            "index": self.index.tolist(),
            "value": plain(self.value.tolist()),
        }

    def __repr__(self) -> str:
        better = f" ({self.better} is better)" if self.better else ""
        line = f"{self.name}: {self.mean():.4g} ± {self.deviation():.4g}{better}"
        return f"{line}, {len(self) - self.undefined} of {len(self)} targets{_because('; undefined: ', self)}"


def plain(value: Any) -> Any:
    """Numbers and lists of them, with None for NaN: JSON has no NaN.

    >>> plain([1.0, float("nan")])
    [1.0, None]
    """
    if isinstance(value, list):
        return [plain(item) for item in value]
    return None if value != value else value


def _because(start: str, measured: Measured) -> str:
    reasons = "; ".join(f"{count} ({reason})" for reason, count in measured.why_undefined().items())
    return start + reasons if reasons else ""


class MeasuredTable:
    """Several `Measured` fields of one result, printing as a table."""

    title = ""

    def measured(self) -> dict[str, Measured]:
        """Field → numbers."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in found.items() if isinstance(value, Measured)}

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, ready for JSON."""
        return {name: value.to_dict() for name, value in self.measured().items()}

    def __repr__(self) -> str:
        return "\n".join(filter(None, [self.title, table(list(self.measured().values()))]))


def table(parts: Sequence[Measured]) -> str:
    """A line for each metric: mean, deviation, how many targets it is defined for, and why not for the others."""
    rows = [("metric", "better", "mean", "deviation", "targets", "undefined")]
    for part in parts:
        numbers = (f"{part.mean():.4g}", f"{part.deviation():.4g}", f"{len(part) - part.undefined}/{len(part)}")
        rows.append((part.name, part.better or "-", *numbers, _because("", part) or "-"))
    return columns(rows)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as aligned lines."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def with_reasons(name: str, value: Tensor, index: Tensor, because: Conditions, better: str = "higher") -> Measured:
    """NaN where one of the conditions `[targets]` holds, with the text of the first that does."""
    reasons = [""] * len(value)
    value = value.clone()
    for condition, text in reversed(because):
        for position in condition.nonzero().view(-1).tolist():
            reasons[position] = text
        value[condition] = torch.nan
    return Measured(name, value, index, tuple(reasons), better)
