"""Graphs whose right explanation is known because it was planted, and models that learn the task.

`load` makes a data set by its name, `names` lists them. Start with `planted_data.py`, what `load` returns; each of the other
files makes one kind of data set.
"""

from collections.abc import Callable
from functools import partial

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


def names() -> list[str]:
    """The names of all data sets, for `load`.

    >>> names()[:3]
    ['infection', 'negative_evidence', 'negative_evidence_multiclass']
    """
    return list(_MAKERS)


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
    key = str(name).strip().lower().replace("-", "_").replace(" ", "_")
    return _MAKERS[one_of("data set", key, _MAKERS)](whole_number("seed", seed))
