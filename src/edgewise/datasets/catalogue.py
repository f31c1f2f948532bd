"""Every data set with a planted truth, by name."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial

import torch
from torch import Tensor

from edgewise.datasets.infection import MAX_PATH_LENGTH, InfectionGraphs, infection, infection_model, infection_paths
from edgewise.datasets.motifs import ba_2motifs, ba_shapes, tree_cycles, tree_grid
from edgewise.datasets.negative_evidence import negative_evidence
from edgewise.datasets.planted_data import PlantedData, Trained
from edgewise.errors import SettingError


@dataclass(frozen=True, eq=False, repr=False)
class PlantedInfection(PlantedData):
    """The test graph of `infection`; the truth of a node is every edge on a shortest path from an infected node."""

    graphs: InfectionGraphs

    def paths(self, index: int) -> list[tuple[int, ...]]:
        """The shortest paths to a node, infected node first."""
        return infection_paths(self.data, index)

    def _truth(self, index: Tensor) -> Tensor:
        source, receiver = self.data.edge_index
        closer = self.data.y[source] == self.data.y[receiver] - 1
        taken = torch.zeros(len(index), len(source), dtype=torch.bool)
        on_path = torch.zeros(len(index), self.data.num_nodes, dtype=torch.bool)
        on_path[torch.arange(len(index)), index] = True
        for _ in range(MAX_PATH_LENGTH):
            taken |= on_path[:, receiver] & closer
            reached = taken.nonzero()
            on_path[reached[:, 0], source[reached[:, 1]]] = True
        return taken.to(torch.int8)

    def _train(self, seed: int) -> Trained:
        found = infection_model(seed, graphs=self.graphs)
        return Trained(found.model, found.training_accuracy, found.test_accuracy)


def planted_infection(seed: int) -> PlantedInfection:
    """Nodes one to four steps away from an infected one have a truth."""
    graphs = infection(seed)
    away = ((graphs.test.y > 0) & (graphs.test.y <= MAX_PATH_LENGTH)).nonzero().view(-1)
    return PlantedInfection("infection", graphs.test, away, seed, graphs)


_MAKERS: dict[str, Callable[[int], PlantedData]] = {
    "infection": planted_infection,
    "negative_evidence": negative_evidence,
    "negative_evidence_multiclass": partial(negative_evidence, num_colours=3),
    "ba_shapes": ba_shapes,
    "tree_cycles": tree_cycles,
    "tree_grid": tree_grid,
    "ba_2motifs": ba_2motifs,
}


def names() -> list[str]:
    """The data sets that `load` knows."""
    return list(_MAKERS)


def load(name: str, seed: int = 0) -> PlantedData:
    """Generate a data set with a planted truth; the same seed gives the same one. Global random state is left as it was.

    Args:
        name: One of `names()`; capitals and hyphens do not matter ("BA-Shapes").
        seed: Of the graphs.

    >>> found = load("Tree-Cycles")
    >>> found.data.num_nodes, int(found.truth([600]).sum())      # a tree of 511 nodes, 80 cycles of 6; 6 edges, both ways
    (991, 12)
    """
    key = str(name).strip().lower().replace("-", "_").replace(" ", "_")
    if key not in _MAKERS:
        near = get_close_matches(key, names(), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise SettingError(f"name is {name!r}; known are {', '.join(names())}.{hint}")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise SettingError(f"seed is {seed!r}; needed is a whole number.")
    return _MAKERS[key](seed)
