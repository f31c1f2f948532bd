"""The Infection table of why-algorithm-1-is-not-exact.md: python docs/infection_walks.py [seed …]."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import edgewise as ew
from edgewise.datasets import TrainedInfection, infection_model, infection_paths
from edgewise.datasets.infection import clear_nodes, is_true_path

SEARCHES: dict[str, dict[str, Any]] = {
    "exact": {},
    "dag": {},
    "dag, width=4": {"search": "dag", "width": 4},
    "amp_ave": {},
    "amp_ave_additive": {},
    "emp_neu": {},
}


@dataclass(frozen=True)
class Row:
    """One search on one seed, in percent of the nodes with a clear true path."""

    seed: int
    search: str
    maxima: float
    """The walk found has the largest relevance of all walks."""
    truth: float
    """It is the planted path, among these nodes."""
    truth_of_unique: float
    """The same among those to which exactly one shortest path leads."""


def relevance(trained: TrainedInfection, walk: Sequence[int]) -> float:
    """How much a walk adds to the logit of its last node's class, block after block; no graph here has loops."""
    model, graph = trained.model, trained.graphs.test
    with torch.no_grad():
        states: list[Tensor] = [graph.x]
        for number, conv in enumerate(model.convs):
            summed = conv(states[-1], graph.edge_index)
            states.append(summed if number + 1 == len(model.convs) else summed.relu())
    vector = graph.x[walk[0]].double()
    for number, conv in enumerate(model.convs):
        matrix = conv.lin_r.weight if walk[number] == walk[number + 1] else conv.lin_l.weight
        vector = matrix.detach().double() @ vector
        if number + 1 < len(model.convs):
            vector = vector * (states[number + 1][walk[number + 1]] > 0)
    return float(vector[int(graph.y[walk[-1]])])


def measure(seed: int) -> tuple[TrainedInfection, list[int], list[Row]]:
    """Every search on the clear nodes of one seed's test graph; the explained class is the label."""
    trained = infection_model(seed)
    model, graph = trained.model, trained.graphs.test
    valid = clear_nodes(graph).tolist()
    unique = [len(infection_paths(graph, node)) == 1 for node in valid]
    best = [found[0].score for found in ew.walks(model, graph, valid, target=graph.y[valid])]
    rows = []
    for name, options in SEARCHES.items():
        found = ew.walks(model, graph, valid, target=graph.y[valid], **{"search": name, **options})
        tops = [one[0].nodes if len(one) else None for one in found]
        right = [top is not None and is_true_path(graph, top[-1], top) for top in tops]
        maximal = [
            top is not None and relevance(trained, top) >= score * (1 - 1e-9)
            for top, score in zip(tops, best, strict=True)
        ]
        among_unique = [hit for hit, alone in zip(right, unique, strict=True) if alone]
        rows.append(Row(seed, name, *(100 * sum(hits) / len(hits) for hits in (maximal, right, among_unique))))
    return trained, valid, rows


def main(seeds: Sequence[int]) -> None:
    """Print the table."""
    measured = []
    for seed in seeds:
        trained, valid, rows = measure(seed)
        measured += rows
        print(f"seed {seed}: accuracy {100 * trained.test_accuracy:.2f} %, {len(valid)} clear nodes")
    for what in ("maxima", "truth", "truth_of_unique"):
        print(f"\n{what}, % | {' | '.join(map(str, seeds))} | mean")
        for name in SEARCHES:
            numbers = [getattr(row, what) for row in measured if row.search == name]
            print(f"{name} | {' | '.join(f'{n:.1f}' for n in numbers)} | {sum(numbers) / len(numbers):.2f}")


if __name__ == "__main__":
    main([int(seed) for seed in sys.argv[1:]] or range(5))
