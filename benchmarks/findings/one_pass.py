"""GNNExplainer with one gradient in place of a hundred, beside the noise between two of its starts, on all planted data sets.

python -m benchmarks.findings.one_pass --workers 16
"""

import math
from typing import Any

import edgewise as ew
from benchmarks.findings.study import Row, Study, markdown, spanned
from edgewise.board.entrants import EntrantAnswer
from edgewise.board.measures import measured
from edgewise.board.trained_network import make_network
from edgewise.random_numbers import one_thread

DATA = ("infection", "negative_evidence", "ba_shapes", "tree_cycles", "tree_grid", "ba_2motifs", "toxic_groups")
TARGETS = 20
RUNS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "full, start A": ("gnn_explainer", 0, {}),
    "full, start B": ("gnn_explainer", 1, {}),
    "4 gradients, start A": ("gnn_explainer_fast", 0, {"passes": 4}),
    "1 gradient, start A": ("gnn_explainer_fast", 0, {"passes": 1}),
}
PAIRS = (
    ("full, start A", "full, start B"),
    ("full, start A", "4 gradients, start A"),
    ("full, start A", "1 gradient, start A"),
    ("full, start B", "1 gradient, start A"),
)


def items(networks: int) -> list[tuple[str, int]]:
    return [(name, seed) for name in DATA for seed in range(networks)]


def measure(item: tuple[str, int]) -> list[Row]:
    """One network: cosines of two runs, and how well each finds the truth."""
    name, seed = item
    with one_thread():
        network = make_network(name, seed, TARGETS)
        found: dict[str, Any] = {
            run: network.ask.explain(method, seed=start, **settings) for run, (method, start, settings) in RUNS.items()
        }
        cosines = {" | ".join(pair): float(ew.similarity(found[pair[0]], found[pair[1]]).nanmean()) for pair in PAIRS}
        aurocs = {run: _mean(measured(network, EntrantAnswer(one), "support")["auroc"]) for run, one in found.items()}
    return [{"data": name, "seed": seed, "cosines": cosines, "auroc": aurocs}]


def _mean(values: list[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else None


def tables(rows: list[Row]) -> str:
    names = list(dict.fromkeys(row["data"] for row in rows))
    cosines = [
        [name, *(spanned([r["cosines"][" | ".join(pair)] for r in rows if r["data"] == name]) for pair in PAIRS)]
        for name in names
    ]
    aurocs = [
        [name, *(spanned([r["auroc"][run] for r in rows if r["data"] == name]) for run in RUNS)] for name in names
    ]
    counts = {name: sum(row["data"] == name for row in rows) for name in names}
    text = f"Networks of each data set: {min(counts.values())}; {TARGETS} targets each. Mean cosines:\n\n"
    heads = ("data set", *(f"{first} – {second}" for first, second in PAIRS))
    return f"{text}{markdown(heads, cosines)}\n\nAUROC of the true edges:\n\n{markdown(('data set', *RUNS), aurocs)}"


STUDY = Study("one_pass", (__doc__ or "").splitlines()[0], items, measure, 6, tables)

if __name__ == "__main__":
    STUDY.run()
