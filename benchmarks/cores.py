"""Two cores against one, by the clock: `python -m benchmarks.cores`.

A job is asked on one core and on two, by turns, and the best time of each counts: whatever else runs on the machine only adds
time. Scores are compared bit by bit. The question is held, so asking it is not timed.

Beside the clock stands what a busy machine cannot disturb: the share of the processor time that is spread over cores, and the
ratio that two cores cannot exceed with it, 1 / (1 − share / 2). Waiting for Python's lock is not in it.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterable, Iterator
from statistics import median
from typing import Any

import torch

import edgewise as ew
from benchmarks import jobs, models
from benchmarks.data import proteins
from benchmarks.machine import describe
from edgewise import cores
from edgewise.api import explain as explain_module
from edgewise.program import graph_chain, slot_drops, target_gradients
from edgewise.text import columns

Job = tuple[str, Any, str, str, dict[str, Any]]


def cases() -> Iterator[Job]:
    """(title, question, method, level, settings) of large jobs, and of one node."""
    cora, infection = jobs.cora("gcn"), jobs.infection()
    every = ew.Question(cora.model, cora.data)
    tested = ew.Question(cora.model, cora.data, cora.nodes)
    people = ew.Question(infection.model, infection.data, infection.nodes)
    attention = jobs.cora("gatv2")
    yield "one Cora node, GCN", ew.Question(cora.model, cora.data, 7), "gradient", "layer", {}
    yield "all 2708 Cora nodes, GCN", every, "gradient", "layer", {}
    yield "all 2708 Cora nodes, GCN", every, "occlusion", "input", {}
    yield "all 2708 Cora nodes, GCN", every, "occlusion", "layer", {}
    yield "497 Cora nodes, GCN", tested, "gnn_explainer", "input", {}
    yield "497 Cora nodes, GCN", tested, "integrated_gradients", "input", {}
    yield "100 Cora nodes, GCN", tested.of(cora.nodes[:100]), "shapley", "input", {"samples": 20}
    yield "1000 Infection nodes", people, "gradient", "layer", {}
    yield "1000 Infection nodes", people, "occlusion", "layer", {}
    yield "1000 Infection nodes", people, "gnn_explainer", "input", {"epochs": 30}
    asked = ew.Question(attention.model, attention.data, attention.nodes)
    yield "497 Cora nodes, GATv2", asked, "occlusion", "layer", {}
    yield "497 Cora nodes, GATv2", asked, "gnn_explainer", "input", {"epochs": 10}
    yield (
        "1113 PROTEINS graphs, GIN",
        ew.Question(models.proteins_model(), proteins(), task="graph"),
        "occlusion",
        "layer",
        {},
    )


class Spread:
    """Processor seconds inside the parts that `spread` hands to threads."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        for user in (explain_module, graph_chain, slot_drops, target_gradients):
            user.spread = self  # type: ignore[attr-defined]

    def __call__(self, function: Callable[[Any], Any], parts: Iterable[Any]) -> Iterator[Any]:
        def timed(part: Any) -> Any:
            start = time.thread_time()
            try:
                return function(part)
            finally:
                self.seconds.append(time.thread_time() - start)

        listed = list(parts)
        return cores.spread(timed if len(listed) > 1 else function, listed)


def measured(job: Job, rounds: int, inside: Spread) -> list[str]:
    """A row of the table."""
    title, question, method, level, settings = job
    best, found, shares = {1: float("inf"), 2: float("inf")}, {}, []
    for _ in range(rounds):
        for threads in best:
            inside.seconds.clear()
            start, spent = time.perf_counter(), time.process_time()
            found[threads] = question.explain(method, level=level, threads=threads, **settings)
            best[threads] = min(best[threads], time.perf_counter() - start)
        shares.append(sum(inside.seconds) / (time.process_time() - spent))  # of the run on two cores
    share = median(shares)
    one, two = (torch.cat([torch.as_tensor(part.scores).flatten() for part in _listed(found[n])]) for n in (1, 2))
    same = "the same bits" if torch.equal(one, two) else "DIFFERENT"
    clock = [f"{best[1]:.4f}", f"{best[2]:.4f}", f"{best[1] / best[2]:.2f}×"]
    return [title, f"{method} ({level})", *clock, f"{share:.0%}", f"{1 / (1 - share / 2):.2f}×", same]


def _listed(found: Any) -> Any:
    return found if isinstance(found, ew.ExplanationSet) else [found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each job is done on one core and on two")
    parser.add_argument("--only", default="", help="jobs whose title or method contains this")
    asked = parser.parse_args()
    print(", ".join(f"{key} {value}" for key, value in describe().items()))
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    torch.set_num_threads(2)
    inside = Spread()
    rows = [("job, held", "method", "one core, s", "two cores, s", "by the clock", "spread", "at most", "scores")]
    for job in cases():
        if asked.only in f"{job[0]} {job[2]}":
            rows.append(tuple(measured(job, asked.rounds, inside)))
            print(columns([rows[-1]]), flush=True)
    print("\n".join(f"| {' | '.join(row)} |" for row in rows))


if __name__ == "__main__":
    main()
