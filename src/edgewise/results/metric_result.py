"""What a metric returns: a number for every target, and in words why some targets have none.

`Measured` is one metric, `MeasuredTable` the base of results that hold several of them; `with_reasons` makes a `Measured`
from numbers and the conditions under which they mean nothing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import torch
from torch import Tensor

from edgewise.text import columns, for_json

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
        """`[targets]`: whether a target has a number."""
        return ~self.value.isnan()

    @property
    def undefined(self) -> int:
        """How many targets have no number."""
        return int(self.value.isnan().sum())

    def mean(self) -> float:
        """The mean over the targets that have a number; NaN if none has."""
        return float(self.value[self.defined].double().mean())

    def deviation(self) -> float:
        """The standard deviation over the targets that have a number (of the population: 0 for a single target)."""
        return float(self.value[self.defined].double().std(correction=0)) if bool(self.defined.any()) else torch.nan

    def why_undefined(self) -> dict[str, int]:
        """How many targets lack a number for each reason: `{"no truth": 3}`."""
        return dict(Counter(reason for reason in self.reasons if reason))

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts, ready for JSON; None where there is no number."""
        found = {
            "name": self.name,
            "better": self.better,
            "mean": self.mean(),
            "deviation": self.deviation(),
            "targets": len(self),
            "undefined": self.undefined,
            "why_undefined": self.why_undefined(),
            "index": self.index.tolist(),
            "value": self.value.tolist(),
        }
        plain: dict[str, Any] = for_json(found)
        return plain

    def __repr__(self) -> str:
        better = f" ({self.better} is better)" if self.better else ""
        line = f"{self.name}: {self.mean():.4g} ± {self.deviation():.4g}{better}"
        return f"{line}, {len(self) - self.undefined} of {len(self)} targets{_because('; undefined: ', self)}"


def _because(start: str, measured: Measured) -> str:
    """The reasons with their counts, such as `"; undefined: 3 (no truth)"`; empty if every target has a number."""
    reasons = "; ".join(f"{count} ({reason})" for reason, count in measured.why_undefined().items())
    return start + reasons if reasons else ""


class MeasuredTable:
    """Base of dataclasses that hold several `Measured` fields and print as a table of them."""

    title = ""

    def measured(self) -> dict[str, Measured]:
        """The `Measured` fields, by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in found.items() if isinstance(value, Measured)}

    def to_dict(self) -> dict[str, Any]:
        """The `to_dict` of every field, by name: plain numbers and texts, ready for JSON."""
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


def with_reasons(name: str, value: Tensor, index: Tensor, because: Conditions, better: str = "higher") -> Measured:
    """NaN where one of the conditions `[targets]` holds, with the text of the first that does.

    >>> empty = torch.tensor([False, True])
    >>> with_reasons("share", torch.tensor([0.5, 0.0]), torch.tensor([3, 7]), [(empty, "no edge can matter")]).reasons
    ('', 'no edge can matter')
    """
    reasons = [""] * len(value)
    value = value.clone()
    for condition, text in reversed(because):
        for position in condition.nonzero().view(-1).tolist():
            reasons[position] = text
        value[condition] = torch.nan
    return Measured(name, value, index, tuple(reasons), better)
