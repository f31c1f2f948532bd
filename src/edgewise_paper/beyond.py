"""The experiment on what Edgewise adds to the paper.

GNNExplainer in a few backward passes, walks that are proved to be maximal (and how often Algorithm 1 misses them), and signs
of gradients that are proved instead of sampled.

| part of a task | its rows |
|---|---|
| `fast explainer` | cosines to GNNExplainer and seconds, for several numbers of passes |
| `maximal walks` | how often Algorithm 1 misses the best walk, and what the exact search costs |
| `proofs` | shares of edges whose sign is proved, and seen, to stay the same |
"""

import time
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

import edgewise as ew
from edgewise import trust
from edgewise_paper.context import Context
from edgewise_paper.infection import QUICK_EVERY, TIED
from edgewise_paper.similarity import EXPLAINER, Average, cosines, model_graph_and_nodes
from edgewise_paper.task import PaperOptions, Row, Task, TaskOutcome
from edgewise_paper.training.networks import NODE_EPOCHS, Recipe

NAME = "beyond"
SEEDS = 10
PASSES = (1, 2, 3, 4, 6, 10)
"""Backward passes of the fast GNNExplainer; GNNExplainer itself takes 100."""
WALK_DEPTHS, PROOF_DEPTHS = (3, 4, 5), (2, 3, 4)  # layers
PROOF_TARGETS, PIECES = 100, 5
"""Test nodes for which signs are proved, and the number of pieces into which [0, 1] is cut for the finer proof."""


def tasks(options: PaperOptions) -> list[Task]:
    """One task for Infection and each seed; for networks on Cora, of the first seed, one for each part and depth."""
    epochs = 100 if options.quick else NODE_EPOCHS
    found = []
    for seed in options.seeds_of(at_least=SEEDS):
        about = {"dataset": "Infection", "architecture": "GraphSAGE", "layers": 4, "seed": seed}
        own: dict[str, Any] = {"explainer": EXPLAINER, "passes": list(PASSES)}
        own |= {"every": QUICK_EVERY} if options.quick else {}
        found.append(Task(NAME, "fast explainer", about | own, 5.0 if options.quick else 25.0))
    parts: list[tuple[str, str, tuple[int, ...], float]] = [
        ("fast explainer", "GCN", (2,) if options.quick else (1, 2, 3), 4.0),
        ("fast explainer", "GAT", () if options.quick else (2, 3), 40.0),
        ("fast explainer", "GIN", () if options.quick else (2, 3), 8.0),
        ("maximal walks", "GCN", (3,) if options.quick else WALK_DEPTHS, 4.0),
        ("proofs", "GCN", (2,) if options.quick else PROOF_DEPTHS, 5.0 if options.quick else 20.0),
        ("proofs", "GIN", () if options.quick else PROOF_DEPTHS[:2], 20.0),
    ]
    for part, architecture, depths, cost in parts:
        for layers in depths:
            recipe = Recipe("Cora", architecture, layers, 0, epochs)
            about = {
                "dataset": "Cora",
                "architecture": architecture,
                "layers": layers,
                "seed": 0,
                "training": recipe.plain,
            }
            own = {"explainer": EXPLAINER, "passes": list(PASSES)} if part == "fast explainer" else {}
            found.append(Task(NAME, part, about | own, cost))
    return found


def run(task: Task, context: Context) -> TaskOutcome:
    """One part of the experiment for one network."""
    model, data, index = model_graph_and_nodes(task, context)
    parts = {"fast explainer": _fast_rows, "maximal walks": _walk_rows, "proofs": _proof_rows}
    return TaskOutcome(list(parts[task.part](task, context, model, data, index)))


def _fast_rows(task: Task, context: Context, model: nn.Module, data: Any, index: Tensor) -> Iterator[Row]:
    """Cosines to GNNExplainer, and seconds: Positive Gradients, few passes, GNNExplainer itself from another random start."""

    def timed(**settings: Any) -> tuple[ew.ExplanationSet, float]:
        """Explanations, and the seconds that they took."""
        start = time.perf_counter()
        found = context.explain(model, data, index, **settings)
        return found, time.perf_counter() - start

    own = task.settings["explainer"]
    reference, seconds = timed(method="gnn_explainer", **own)
    others: dict[str, dict[str, Any]] = {
        "positive_gradient": {"method": "positive_gradient"},
        **{
            f"gnn_explainer_fast, {n} passes": {"method": "gnn_explainer_fast", "passes": n, **own}
            for n in task.settings["passes"]
        },
        "gnn_explainer, another start": {"method": "gnn_explainer", "seed": 1, **own},
    }
    yield task.row("seconds", seconds, method="gnn_explainer", count=len(index))
    for name, settings in others.items():
        found, seconds = timed(**settings)
        average = Average.of(cosines(found, reference))
        about = {"deviation": average.deviation, "count": average.count, "seconds": seconds}
        yield task.row("cosine", average.mean, method=name, reference="gnn_explainer", level="input", **about)


def _walk_rows(task: Task, _context: Context, model: nn.Module, data: Any, index: Tensor) -> Iterator[Row]:
    """How often Algorithm 1 misses the walk with the highest score, how much of the score is lost, and what a proof costs."""
    start = time.perf_counter()
    best = ew.walks(model, data, index, search="exact")
    seconds = time.perf_counter() - start
    other = ew.walks(model, data, index, search="dag")
    both = [(one[0].score, two[0].score) for one, two in zip(best, other, strict=True) if len(one) and len(two)]
    missed = [two < one - TIED * abs(one) for one, two in both]
    about = {"count": len(both), "seconds": seconds}
    yield task.row("maximal walk missed", sum(missed) / max(len(missed), 1), method="dag", **about)
    yield task.row("proven", sum(walks.exact for walks in best) / len(best), method="exact", **about)
    yield task.row("expanded prefixes", sum(walks.expansions for walks in best) / len(best), method="exact", **about)
    lost = [1 - two / one for one, two in both]
    yield task.row("score lost", sum(lost) / max(len(lost), 1), method="dag", **about)


def _proof_rows(task: Task, _context: Context, model: nn.Module, data: Any, index: Tensor) -> Iterator[Row]:
    """The share of edges whose gradient provably keeps its sign on all of [0, 1], and the share that was seen to keep it."""
    index = index[:PROOF_TARGETS]
    for pieces in (1, PIECES):
        start = time.perf_counter()
        proof = trust.certify(model, data, index, pieces=pieces)
        about = {"variant": f"{pieces} pieces", "count": len(index), "seconds": time.perf_counter() - start}
        yield task.row("sign proved", proof.share, method="certify", **about)
    start = time.perf_counter()
    seen = trust.sign_flips(model, data, index)
    about = {"count": len(index), "seconds": time.perf_counter() - start}
    yield task.row("sign kept", 1 - seen.share, method="sign_flips", **about)
