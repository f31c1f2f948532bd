"""The one table of methods: documentation, command line, benchmarks and the tests of all methods are loops over it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from math import isfinite
from typing import Any

from edgewise.algorithms.baseline import full
from edgewise.algorithms.gnn_explainer import gnn_explainer, gnn_explainer_fast
from edgewise.algorithms.gradient import gradient, positive_gradient
from edgewise.algorithms.integrated import integrated_gradients
from edgewise.algorithms.occlusion import lowered_occlusion, occlusion
from edgewise.algorithms.scores import LEVELS, CopyScores, SparseScores
from edgewise.errors import SettingError


@dataclass(frozen=True)
class Method:
    """One row of the table."""

    name: str
    function: Callable[..., CopyScores] | None
    """`None`: nothing is computed, the scores are drawn when they are looked at."""
    cost: str
    reference: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    levels: tuple[str, ...] = LEVELS
    seeded: bool = False
    lowered: Callable[..., Iterator[tuple[int, SparseScores]]] | None = None
    """For a lowered model: all targets at once, looking deeper than a `Score`."""


_ROWS = (
    Method("gradient", gradient, "1 backward pass", "Pope et al., CVPR 2019"),
    Method("positive_gradient", positive_gradient, "1 backward pass", "He et al., KDD 2025", {"epsilon": 0.0}),
    Method(
        "occlusion",
        occlusion,
        "a forward pass per edge (and layer) of the largest target",
        "Zeiler and Fergus, ECCV 2014",
        lowered=lowered_occlusion,
    ),
    Method(
        "gnn_explainer",
        gnn_explainer,
        "`epochs` backward passes",
        "Ying et al., NeurIPS 2019",
        {"epochs": 100, "lr": 0.01, "edge_size": 0.005, "edge_ent": 1.0, "init": None},
        seeded=True,
    ),
    Method(
        "gnn_explainer_fast",
        gnn_explainer_fast,
        "`passes` backward passes",
        "a stand-in for GNNExplainer: its steps, with few gradients",
        {"passes": 4, "epochs": 100, "lr": 0.01, "edge_size": 0.005, "edge_ent": 1.0, "init": None},
        seeded=True,
    ),
    Method(
        "integrated_gradients",
        integrated_gradients,
        "`steps` backward passes",
        "Sundararajan et al., ICML 2017",
        {"steps": 50},
    ),
    Method("random", None, "none", "a yardstick: uniform on every edge", seeded=True),
    Method("full", full, "none", "a yardstick: the whole computation graph"),
)


class MethodTable(dict[str, Method]):
    """name → Method, printing as a table."""

    def __repr__(self) -> str:
        rows = [(m.name, ", ".join(m.levels), _settings(m), m.cost, m.reference) for m in self.values()]
        rows = [("method", "levels", "settings", "cost", "reference"), *rows]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _settings(method: Method) -> str:
    return ", ".join(f"{key}={value}" for key, value in method.settings.items()) or "-"


def methods() -> MethodTable:
    """Every method by name, with its levels, settings and defaults, cost and reference.

    >>> methods()["gnn_explainer"].settings["epochs"]
    100
    """
    return MethodTable({row.name: row for row in _ROWS})


def find_method(name: Any, level: str) -> Method:
    """The method of that name, or an error that lists the known ones."""
    table = methods()
    if not isinstance(name, str) or name not in table:
        near = get_close_matches(str(name), list(table), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise SettingError(f"method is {name!r}; known are {', '.join(table)}.{hint}")
    if level not in LEVELS:
        raise SettingError(
            f"level is {level!r}; known are 'input' (one weight per edge) and 'layer' (one per layer and edge)."
        )
    return table[name]


_OPTIONS = (
    "index",
    "level",
    "target",
    "task",
    "mode",
    "of",
    "forward",
    "top",
    "memory",
    "batch_size",
    "device",
    "seed",
)
_POSITIVE_WHOLE = ("epochs", "steps", "passes")
_NUMBERS = ("lr", "edge_size", "edge_ent", "epsilon")


def read_settings(method: Method, given: Mapping[str, Any]) -> dict[str, Any]:
    """The method's settings with defaults filled in; unknown names and impossible values raise."""
    for name in given:
        if name not in method.settings:
            known = ", ".join(method.settings) or "none"
            near = get_close_matches(name, [*method.settings, *_OPTIONS], n=1)
            hint = f" Did you mean {near[0]}=?" if near else ""
            raise SettingError(f"{method.name} has no setting {name!r}; its settings are: {known}.{hint}")
    settings = {**method.settings, **given}
    for name, value in settings.items():
        if name in _POSITIVE_WHOLE and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise SettingError(
                f"{name} is {value!r}; needed is a whole number of at least 1, such as {method.settings[name]}."
            )
        if name in _NUMBERS and (not isinstance(value, (int, float)) or isinstance(value, bool) or not isfinite(value)):
            raise SettingError(f"{name} is {value!r}; needed is a number, such as {method.settings[name]}.")
    if settings.get("lr", 1) <= 0:
        raise SettingError(f"lr is {settings['lr']!r}; needed is a step size above 0, such as {method.settings['lr']}.")
    return settings
