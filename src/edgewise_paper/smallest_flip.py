"""How far are explanations from the smallest flip? Proven smallest sets of edges, beside what rankings take.

For each network the smallest set of edges is found whose silencing changes the predicted class, with a proof where possible.
Then edges are silenced from the top of each method's ranking until the class changes, and the two sizes are compared.

| part of a task | its rows |
|---|---|
| `sets` | shares of nodes with a proven answer, by status and for both kinds of edges; seconds; sizes |
| `rankings` | per method, for nodes whose proven set has two edges or more: how often as few, how many too many |
"""

import math
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

import edgewise as ew
from edgewise.counterfactuals.allowance import Allowance
from edgewise.counterfactuals.double_question import double_question
from edgewise.counterfactuals.first_answer import FirstSearch
from edgewise.counterfactuals.question_goals import QuestionGoals
from edgewise.counterfactuals.target_answers import TargetAnswers, unit_scores
from edgewise.question import pose
from edgewise_paper.context import Context
from edgewise_paper.similarity import EXPLAINER, Average, model_graph_and_nodes
from edgewise_paper.task import PaperOptions, Row, Task, TaskOutcome
from edgewise_paper.training.networks import NODE_EPOCHS, SAGE, Recipe

NAME = "smallest-flip"
SEEDS, NODES, SECONDS = 3, 200, 30.0
NETWORKS = (("GCN", 2), (SAGE, 2), ("GIN", 2), ("GCN", 3), (SAGE, 3))
METHODS = ("occlusion", "gradient", "integrated_gradients", "gnn_explainer", "random")
GREEDY = "greedy search"


def tasks(options: PaperOptions) -> list[Task]:
    """Two tasks for each network and seed."""
    nodes, seconds = (5, 1.0) if options.quick else (NODES, SECONDS)
    epochs = 100 if options.quick else NODE_EPOCHS
    about: list[dict[str, Any]] = []
    for seed in options.seeds_of(at_least=SEEDS, at_most=SEEDS):
        about.append({"dataset": "Infection", "architecture": "GraphSAGE", "layers": 4, "seed": seed})
        for dataset in ("Cora",) if options.quick else ("Cora", "CiteSeer"):
            for architecture, layers in NETWORKS[:1] if options.quick else NETWORKS:
                recipe = Recipe(dataset, architecture, layers, seed, epochs)
                network = {"dataset": dataset, "architecture": architecture, "layers": layers, "seed": seed}
                about.append({**network, "training": recipe.plain})
    found = []
    for one in about:
        asked = {**one, "nodes": nodes, "time": seconds}
        found.append(Task(NAME, "sets", asked, nodes * seconds / 10))
        found.append(Task(NAME, "rankings", {**asked, "explainer": EXPLAINER}, nodes * seconds / 10))
    return found


def run(task: Task, context: Context) -> TaskOutcome:
    """One part of the experiment for one network."""
    model, data, index = model_graph_and_nodes(task, context)
    draw = torch.Generator().manual_seed(task.settings["seed"])
    index = index[torch.randperm(len(index), generator=draw)[: task.settings["nodes"]]].sort().values
    rows = {"sets": _set_rows, "rankings": _ranking_rows}[task.part]
    return TaskOutcome(list(rows(task, context, model, data, index)))


# --- Proven sets --------------------------------------------------------------------------------------------------------


def _smallest(task: Task, model: nn.Module, data: Any, index: Tensor, *, undirected: bool) -> ew.CounterfactualSet:
    found = ew.counterfactual(model, data, index, undirected=undirected, seconds=task.settings["time"])
    assert isinstance(found, ew.CounterfactualSet)
    return found


def _set_rows(task: Task, _context: Context, model: nn.Module, data: Any, index: Tensor) -> Iterator[Row]:
    """Shares of the three statuses, for edges with both directions and for single columns."""
    for undirected in (True, False):
        start = time.perf_counter()
        found = _smallest(task, model, data, index, undirected=undirected)
        variant = "edges" if undirected else "columns"
        about = {"variant": variant, "count": len(found), "seconds": time.perf_counter() - start}
        counts = found.counts()
        yield task.row("proven or none", (counts["proven"] + counts["none"]) / len(found), **about)
        for status, number in counts.items():
            yield task.row(f"status {status}", number / len(found), **about)
        sizes = [float(one.size) for one in found if one.status == "proven" and one.size is not None]
        yield task.row("proven size", sum(sizes) / max(len(sizes), 1), **{**about, "count": len(sizes)})
        yield task.row("seconds per target", sum(one.seconds for one in found) / len(found), **about)


# --- Rankings -----------------------------------------------------------------------------------------------------------


def _ranking_rows(task: Task, context: Context, model: nn.Module, data: Any, index: Tensor) -> Iterator[Row]:
    """For each method: how often its ranking flips with as few edges as can be, and how many it takes too many."""
    smallest = _smallest(task, model, data, index, undirected=True)
    proven = {one.index: one.size for one in smallest if one.status == "proven" and (one.size or 0) >= 2}
    if not proven:
        return
    nodes = torch.tensor(sorted(proven))
    sizes = torch.tensor([float(proven[node] or 0) for node in nodes.tolist()], dtype=torch.double)
    for method, taken in prefix_sizes(model, data, nodes, context, task.settings["explainer"]).items():
        extra = taken - sizes  # NaN where no prefix flips
        never = extra.isnan()
        about = {"method": method, "count": len(nodes), "variant": "edges"}
        yield task.row("as few as can be", float((extra == 0).double().mean()), **about)
        yield task.row("never flips", float(never.double().mean()), **about)
        average = Average.of(extra)
        yield task.row("too many", average.mean, **{**about, "count": average.count}, deviation=average.deviation)


@torch.no_grad()
def prefix_sizes(
    model: nn.Module, data: Any, nodes: Tensor, context: Context, explainer: dict[str, Any]
) -> dict[str, Tensor]:
    """How many edges from the top of each ranking must be silenced until the class changes, `[T]`; NaN: all do not do it.

    Both directions of an edge go together; their scores are added. Edges that oppose the class come last.
    """
    settings = {method: explainer if method == "gnn_explainer" else {} for method in METHODS}
    with torch.enable_grad():
        scores = {m: context.explain(model, data, nodes, method=m, **own) for m, own in settings.items()}
    question = double_question(pose(model, data, nodes))
    goals, targets = QuestionGoals.of(question, None, None), TargetAnswers(question, "weight", undirected=True)
    found: dict[str, list[float]] = {name: [] for name in (GREEDY, *METHODS)}
    for position in range(len(nodes)):
        answers, goal = targets.of(position), goals.goal(position)
        assert goal is not None  # no class was asked for
        search = FirstSearch(answers, goal, Allowance())
        taken = {GREEDY: search.beam(1, answers.num_units)}
        for method in METHODS:
            taken[method] = search.prefix(-unit_scores(answers, scores[method][position].scores))
        for name, units in taken.items():
            found[name].append(math.nan if units is None else float(units.sum()))
    return {name: torch.tensor(sizes, dtype=torch.double) for name, sizes in found.items()}
