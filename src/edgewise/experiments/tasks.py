"""A piece of work of an experiment, and what comes out of it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from edgewise.experiments.rows import Row, versions

REVISION = 1
"""Counts the changes of the experiments' code that change numbers: older results are not taken for new ones."""


def fingerprint(*parts: Any) -> str:
    """A short name for settings: equal for equal ones, whatever the order of their keys.

    >>> fingerprint({"layers": 2, "seed": 0}) == fingerprint({"seed": 0, "layers": 2})
    True
    """
    text = json.dumps([REVISION, *parts], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Outcome:
    """Rows, and what the figures need beyond them (plain numbers and lists, by the figure's name)."""

    rows: list[Row]
    pictures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Task:
    """Run by `part` of an experiment's module; the settings hold everything that can change the result."""

    experiment: str
    part: str
    settings: Mapping[str, Any]
    cost: float = 1.0
    """Seconds that it is expected to take: for the time left, and to start with the longest."""
    after: "Task | None" = None
    """What has to be done before, because this one uses its model."""

    @cached_property
    def key(self) -> str:
        """The name of its result."""
        return fingerprint(self.experiment, self.part, dict(self.settings))

    @property
    def title(self) -> str:
        """For people."""
        shown = [str(self.settings[name]) for name in ("dataset", "architecture") if name in self.settings]
        shown += [f"{name} {self.settings[name]}" for name in ("layers", "seed") if name in self.settings]
        return " ".join([f"{self.experiment}: {self.part},", *shown]).rstrip(",")

    def row(self, quantity: str, value: float, **columns: Any) -> Row:
        """A row of this task: where it belongs is read off the settings, unless said otherwise."""
        where = {
            name: self.settings[name] for name in ("dataset", "architecture", "layers", "seed") if name in self.settings
        }
        about = {
            "experiment": self.experiment,
            "settings": {"part": self.part, **self.settings},
            "versions": versions(),
        }
        return Row(quantity=quantity, value=float(value), **{**about, **where, **columns})
