"""Graphs whose right explanation is known because it was planted, and models that learn the task.

`load` makes a data set by its name, `names` lists them, `register` adds somebody's own. Start with `planted_data.py`, what
`load` returns; each of the other files makes one kind of data set.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from edgewise.arguments import one_of, whole_number
from edgewise.contract import checked
from edgewise.datasets.infection import (
    InfectionGraphs,
    TrainedInfection,
    infection,
    infection_model,
    infection_paths,
    planted_infection,
)
from edgewise.datasets.molecules import toxic_groups
from edgewise.datasets.motifs import ba_2motifs, ba_shapes, tree_cycles, tree_grid
from edgewise.datasets.negative_evidence import negative_evidence
from edgewise.datasets.phrase_trees import sentiment_trees
from edgewise.datasets.planted_data import PlantedData, Trained
from edgewise.errors import InputError, SettingError

__all__ = [
    "InfectionGraphs",
    "PlantedData",
    "Trained",
    "TrainedInfection",
    "infection",
    "infection_model",
    "infection_paths",
    "load",
    "names",
    "register",
    "sentiment_trees",
]

_MAKERS: dict[str, Callable[[int], PlantedData]] = {
    "infection": planted_infection,
    "negative_evidence": negative_evidence,
    "negative_evidence_multiclass": partial(negative_evidence, num_colours=3),
    "ba_shapes": ba_shapes,
    "tree_cycles": tree_cycles,
    "tree_grid": tree_grid,
    "ba_2motifs": ba_2motifs,
    "toxic_groups": toxic_groups,
    "sentiment_trees": sentiment_trees,
}


_registered: dict[str, Callable[[int], PlantedData]] = {}
"""Data sets that others have added, for this process."""


def registered() -> dict[str, Callable[[int], PlantedData]]:
    """The data sets that others have added, by name."""
    return dict(_registered)


@checked
def register(name: str, make: Callable[..., Any]) -> None:
    """Put a data set beside ours, for this process: `load(name)` makes it, and the leaderboard takes it.

    Args:
        name: By which it is asked for.
        make: `make(seed)` gives a `PlantedData`: the graphs, the targets, their truth, and a way to train.

    >>> register("more_houses", lambda seed: load("ba_shapes", seed + 100))
    >>> load("more_houses").name, names()[-1]
    ('ba_shapes', 'more_houses')
    >>> _ = _registered.pop("more_houses")                     # so that this example leaves nothing behind
    """
    key = _key(name)
    if not key.isidentifier():
        raise SettingError(f"`name` must be a word such as 'my_graphs', got {name!r}.")
    if key in _MAKERS or key in _registered:
        raise SettingError(f"The name {name!r} is taken by another data set. Choose another one.")
    _registered[key] = make


def names() -> list[str]:
    """The names of all data sets, for `load`.

    >>> names()[:3]
    ['infection', 'negative_evidence', 'negative_evidence_multiclass']
    """
    return [*_MAKERS, *_registered]


@checked
def load(name: str, seed: int = 0) -> PlantedData:
    """Generate a data set with a planted truth; the same seed gives the same one. Global random state is left as it was.

    Args:
        name: One of `names()`; capitals and hyphens do not matter ("BA-Shapes").
        seed: Random seed of the graphs.

    >>> found = load("Tree-Cycles")
    >>> found.data.num_nodes, int(found.truth([600]).sum())      # a tree of 511 nodes, 80 cycles of 6; 6 edges, both ways
    (991, 12)
    """
    makers = {**_MAKERS, **_registered}
    key = one_of("data set", _key(name), makers)
    found = makers[key](whole_number("seed", seed))
    if not isinstance(found, PlantedData):
        raise InputError(f"The data set {key!r} must be a PlantedData, got {type(found).__name__}.")
    return found


def _key(name: str) -> str:
    return str(name).strip().lower().replace("-", "_").replace(" ", "_")
