"""The Infection table of why-algorithm-1-is-not-exact.md: python docs/infection_walks.py [seed …]."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

import edgewise as ew
from edgewise.datasets import TrainedInfection, infection_model, infection_paths

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
    """One search on one seed, in percent of the valid nodes."""

    seed: int
    search: str
    maxima: float
    """The walk found has the largest relevance of all walks."""
    truth: float
    """It is the planted path, among the valid nodes."""
    truth_of_unique: float
    """The same among those to which exactly one shortest path leads."""


def valid_nodes(graph: Data) -> list[int]:
    """Nodes of class 0 to 4 with exactly one infected node within that distance."""
    senders: list[list[int]] = [[] for _ in range(graph.num_nodes)]
    for source, receiver in graph.edge_index.t().tolist():
        senders[receiver].append(source)
    infected = graph.x[:, 1] == 1

    def within(node: int, steps: int) -> int:
        seen = edge = {node}
        for _ in range(steps):
            edge = {u for v in edge for u in senders[v]} - seen
            seen = seen | edge
        return sum(bool(infected[u]) for u in seen)

    classes = graph.y.tolist()
    return [node for node, label in enumerate(classes) if label < 5 and within(node, label) == 1]


def is_right(graph: Data, walk: Sequence[int]) -> bool:
    """The source is infected, and the walk visits one node more than the class says; it may wait on the way."""
    return bool(graph.x[walk[0], 1] == 1) and len(set(walk)) == int(graph.y[walk[-1]]) + 1


def relevance(trained: TrainedInfection, walk: Sequence[int]) -> float:
    """Of one walk to its last node's class, written out: block after block (no graph here has loops or parallel edges)."""
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
    """Every search on the valid nodes of one seed's test graph; the explained class is the label."""
    trained = infection_model(seed)
    model, graph = trained.model, trained.graphs.test
    valid = valid_nodes(graph)
    unique = [len(infection_paths(graph, node)) == 1 for node in valid]
    best = [found[0].score for found in ew.walks(model, graph, valid, target=graph.y[valid])]
    rows = []
    for name, options in SEARCHES.items():
        found = ew.walks(model, graph, valid, target=graph.y[valid], **{"search": name, **options})
        tops = [one[0].nodes if len(one) else None for one in found]
        right = [top is not None and is_right(graph, top) for top in tops]
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
        print(f"seed {seed}: accuracy {100 * trained.test_accuracy:.2f} %, {len(valid)} valid nodes")
    for what in ("maxima", "truth", "truth_of_unique"):
        print(f"\n{what}, % | {' | '.join(map(str, seeds))} | mean")
        for name in SEARCHES:
            numbers = [getattr(row, what) for row in measured if row.search == name]
            print(f"{name} | {' | '.join(f'{n:.1f}' for n in numbers)} | {sum(numbers) / len(numbers):.2f}")


if __name__ == "__main__":
    main([int(seed) for seed in sys.argv[1:]] or range(5))
