"""A result: one number, what it is the number of, and everything that made it."""

import json
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

KEY = (
    "experiment", "quantity", "dataset", "architecture", "layers", "level", "layer", "method", "reference", "variant",
)  # fmt: skip
"""What a number is the number of: rows that agree in these differ in the seed alone."""
_PACKAGES = ("torch", "torch_geometric", "numpy")


@dataclass(frozen=True)
class Row:
    """One number. Columns that do not apply are empty, 0 or NaN; `layer` counts from 1, the one that reads the features."""

    experiment: str
    quantity: str
    value: float
    dataset: str = ""
    architecture: str = ""
    layers: int = 0
    level: str = ""
    layer: int = 0
    method: str = ""
    reference: str = ""
    variant: str = ""
    """How this row's definition differs from the text of the paper; empty for the text's own."""
    seed: int = 0
    deviation: float = math.nan
    """Over the explained targets of one model."""
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
        """As a dict that JSON can write."""
        return asdict(self)

    def columns(self) -> dict[str, Any]:
        """As one line of a table: settings and versions as JSON text."""
        text = {name: json.dumps(getattr(self, name), sort_keys=True) for name in ("settings", "versions")}
        return {one.name: getattr(self, one.name) for one in fields(self)} | text


@cache
def versions() -> dict[str, str]:
    """Of everything that can change a number."""
    import edgewise

    found = {"edgewise": edgewise.__version__, "python": platform.python_version(), "machine": platform.machine()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a source tree on the path
            found[name] = "unknown"
    return found
