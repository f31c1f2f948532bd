"""The one table of methods: documentation, command line, benchmarks and the tests of all methods are loops over it.

A new method is one row of `_ROWS`: its function `(Score, level, **settings) → CopyScores`, its cost, its reference and the
defaults of its settings. `find_method` checks what a user asks for, `method_settings.py` the settings. The yardsticks need
no file of their own: `full` is here, and `random` is drawn when it is read (`random_numbers.random_scores`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgewise.algorithms.deep_lift import deep_lift
from edgewise.algorithms.degree import degree
from edgewise.algorithms.eig_search import eig_search, lowered_eig_search
from edgewise.algorithms.gnn_explainer import gnn_explainer, gnn_explainer_fast
from edgewise.algorithms.gradient import gradient, integrated_gradients, lowered_gradient, positive_gradient
from edgewise.algorithms.occlusion import occlusion
from edgewise.algorithms.occlusion_drops import lowered_occlusion
from edgewise.algorithms.shapley import shapley
from edgewise.algorithms.subgraph_x import subgraph_scores
from edgewise.algorithms.walk_sums import goat_walks, lrp
from edgewise.arguments import one_of
from edgewise.contract import checked
from edgewise.errors import SettingError
from edgewise.score import LEVELS, CopyScores, RowScores, Score, SparseScores, in_computation_graph
from edgewise.text import columns


@dataclass(frozen=True)
class Method:
    """One row of the table.

    A method runs in one of four ways, named by the field that is set: `function` (any model, through a `Score`), beside it
    `lowered` (a faster way for lowered models), `walking` (sums over walks) or `outside` (explainers of PyG).
    """

    name: str
    function: Callable[..., CopyScores] | None
    """`(score, level, **settings)`. `None` in all four fields: scores are drawn when they are looked at."""
    cost: str
    """What a target costs, in words."""
    reference: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Names and defaults of its own settings."""
    levels: tuple[str, ...] = LEVELS
    seeded: bool = False
    """Whether it draws random numbers: then it takes `seed` too."""
    by_edge: bool = False
    """Whether it takes a pass for each edge of the largest target of a block: graphs of like size belong together."""
    by_graph: bool = False
    """Whether compiled loops take one graph after another where the model is a chain (`program/graph_chain.py`)."""
    piece: int | None = None
    """From how many bytes of a lowered pass on a block is worth a core of its own; None: its blocks go one after another."""
    lowered: Callable[..., Iterator[tuple[int, SparseScores | RowScores]] | None] | None = None
    """`(question, level, memory, **settings)` for a lowered model: all targets at once, as `SparseScores` or `RowScores`; it
    returns None where it cannot."""
    walking: Callable[..., Iterator[tuple[int, SparseScores]]] | None = None
    """`(question, level, memory, **settings)`, instead of `function`: made from walks."""
    outside: Callable[..., Iterator[tuple[int, SparseScores]]] | None = None
    """Instead of `function`, for explainers from elsewhere: they take the whole question and run the model themselves."""
    chooses: bool = False
    """Whether it stands for another one, which is chosen when a question is asked (`api/method_choice.py`)."""
    stepwise: bool = False
    """Whether it interprets the steps of a lowered program, and refuses models that are run as they are."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What an explanation's settings say besides."""

    @property
    def differentiates(self) -> bool:
        """Whether its scores are gradients, or are found along them."""
        return self.name in _BY_GRADIENTS

    @property
    def is_drawn(self) -> bool:
        """Whether nothing is computed and scores are drawn when they are looked at (`random`)."""
        return self.function is None and self.outside is None and self.walking is None and not self.chooses


_BY_GRADIENTS = ("gradient", "positive_gradient", "integrated_gradients", "gnn_explainer")


def full(score: Score, level: str) -> CopyScores:
    """1 on the edges of the computation graph (layer l: receivers within L − 1 − l hops of the target), 0 elsewhere.

    >>> from edgewise.examples import path_score
    >>> full(path_score(gains=[2.0, 3.0]), "layer").edge      # copies: 1 → 2, 0 → 1; in layer 1 only 1 → 2 can matter
    tensor([[1., 1.],
            [1., 0.]])
    """
    inside = in_computation_graph(score)
    inside = inside if level == "layer" else inside.any(dim=0)
    return CopyScores(inside.to(score.target.truth.dtype))


_PIECE = 24 * 2**20
"""Bytes of a pass beside which its calls of torch cost little; sampling needs far more work for each of them."""
_SAMPLED_PIECE = 2**18

_ROWS = (
    Method(
        "gradient",
        gradient,
        "1 backward pass",
        "Pope et al., CVPR 2019",
        lowered=lowered_gradient,
        by_graph=True,
        piece=_PIECE,
    ),
    Method(
        "positive_gradient",
        positive_gradient,
        "1 backward pass",
        "He et al., KDD 2025",
        {"epsilon": 0.0},
        by_graph=True,
        piece=_PIECE,
    ),
    Method(
        "occlusion",
        occlusion,
        "a forward pass per edge (and layer) of the largest target",
        "Zeiler and Fergus, ECCV 2014",
        lowered=lowered_occlusion,
        by_edge=True,
        by_graph=True,
    ),
    Method(
        "gnn_explainer",
        gnn_explainer,
        "`epochs` backward passes",
        "Ying et al., NeurIPS 2019",
        {"epochs": 100, "lr": 0.01, "edge_size": 0.005, "edge_ent": 1.0, "init": None},
        seeded=True,
        piece=_PIECE,
    ),
    Method(
        "gnn_explainer_fast",
        gnn_explainer_fast,
        "`passes` backward passes",
        "a stand-in for GNNExplainer: its steps, with few gradients",
        {"passes": 4, "epochs": 100, "lr": 0.01, "edge_size": 0.005, "edge_ent": 1.0, "init": None},
        seeded=True,
        piece=_PIECE,
    ),
    Method(
        "integrated_gradients",
        integrated_gradients,
        "`steps` backward passes",
        "Sundararajan et al., ICML 2017",
        {"steps": 50},
        piece=_PIECE,
    ),
    Method(
        "deep_lift",
        deep_lift,
        "5 forward passes, 1 backward pass",
        "Shrikumar et al., ICML 2017",
        stepwise=True,
        piece=_PIECE,
    ),
    Method(
        "degree",
        degree,
        "3 forward passes per edge (and layer) of the largest target",
        "Feng et al., ICLR 2022",
        by_edge=True,
        stepwise=True,
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
        piece=_SAMPLED_PIECE,
    ),
    Method(
        "subgraphx",
        subgraph_scores,
        "`samples` forward passes for each of `beam` subgraphs of every size, several times over",
        "Yuan et al., ICML 2021",
        {"max_nodes": 6, "beam": 32, "samples": 100},
        levels=("input",),
        seeded=True,
    ),
    Method("auto", None, "measurements on 8 targets, then the method chosen", "docs/which-method.md", chooses=True),
    Method("random", None, "none", "a yardstick: uniform on every edge", seeded=True),
    Method("full", full, "none", "a yardstick: the whole computation graph"),
)


class MethodTable(dict[str, Method]):
    """Methods by name; it prints as a table."""

    def __repr__(self) -> str:
        rows = [(m.name, ", ".join(m.levels), _settings(m), m.cost, m.reference) for m in self.values()]
        return columns([("method", "levels", "settings", "cost", "reference"), *rows])


def _settings(method: Method) -> str:
    """A method's settings with their defaults, for the table."""
    return ", ".join(f"{key}={value}" for key, value in method.settings.items()) or "-"


@checked
def methods() -> MethodTable:
    """Every method by name, with its levels, settings and defaults, cost and reference.

    >>> methods()["gnn_explainer"].settings["epochs"]
    100
    >>> print(repr(methods()).split()[:5])
    ['method', 'levels', 'settings', 'cost', 'reference']
    """
    from edgewise.algorithms.own_methods import load_entry_points

    load_entry_points()
    return MethodTable({**built_in_methods(), **registered_methods})


def built_in_methods() -> dict[str, Method]:
    """Our own rows of the table."""
    return {row.name: row for row in _ROWS}


registered_methods: dict[str, Method] = {}
"""Rows that others have added (`own_methods.py`)."""


def find_method(name: Any, level: str) -> Method:
    """The method of that name, checked against a level; what `ew.from_pyg` made is a method already.

    >>> find_method("goat_walks", "layer")
    Traceback (most recent call last):
    edgewise.errors.SettingError: goat_walks has no level 'layer'. Use level='input'.
    """
    table = methods()
    _refuse_pyg(name)
    chosen = name if isinstance(name, Method) else table[one_of("method", name, table)]
    check_level(level)
    if level not in chosen.levels:
        raise SettingError(f"{chosen.name} has no level {level!r}. Use level={chosen.levels[0]!r}.")
    return chosen


def _refuse_pyg(given: Any) -> None:
    """Refuse PyG's explainers as they are, with the call that makes a method of them."""
    kind = given if isinstance(given, type) else type(given)
    names = [part.__name__ for part in kind.__mro__ if part.__module__.startswith("torch_geometric.explain")]
    if names:
        words = {"Explainer": "explainer.algorithm"}.get(kind.__name__, f"{kind.__name__}(...)")
        raise SettingError(
            f"`method` must be a name of ew.methods() or what ew.from_pyg makes, got PyG's {kind.__name__}. Use "
            f"method=ew.from_pyg({words})."
        )


def check_level(level: Any) -> None:
    """Refuse anything but `"input"` (one weight per edge) and `"layer"` (one per layer and edge).

    >>> check_level("layers")
    Traceback (most recent call last):
    edgewise.errors.SettingError: Unknown level 'layers'. Choose one of: input, layer. Did you mean 'layer'?
    """
    one_of("level", level, LEVELS)
