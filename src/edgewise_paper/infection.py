"""The experiment on Infection: 6×6 similarities at both levels, and the paths that walk searches recover.

Each seed is a small network, trained in two seconds, all of whose nodes are explained.

| part of a task | its rows |
|---|---|
| `input similarity` | accuracy, cosines of all pairs of methods, and why they differ from seed to seed (`_sign_rows`) |
| `layerwise similarity` | cosines of all pairs of methods in every layer |
| `paths` | how often each walk search finds the path that the infection took, and a walk with the highest score |
"""

import math
import time
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

import edgewise as ew
from edgewise.algorithms.gradient import weight_gradients
from edgewise.datasets.infection import MAX_PATH_LENGTH, TrainedInfection, infection_paths
from edgewise.score import Score
from edgewise_paper.code_habits import neighbourhood
from edgewise_paper.context import Context
from edgewise_paper.similarity import CODE, EXPLAINER, Average
from edgewise_paper.task import PaperOptions, Row, Task, TaskOutcome

NAME = "infection"
SEEDS = 10
QUICK_EVERY = 8
"""A quick run explains each n-th node."""
METHODS = ("positive_gradient", "gnn_explainer", "gradient", "occlusion", "random", "full")
TEXT_RATE = 0.003
"""The learning rate of GNNExplainer in the text; PyG's default, which the code uses, is 0.01."""
SEARCHES = ("exact", "dag", "amp_ave", "amp_ave_additive", "emp_neu")
TIED = 1e-6  # relative: the same score up to rounding
PICTURE = "infection paths"


def tasks(options: PaperOptions) -> list[Task]:
    """Three tasks for each seed."""
    found = []
    for seed in options.seeds_of(at_least=SEEDS):
        about: dict[str, Any] = {"dataset": "Infection", "architecture": "GraphSAGE", "layers": 4, "seed": seed}
        about |= {"every": QUICK_EVERY} if options.quick else {}
        explained, seconds = about | {"explainer": EXPLAINER}, 5.0 if options.quick else 15.0
        found += [
            Task(NAME, "input similarity", explained, seconds),
            Task(NAME, "layerwise similarity", explained, seconds),
            Task(NAME, "paths", about, seconds),
        ]
    return found


def run(task: Task, context: Context) -> TaskOutcome:
    """Train the network of the task's seed, and explain every node that has an edge."""
    start = time.perf_counter()
    trained = context.infection(task.settings["seed"])
    seconds = time.perf_counter() - start
    if task.part == "paths":
        return path_outcome(task, trained)
    if task.part == "layerwise similarity":
        return TaskOutcome(list(_layer_rows(task, context, trained)))
    accuracy = task.row("accuracy", trained.test_accuracy, count=trained.graphs.test.num_nodes, seconds=seconds)
    return TaskOutcome([accuracy, *_input_rows(task, context, trained), *_sign_rows(task, context, trained)])


def _nodes(task: Task, trained: TrainedInfection) -> Tensor:
    """What is explained: all nodes with an edge, or in a quick run each n-th of them."""
    return trained.graphs.test.edge_index.unique()[:: task.settings.get("every", 1)]


def _explain(
    task: Task, context: Context, trained: TrainedInfection, level: str
) -> tuple[dict[str, ew.ExplanationSet], float]:
    """Explanations by method, and the seconds that GNNExplainer took."""
    graph, nodes = trained.graphs.test, _nodes(task, trained)
    found, seconds = {}, 0.0
    for method in METHODS:
        start = time.perf_counter()
        settings = task.settings["explainer"] if method == "gnn_explainer" else {}
        found[method] = context.explain(trained.model, graph, nodes, method=method, level=level, **settings)
        seconds = time.perf_counter() - start if method == "gnn_explainer" else seconds
    return found, seconds


def _pairs(task: Task, found: dict[str, ew.ExplanationSet], **where: Any) -> Iterator[Row]:
    """Mean cosines of all pairs of methods; at layer level a row for each layer."""
    for one, other in combinations(METHODS, 2):
        cosine = ew.similarity(found[one], found[other], per_layer=where["level"] == "layer")
        for layer, column in enumerate(cosine.view(len(cosine), -1).t(), start=1):
            average = Average.of(column)
            about = {"deviation": average.deviation, "count": average.count, "method": other, "reference": one}
            number = layer if where["level"] == "layer" else 0
            yield task.row("cosine", average.mean, layer=number, **about, **where)


def _input_rows(task: Task, context: Context, trained: TrainedInfection) -> Iterator[Row]:
    """All pairs at the input level, and GNNExplainer with the text's learning rate.

    Full masks are those of the four-hop neighbourhood; the code's are a hop wider (variant `code`).
    """
    found, seconds = _explain(task, context, trained, "input")
    found["full"] = neighbourhood(found["full"], [4])
    yield from _pairs(task, found, level="input", seconds=seconds)
    wide = {**found, "full": neighbourhood(found["full"], [5])}
    yield from (row for row in _pairs(task, wide, level="input", variant=CODE) if row.method == "full")
    slower = context.explain(
        trained.model, trained.graphs.test, found["full"].index, method="gnn_explainer",
        **{**task.settings["explainer"], "lr": TEXT_RATE},
    )  # fmt: skip
    average = Average.of(ew.similarity(slower, found["positive_gradient"]))
    about = {
        "level": "input",
        "method": "gnn_explainer",
        "reference": "positive_gradient",
        "variant": f"lr {TEXT_RATE}",
    }
    yield task.row("cosine", average.mean, deviation=average.deviation, count=average.count, **about)


def _layer_rows(task: Task, context: Context, trained: TrainedInfection) -> Iterator[Row]:
    """All pairs in every layer.

    The text's full mask is the computation graph; the code's is the whole neighbourhood, a hop too wide in every layer.
    """
    found, seconds = _explain(task, context, trained, "layer")
    yield from _pairs(task, found, level="layer", seconds=seconds)
    wide = {**found, "full": neighbourhood(found["full"], [5, 4, 3, 2])}
    yield from (row for row in _pairs(task, wide, level="layer", variant=CODE) if row.method == "full")


def _sign_rows(task: Task, context: Context, trained: TrainedInfection) -> Iterator[Row]:
    """The share of edges on which the gradient that moves GNNExplainer's masks has the sign of the logit's gradient at ω = 1.

    The masks start at ω = ½ and follow the log-probability; Positive Gradients look at the logit, at ω = 1. One row for each
    of the two changes and one for both.
    """
    graph, nodes = trained.graphs.test, _nodes(task, trained)

    def gradient(of: str, weight: float) -> tuple[Score, Tensor]:
        """`[M]`: ∂/∂ω_e of the logit or log-probability of each target, all weights at the same value."""
        score = Score(trained.model, graph, nodes, of=of, device=context.options.device)
        return score, weight_gradients(score, score.ones() * weight, None)[0].sum(dim=0)

    score, reference = gradient("logit", 1.0)
    for of, weight in (("log_prob", 1.0), ("logit", 0.5), ("log_prob", 0.5)):
        _, other = gradient(of, weight)
        counted = (reference != 0) | (other != 0)
        agree = _by_target(score, ((reference > 0) == (other > 0)) & counted) / _by_target(score, counted)
        average = Average.of(agree)
        about = {"deviation": average.deviation, "count": average.count, "reference": "logit at ω = 1"}
        yield task.row("sign agreement", average.mean, method=f"{of} at ω = {weight:g}", level="input", **about)


def _by_target(score: Score, flags: Tensor) -> Tensor:
    """`[T]`: how many of its edges (`flags`, `[M]`) each target has set."""
    return torch.zeros(score.num_targets, dtype=torch.double).index_add_(0, score.owner.cpu(), flags.cpu().double())


# --- Do walk searches find the path that the infection took? -----------------------------------------------------------


def path_outcome(task: Task, trained: TrainedInfection) -> TaskOutcome:
    """Path recovery, maximality and seconds of every search; a picture if there is a node that tells two searches apart.

    Recovery counts the nodes with one shortest path from an infected node; the code (variant `code`) also counts nodes with
    several of them from one source.
    """
    graph = trained.graphs.test
    near = (graph.y <= MAX_PATH_LENGTH).nonzero().view(-1)[:: task.settings.get("every", 1)]
    paths = {int(node): infection_paths(graph, int(node)) for node in near}
    valid = {  # nodes that count
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
    return TaskOutcome(rows, _pictures(graph, found, valid[""]))


def _right(walks: Any, graph: Data, node: int) -> bool:
    """Whether the best walk starts at an infected node and visits as many nodes as the shortest path has.

    A walk may stay on a node for a step.
    """
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
    """For the figure: a node where Algorithm 1 is right and AMP-ave is not, the farthest one; its surroundings as edges."""
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
    columns = touching.all(dim=0) | touching[1]  # with all nodes that send to a node of the walks
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
