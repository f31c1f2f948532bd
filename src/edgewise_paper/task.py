"""What a run is made of: the user's options, tasks (pieces of work) and rows (their results).

A `Task` names an experiment, a part of it and the settings that decide the result; its `key` is the fingerprint of all that,
under which `store.py` keeps what came out. A `Row` is one number with everything that made it.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from edgewise.files import versions

FLIP_EDGES = 1000
"""Edges of a graph that are varied for sign flips, unless the user says otherwise."""


@dataclass(frozen=True)
class PaperOptions:
    """The options of `edgewise reproduce`; the same for every task of a run."""

    out: Path
    """Folder of the report, the figures and the cache."""
    data: Path | None = None
    """The user's folder of raw files; None: the variable EDGEWISE_DATA, else downloads (see `data.Source`)."""
    seeds: int = 1
    """Seeds for real data; cheap experiments take more (`seeds_of`)."""
    device: str = "cpu"
    quick: bool = False
    """A small grid of everything; its tasks have settings of their own, so they never pass for those of a full run."""
    full: bool = False
    """Every depth and seed of the data sets that are otherwise cut short."""
    flip_edges: int = FLIP_EDGES
    workers: int = 2
    published: bool = False
    """The experiments of the authors' code in place of the text's."""

    @property
    def varied_edges(self) -> int:
        """Edges to vary for sign flips: at most 100 in a quick run."""
        return min(self.flip_edges, 100) if self.quick else self.flip_edges

    def seeds_of(self, at_least: int = 1, at_most: int | None = None) -> range:
        """Seeds of one experiment: a cheap one always takes several, a slow one not more than it must.

        >>> list(PaperOptions(Path("out"), seeds=2).seeds_of(at_least=4))
        [0, 1, 2, 3]
        >>> list(PaperOptions(Path("out"), seeds=2).seeds_of(at_most=1))
        [0]
        """
        wanted = self.seeds if self.quick else max(self.seeds, at_least)
        return range(wanted if at_most is None or self.full else min(wanted, at_most))


# --- Results -----------------------------------------------------------------------------------------------------------

KEY = (
    "experiment", "quantity", "dataset", "architecture", "layers", "level", "layer", "method", "reference", "variant",
)  # fmt: skip
"""Columns that say what a number is the number of: rows that agree in these differ in the seed alone."""


@dataclass(frozen=True)
class Row:
    """One number. Columns that do not apply are empty, 0 or NaN."""

    experiment: str
    quantity: str
    """What was measured: `"cosine"`, `"accuracy"`, `"sign flips"`, …"""
    value: float
    dataset: str = ""
    architecture: str = ""
    layers: int = 0
    level: str = ""
    """`"input"` or `"layer"`, for explanations."""
    layer: int = 0
    """Counted from 1, the layer that reads the features; 0: all layers."""
    method: str = ""
    reference: str = ""
    """What the method is compared with."""
    variant: str = ""
    """How this row's definition differs from the text of the paper; empty for the text's own."""
    seed: int = 0
    deviation: float = math.nan
    """Standard deviation over the explained targets of one model."""
    count: int = 0
    """Explained targets (or whatever the value is a mean of)."""
    seconds: float = math.nan
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """The columns of `KEY`."""
        return tuple(getattr(self, name) for name in KEY)

    def plain(self) -> dict[str, Any]:
        """As a dict for JSON; NaN is still in it."""
        return asdict(self)

    def columns(self) -> dict[str, Any]:
        """As one line of a table: settings and versions as JSON text."""
        text = {name: json.dumps(getattr(self, name), sort_keys=True) for name in ("settings", "versions")}
        return {one.name: getattr(self, one.name) for one in fields(self)} | text


@dataclass(frozen=True)
class TaskOutcome:
    """The rows of a task, and what the figures need beyond them (plain numbers and lists, by the figure's name)."""

    rows: list[Row]
    pictures: Mapping[str, Any] = field(default_factory=dict)


# --- Work --------------------------------------------------------------------------------------------------------------

REVISION = 2
"""Counts the changes of the experiments' code that change numbers: older results are not taken for new ones."""


def fingerprint(*parts: Any) -> str:
    """A short name for settings: equal for equal ones, whatever the order of their keys.

    >>> fingerprint({"layers": 2, "seed": 0}) == fingerprint({"seed": 0, "layers": 2})
    True
    """
    text = json.dumps([REVISION, *parts], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True, eq=False)
class Task:
    """One part of an experiment; the settings hold everything that can change the result.

    >>> task = Task("sgc", "accuracy", {"dataset": "Cora", "layers": 2, "seed": 0})
    >>> task.title
    'sgc: accuracy, Cora layers 2 seed 0'
    >>> task.row("accuracy", 0.8, count=497).layers
    2
    """

    experiment: str
    part: str
    """Which of the module's functions runs it."""
    settings: Mapping[str, Any]
    cost: float = 1.0
    """Seconds that it is expected to take: for the time left, and to start with the longest."""
    after: "Task | None" = None
    """The task to finish first, because this one uses its model."""

    @cached_property
    def key(self) -> str:
        """The name of its result."""
        return fingerprint(self.experiment, self.part, dict(self.settings))

    @property
    def title(self) -> str:
        """One line for people: experiment, part, data set, architecture, layers, seed."""
        shown = [str(self.settings[name]) for name in ("dataset", "architecture") if name in self.settings]
        shown += [f"{name} {self.settings[name]}" for name in ("layers", "seed") if name in self.settings]
        return " ".join([f"{self.experiment}: {self.part},", *shown]).rstrip(",")

    def row(self, quantity: str, value: float, **columns: Any) -> Row:
        """A row of this task: columns come from the settings unless `columns` says otherwise."""
        where = {
            name: self.settings[name] for name in ("dataset", "architecture", "layers", "seed") if name in self.settings
        }
        about = {
            "experiment": self.experiment,
            "settings": {"part": self.part, **self.settings},
            "versions": versions(),
        }
        return Row(quantity=quantity, value=float(value), **{**about, **where, **columns})
