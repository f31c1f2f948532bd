"""Models of equal accuracy differ more than searches and methods do: networks that learned the same Infection graphs.

python -m benchmarks.findings.equal_accuracy --workers 16
"""

from itertools import combinations
from typing import Any

import torch

import edgewise as ew
from benchmarks.findings.study import Row, Study, markdown, spanned
from edgewise.board.entrants import without_loops
from edgewise.datasets import infection, infection_model
from edgewise.datasets.infection import clear_nodes, is_true_path
from edgewise.random_numbers import one_thread
from edgewise.student_intervals import interval_over_pairs

SEARCHES = {"exact": "exact", "dag": "Algorithm 1", "amp_ave": "AMP-ave"}
METHODS = ("gradient", "occlusion", "integrated_gradients")
NODES = 150
"""Nodes that are compared: the first with one infected node within their distance, which is 1 to 4."""
LEAST = 0.99
"""Networks below this accuracy are left out: the rest are as good as each other."""


def items(networks: int) -> list[int]:
    return list(range(networks))


def measure(seed: int) -> list[Row]:
    """One training on the graphs of seed 0: the best walk of every search, and scores, of the same nodes."""
    with one_thread():
        graphs = infection(seed=0)
        trained = infection_model(seed, graphs=graphs)
        graph = graphs.test
        index = clear_nodes(graph)
        index = index[graph.y[index] > 0][:NODES]
        ask = ew.Question(trained.model, graph, index, target=graph.y[index])
        paths = {name: [_path(one) for one in ask.walks(k=1, search=name)] for name in SEARCHES}
        walks = {name: _recovered(graph, ask, name) for name in SEARCHES}
        scores = {name: _dense(ask.explain(name)) for name in METHODS}
        right = trained.model(graph.x, graph.edge_index).argmax(dim=1)[index] == graph.y[index]
    row = {"seed": seed, "accuracy": trained.test_accuracy, "recovered": walks, "right": right.tolist()}
    return [{**row, "paths": paths, "scores": scores}]


def _path(found: Any) -> list[int]:
    return list(without_loops(found[0].nodes)) if len(found) else []


def _recovered(graph: Any, ask: Any, search: str) -> float:
    found = ask.walks(k=1, search=search)
    return sum(len(one) > 0 and is_true_path(graph, one.index, one[0].nodes) for one in found) / len(found)


def _dense(found: Any) -> torch.Tensor:
    """`[nodes, E]`."""
    return torch.stack([why.scores for why in found])


# --- All networks at once ------------------------------------------------------------------------------------------------


def together(rows: list[Row]) -> list[Row]:
    """From the answers of all networks to agreements: of two networks, and within one."""
    good = [row for row in rows if row["accuracy"] >= LEAST]
    found: list[Row] = [{key: row[key] for key in ("seed", "accuracy", "recovered")} for row in rows]
    for row in good:
        shares = {
            _pair(a, b): _same(row["paths"][a], row["paths"][b], row["right"]) for a, b in combinations(SEARCHES, 2)
        }
        cosines = {
            _pair(a, b): _cosine(row["scores"][a], row["scores"][b], row["right"]) for a, b in combinations(METHODS, 2)
        }
        found.append({"pair": [row["seed"]], **shares, **cosines})
    for one, two in combinations(good, 2):
        both = [a and b for a, b in zip(one["right"], two["right"], strict=True)]
        shares = {name: _same(one["paths"][name], two["paths"][name], both) for name in SEARCHES}
        cosines = {name: _cosine(one["scores"][name], two["scores"][name], both) for name in METHODS}
        found.append({"pair": [one["seed"], two["seed"]], **shares, **cosines})
    return found


def _pair(first: str, second: str) -> str:
    return f"{first}, {second}"


def _same(first: list[list[int]], second: list[list[int]], both: list[bool]) -> float:
    """The share of nodes with the same path."""
    kept = [a == b for a, b, use in zip(first, second, both, strict=True) if use]
    return round(sum(kept) / len(kept), 5)


def _cosine(first: torch.Tensor, second: torch.Tensor, both: list[bool]) -> float:
    """The mean cosine over nodes."""
    use = torch.tensor(both)
    cosines = torch.nn.functional.cosine_similarity(first[use].double(), second[use].double(), dim=1)
    return round(float(cosines.mean()), 5)


def tables(rows: list[Row]) -> str:
    networks = [row for row in rows if "accuracy" in row]
    good = [row for row in networks if row["accuracy"] >= LEAST]
    lines = []
    for search, title in SEARCHES.items():
        shares = torch.tensor([row["recovered"][search] for row in good], dtype=torch.double)
        spread = f"{100 * float(shares.min()):.1f} – {100 * float(shares.max()):.1f}%"
        lines.append([title, spanned(shares.tolist(), 1, percent=True), f"{100 * float(shares.std()):.1f}", spread])
    accuracies = [row["accuracy"] for row in good]
    text = (
        f"{len(good)} of {len(networks)} networks have an accuracy of {LEAST:.0%} or more on the test graph "
        f"({min(accuracies):.1%} to {max(accuracies):.1%}).\n\n"
    )
    text += markdown(("search", "true path, mean over networks", "deviation, points", "range"), lines)
    text += f"\n\n{_agreements(rows, SEARCHES, 'the same best walk')}"
    return f"{text}\n\n{_agreements(rows, {name: name for name in METHODS}, 'cosine')}"


def _agreements(rows: list[Row], names: dict[str, str], title: str) -> str:
    lines = []
    for first, second in combinations(names, 2):
        values = [row[_pair(first, second)] for row in rows if _pair(first, second) in row]
        lines.append([f"one network, {names[first]} and {names[second]}", spanned(values)])
    for name, label in names.items():
        mine = [row for row in rows if name in row and len(row["pair"]) == 2]
        found = torch.tensor([row[name] for row in mine])
        low, high = interval_over_pairs(found, torch.tensor([row["pair"] for row in mine]).t(), 0.95)
        lines.append([f"two networks, {label}", f"{float(found.mean()):.3f} ({low:.3f} … {high:.3f})"])
    return markdown(("compared", title), lines)


STUDY = Study("equal_accuracy", (__doc__ or "").splitlines()[0], items, measure, 50, tables, together)

if __name__ == "__main__":
    STUDY.run()
