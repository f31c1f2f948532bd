"""Do walk searches find the way that the infection took?"""

import math
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch_geometric.data import Data

import edgewise as ew
from edgewise.datasets.infection import MAX_PATH_LENGTH, TrainedInfection, infection_paths
from edgewise.experiments.similarities import CODE
from edgewise.experiments.tasks import Outcome, Task

SEARCHES = ("exact", "dag", "amp_ave", "amp_ave_additive", "emp_neu")
TIED = 1e-6  # relative: the same score up to rounding
PICTURE = "infection paths"


def path_outcome(task: Task, trained: TrainedInfection) -> Outcome:
    """Rows for every search, and for a seed that has one, a node where Algorithm 1 is right and AMP-ave is not."""
    graph = trained.graphs.test
    near = (graph.y <= MAX_PATH_LENGTH).nonzero().view(-1)
    paths = {int(node): infection_paths(graph, int(node)) for node in near}
    valid = {
        "": [node for node, some in paths.items() if len(some) == 1],
        CODE: [node for node, some in paths.items() if len({path[0] for path in some}) == 1],
    }
    rows = []
    found: dict[str, dict[int, Any]] = {}
    for search in SEARCHES:
        start = time.perf_counter()
        sets = ew.walks(trained.model, graph, near, target=graph.y[near], search=search)
        seconds = (time.perf_counter() - start) / len(near)
        found[search] = {walks.index: walks for walks in sets}
        for variant, nodes in valid.items():
            right = [_right(found[search][node], graph, node) for node in nodes]
            about = {"method": search, "variant": variant, "count": len(nodes), "seconds": seconds}
            rows.append(task.row("path recovery", sum(right) / len(right), **about))
        if search != "emp_neu":  # its walks are of neurons: other scores
            best = [_as_good(found[search][node], found["exact"][node]) for node in valid[CODE]]
            rows.append(task.row("walk is maximal", sum(best) / len(best), method=search, count=len(best)))
        rows.append(task.row("seconds per target", seconds, method=search, count=len(near)))
    return Outcome(rows, _pictures(graph, found, valid[""]))


def _right(walks: Any, graph: Data, node: int) -> bool:
    """The source is infected, and the walk has as many nodes as the shortest way; waiting on a node is allowed."""
    if not len(walks):
        return False
    nodes = walks[0].nodes
    return bool(graph.x[nodes[0], 1] == 1) and len(set(nodes)) == int(graph.y[node]) + 1


def _as_good(walks: Any, best: Any) -> bool:
    """Whether the search found a walk with the highest score of all."""
    if not len(walks) or not len(best):
        return len(walks) == len(best)
    return math.isclose(walks[0].score, best[0].score, rel_tol=TIED)


def _pictures(graph: Data, found: dict[str, dict[int, Any]], nodes: Sequence[int]) -> dict[str, Any]:
    """The farthest such node; its surroundings as edges."""
    chosen = [
        node
        for node in nodes
        if int(graph.y[node]) >= 3
        and _right(found["dag"][node], graph, node)
        and len(found["amp_ave_additive"][node])
        and not _right(found["amp_ave_additive"][node], graph, node)
    ]
    if not chosen:
        return {}
    node = min(chosen, key=lambda one: (-int(graph.y[one]), one))
    walks = {search: list(found[search][node][0].nodes) for search in ("dag", "amp_ave_additive")}
    shown = torch.tensor(sorted({place for walk in walks.values() for place in walk}))
    touching = torch.isin(graph.edge_index, shown)
    columns = touching.all(dim=0) | touching[1]  # with all who send to a node on one of the walks
    edges = graph.edge_index[:, columns].t().tolist()
    infected = [place for place in {end for edge in edges for end in edge} if graph.x[place, 1] == 1]
    return {
        PICTURE: {
            "node": node,
            "class": int(graph.y[node]),
            "walks": walks,
            "edges": edges,
            "infected": sorted(infected),
        }
    }
