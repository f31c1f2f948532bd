"""load() and names(): every data set with a planted truth, by name; and Infection as one of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from edgewise.arguments import one_of, whole_number
from edgewise.datasets.infection import MAX_PATH_LENGTH, InfectionGraphs, infection, infection_model, infection_paths
from edgewise.datasets.motifs import ba_2motifs, ba_shapes, tree_cycles, tree_grid
from edgewise.datasets.negative_evidence import negative_evidence
from edgewise.datasets.planted_data import PlantedData, Trained


@dataclass(frozen=True, eq=False, repr=False)
class PlantedInfection(PlantedData):
    """The test graph of `infection`; the truth of a node is every edge on a shortest path from an infected node."""

    graphs: InfectionGraphs

    def paths(self, index: int) -> list[tuple[int, ...]]:
        """The shortest paths to a node, infected node first."""
        return infection_paths(self.data, index)

    def _truth(self, index: Tensor) -> Tensor:
        """`[T, E]`: edges on shortest paths, found by walking back from the targets, one step nearer to an infection a time.

        Path 0 → 1 → 2 with node 0 infected, so that `y` is (0, 1, 2): both edges lead one step farther (`closer`). From
        target 2 the first step takes the edge 1 → 2 and reaches node 1, the second takes 0 → 1.
        """
        source, receiver = self.data.edge_index
        closer = self.data.y[source] == self.data.y[receiver] - 1
        taken = torch.zeros(len(index), len(source), dtype=torch.bool)  # [T, E]
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
    """Infection as a data set with a planted truth: that of nodes one to four steps away from an infected node."""
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
    """The names of all data sets, for `load`.

    >>> names()[:3]
    ['infection', 'negative_evidence', 'negative_evidence_multiclass']
    """
    return list(_MAKERS)


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
