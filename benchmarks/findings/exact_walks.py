"""What exactness buys: the proven best walk beside Algorithm 1 and AMP-ave, on many Infection networks, depths and widths.

python -m benchmarks.findings.exact_walks --workers 16
"""

import time
from collections.abc import Iterator
from typing import Any

import torch

import edgewise as ew
from benchmarks.findings.study import Row, Study, markdown, spanned
from edgewise.datasets import infection_model
from edgewise.datasets.infection import clear_nodes, is_true_path
from edgewise.random_numbers import one_thread

SEARCHES = {"exact": "exact", "dag": "Algorithm 1", "amp_ave": "AMP-ave", "amp_ave_additive": "AMP-ave, additive"}
SHAPES = ((4, 20), (4, 10), (4, 40), (5, 20), (6, 20))
"""(layers, width); the first one, the paper's, with all networks, the others with a third of them."""


def items(networks: int) -> list[tuple[int, int, int]]:
    return [
        (layers, hidden, seed)
        for layers, hidden in SHAPES
        for seed in range(networks if (layers, hidden) == SHAPES[0] else max(networks // 3, 3))
    ]


def measure(item: tuple[int, int, int]) -> list[Row]:
    """One network: every search on the nodes with one infected node within their distance, which is 1 to 4."""
    layers, hidden, seed = item
    with one_thread():
        trained = infection_model(seed, hidden=hidden, num_layers=layers)
        return list(_searched(item, trained.model, trained.graphs.test, trained.test_accuracy))


def _searched(item: tuple[int, int, int], model: Any, graph: Any, accuracy: float) -> Iterator[Row]:
    index = clear_nodes(graph)
    index = index[graph.y[index] > 0]
    ask = ew.Question(model, graph, index, target=graph.y[index])
    exact: Any = ask.walks(k=1)
    right = _right(graph, exact)
    for search in SEARCHES:
        start = time.perf_counter()
        found = ask.walks(k=1, search=search)
        seconds = time.perf_counter() - start
        best = torch.tensor([_is_best(one, proven) for one, proven in zip(found, exact, strict=True)])
        own = _right(graph, found)
        yield {
            "layers": item[0], "width": item[1], "seed": item[2], "accuracy": accuracy, "search": search,
            "nodes": len(index), "recovered": float(own.double().mean()), "best": float(best.double().mean()),
            "proven": float(torch.tensor([one.exact for one in exact]).double().mean()),
            "missed": int((~best).sum()), "missed_own_right": int((own & ~best).sum()),
            "missed_exact_right": int((right & ~best).sum()), "milliseconds": 1000 * seconds / len(index),
        }  # fmt: skip


def _right(graph: Any, found: Any) -> torch.Tensor:
    return torch.tensor([len(one) > 0 and is_true_path(graph, one.index, one[0].nodes) for one in found])


def _is_best(one: Any, proven: Any) -> bool:
    """Whether a search found the best walk, or one that ties with it."""
    if not len(proven) or not len(one):
        return len(proven) == len(one)
    return one[0].nodes == proven[0].nodes or one[0].score >= proven[0].score - 1e-6 * abs(proven[0].score)


def tables(rows: list[Row]) -> str:
    lines = []
    for layers, width in dict.fromkeys((row["layers"], row["width"]) for row in rows):
        for search, title in SEARCHES.items():
            mine = [r for r in rows if (r["layers"], r["width"], r["search"]) == (layers, width, search)]
            accuracy = sum(r["accuracy"] for r in mine) / len(mine)
            lines.append([
                f"{layers} × {width}", title, str(len(mine)), f"{accuracy:.1%}", str(sum(r["nodes"] for r in mine)),
                spanned([r["recovered"] for r in mine], 1, percent=True),
                spanned([r["best"] for r in mine], 1, percent=True),
                f"{sum(r['milliseconds'] for r in mine) / len(mine):.2f}",
            ])  # fmt: skip
    heads = ("layers × width", "search", "networks", "accuracy", "nodes", "true path", "truly best walk", "ms a node")
    return f"{markdown(heads, lines)}\n\n{_differences(rows)}\n\n{_proofs(rows)}"


def _differences(rows: list[Row]) -> str:
    """Exact minus Algorithm 1, network by network, and what happens where the latter misses the best walk."""
    lines = []
    for layers, width in dict.fromkeys((row["layers"], row["width"]) for row in rows):
        pair = {
            search: [r for r in rows if (r["layers"], r["width"], r["search"]) == (layers, width, search)]
            for search in ("exact", "dag")
        }
        gain = [a["recovered"] - b["recovered"] for a, b in zip(pair["exact"], pair["dag"], strict=True)]
        missed = sum(r["missed"] for r in pair["dag"])
        own, better = (sum(r[key] for r in pair["dag"]) for key in ("missed_own_right", "missed_exact_right"))
        lines.append([
            f"{layers} × {width}", spanned([100 * g for g in gain], 2), str(missed), f"{own}", f"{better}",
        ])  # fmt: skip
    heads = (
        "layers × width", "exact minus Algorithm 1, points", "nodes where it misses the best walk",
        "of these its walk is the true path", "the best walk is",
    )  # fmt: skip
    return markdown(heads, lines)


def _proofs(rows: list[Row]) -> str:
    share = [row["proven"] for row in rows if row["search"] == "exact"]
    return f"Proven: {min(share):.1%} of the nodes or more, on every one of {len(share)} networks."


STUDY = Study("exact_walks", (__doc__ or "").splitlines()[0], items, measure, 30, tables)

if __name__ == "__main__":
    STUDY.run()
