"""What the paper says: He, Rafiey, Mishne and Wang, "Explaining GNN Explanations with Edge Gradients", KDD 2025.

Numbers of its text and tables, its figures read off (± 0.005), and of its public code where that has more (`source`).
`variant` names the rows of ours that were made as the published ones were: where the code differs from the text, the code's.
"""

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from edgewise.experiments.rows import KEY


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
    folder = files("edgewise.experiments") / "published"
    for name in ("accuracy", "similarity", "sign_flips", "infection", "scalars"):
        text = (folder / f"{name}.csv").read_text(encoding="utf-8")
        yield (_entry(line) for line in csv.DictReader(text.splitlines()))


def _entry(line: dict[str, str]) -> tuple[tuple[Any, ...], Published]:
    whole = ("layers", "layer")
    key = tuple(int(line[name]) if name in whole else line[name] for name in KEY)
    deviation = float(line["deviation"]) if line["deviation"] else math.nan
    return key, Published(float(line["value"]), deviation, line["source"])
