"""The one table of methods: documentation, command line, benchmarks and the tests of all methods are loops over it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from math import isfinite
from typing import Any

from edgewise.algorithms.baselines import full
from edgewise.algorithms.copy_scores import LEVELS, CopyScores, SparseScores
from edgewise.algorithms.eig_search import eig_search, lowered_eig_search
from edgewise.algorithms.gnn_explainer import gnn_explainer, gnn_explainer_fast
from edgewise.algorithms.gradient import gradient, integrated_gradients, positive_gradient
from edgewise.algorithms.occlusion import lowered_occlusion, occlusion
from edgewise.algorithms.shapley import shapley
from edgewise.algorithms.walk_sums import goat_walks, lrp
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
    by_edge: bool = False
    """Whether it takes a pass for each edge of the largest target of a block: graphs of like size belong together."""
    lowered: Callable[..., Iterator[tuple[int, SparseScores]] | None] | None = None
    """For a lowered model: all targets at once, looking deeper than a `Score`; it gives None where it cannot."""
    walking: Callable[..., Iterator[tuple[int, SparseScores]]] | None = None
    """Instead of `function`: made from walks."""
    outside: Callable[..., Iterator[tuple[int, SparseScores]]] | None = None
    """Of methods that are not ours: asked about the whole question, they bring their own way to run the model."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What an explanation's settings say besides."""

    @property
    def is_drawn(self) -> bool:
        """Whether nothing is computed: scores are drawn when they are looked at."""
        return self.function is None and self.outside is None and self.walking is None


_ROWS = (
    Method("gradient", gradient, "1 backward pass", "Pope et al., CVPR 2019"),
    Method("positive_gradient", positive_gradient, "1 backward pass", "He et al., KDD 2025", {"epsilon": 0.0}),
    Method(
        "occlusion",
        occlusion,
        "a forward pass per edge (and layer) of the largest target",
        "Zeiler and Fergus, ECCV 2014",
        lowered=lowered_occlusion,
        by_edge=True,
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
    Method(
        "lrp",
        None,
        "1 pass over the computation graphs",
        "Schnake et al., TPAMI 2021; sums over walks: Xiong et al., ICML 2022",
        {"rule": "lrp-epsilon", "epsilon": 1e-9, "gamma": 0.25, "attention": "fixed", "norm": None},
        walking=lrp,
    ),
    Method(
        "goat_walks",
        None,
        "every walk",
        "Lu et al., ICLR 2024, as read by He et al., KDD 2025",
        {"attention": "fixed", "norm": None},
        levels=("input",),
        walking=goat_walks,
    ),
    Method(
        "eig_search",
        eig_search,
        "as occlusion",
        "Lu et al., ICML 2024",
        {"w_base": 0.0, "undirected": False},
        lowered=lowered_eig_search,
        by_edge=True,
    ),
    Method(
        "shapley",
        shapley,
        "`samples` forward passes per edge (and layer) of the largest target",
        "Castro et al., Computers & OR 2009",
        {"samples": 50},
        seeded=True,
        by_edge=True,
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
    """The method of that name, or an error that lists the known ones; what `ew.from_pyg` made is a method already."""
    table = methods()
    if not isinstance(name, Method) and (not isinstance(name, str) or name not in table):
        near = get_close_matches(str(name), list(table), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise SettingError(f"method is {name!r}; known are {', '.join(table)}.{hint}")
    chosen = name if isinstance(name, Method) else table[name]
    check_level(level)
    if level not in chosen.levels:
        raise SettingError(f"{chosen.name} has no level {level!r}; it has {', '.join(map(repr, chosen.levels))}.")
    return chosen


def check_level(level: Any) -> None:
    """Refuse what is no level."""
    if level not in LEVELS:
        raise SettingError(
            f"level is {level!r}; known are 'input' (one weight per edge) and 'layer' (one per layer and edge)."
        )


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
_POSITIVE_WHOLE = ("epochs", "steps", "samples", "passes")
_NUMBERS = ("lr", "edge_size", "edge_ent", "epsilon", "w_base")
_SWITCHES = ("undirected",)


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
        _check_value(name, value, method.settings[name])
    return settings


def _check_value(name: str, value: Any, default: Any) -> None:
    """Refuse a value outside its range."""
    if name in _POSITIVE_WHOLE and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise SettingError(f"{name} is {value!r}; needed is a whole number of at least 1, such as {default}.")
    if name in _NUMBERS and (not isinstance(value, (int, float)) or isinstance(value, bool) or not isfinite(value)):
        raise SettingError(f"{name} is {value!r}; needed is a number, such as {default}.")
    if name in _SWITCHES and not isinstance(value, bool):
        raise SettingError(f"{name} is {value!r}; needed is True or False.")
    if name == "lr" and value <= 0:
        raise SettingError(f"lr is {value!r}; needed is a step size above 0, such as {default}.")
    if name == "w_base" and value == 1:
        raise SettingError(
            f"w_base is 1, the weight that every edge has already; needed is another, such as {default}."
        )
