"""Two cores against one, by the clock: `python -m benchmarks.cores`.

A job is asked on one core and on two, by turns, and the best time of each counts: whatever else runs on the machine only adds
time. Scores are compared bit by bit. The question is held, so asking it is not timed.
"""

import argparse
import os
import time
from collections.abc import Iterator
from typing import Any

import torch

import edgewise as ew
from benchmarks import jobs, models
from benchmarks.data import proteins
from benchmarks.machine import describe
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


def measured(job: Job, rounds: int) -> list[str]:
    """A row of the table."""
    title, question, method, level, settings = job
    best, found = {1: float("inf"), 2: float("inf")}, {}
    for _ in range(rounds):
        for threads in best:
            start = time.perf_counter()
            found[threads] = question.explain(method, level=level, threads=threads, **settings)
            best[threads] = min(best[threads], time.perf_counter() - start)
    one, two = (torch.cat([torch.as_tensor(part.scores).flatten() for part in _listed(found[n])]) for n in (1, 2))
    same = "the same bits" if torch.equal(one, two) else "DIFFERENT"
    return [title, f"{method} ({level})", f"{best[1]:.4f}", f"{best[2]:.4f}", f"{best[1] / best[2]:.2f}×", same]


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
    rows = [("job", "method", "one core, s", "two cores, s", "ratio", "scores")]
    for job in cases():
        if asked.only in f"{job[0]} {job[2]}":
            rows.append(tuple(measured(job, asked.rounds)))
            print(columns([rows[-1]]), flush=True)
    print("\n".join(f"| {' | '.join(row)} |" for row in rows))


if __name__ == "__main__":
    main()
