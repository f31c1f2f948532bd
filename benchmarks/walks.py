"""Walk searches: milliseconds a target, on Infection, Cora, MUTAG and PROTEINS; Algorithm 1 beside a plain loop.

python -m benchmarks.walks            # on one thread of the CPU
python -m benchmarks.walks --device cuda
python -m benchmarks.walks --only attention
"""

if __name__ == "__main__":
    from benchmarks.threads import pin

    pin()

import argparse
import json
import time
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

import edgewise as ew
from benchmarks import data, models
from benchmarks.plain_algorithm import plain_algorithm_1

AUTHORS_SECONDS = 0.63  # a node: what the authors' code needs on such a machine; not measured again here
AT_LEAST = {"dag": 3000, "exact": 1000}
FILE = Path(__file__).with_name("walks.json")


def timed(run: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """Median wall time after a first call, which records the model, and the last result."""
    result, taken = run(), []
    for _ in range(rounds):
        start = time.perf_counter()
        result = run()
        taken.append(time.perf_counter() - start)
    return median(taken), result


def infection_rows(device: str, rounds: int) -> Iterator[dict[str, Any]]:
    trained = models.infection()
    model, graph = trained.model, trained.graphs.test
    sample = range(0, graph.num_nodes, 25)
    start = time.perf_counter()
    paths = [plain_algorithm_1(model, graph, node) for node in sample]
    plain = (time.perf_counter() - start) / len(sample)
    for search in ("exact", "dag", "amp_ave", "amp_ave_additive", "emp_neu"):
        seconds, found = timed(partial(ew.walks, model, graph, search=search, device=device), rounds)
        each = seconds / len(found)
        row = _row(f"Infection, SAGE 4×20, 1000 nodes, top 1, {search}", each, found)
        if search in AT_LEAST:
            row |= {"of_authors": AUTHORS_SECONDS / each, "of_plain_loop": plain / each, "at_least": AT_LEAST[search]}
        if search == "dag":
            row["same_paths"] = sum(found[n][0].nodes == path for n, path in zip(sample, paths, strict=True)) / len(
                paths
            )
        yield row


def cora_rows(device: str, rounds: int) -> Iterator[dict[str, Any]]:
    graph, nodes = data.cora(), data.cora_test_nodes()
    for architecture, depths in (("gcn", (2, 3, 4, 5)), ("gin", (2, 3, 4))):
        for layers in depths:
            model = models.cora_model(architecture, layers)
            seconds, found = timed(partial(ew.walks, model, graph, nodes, k=10, device=device), rounds)
            yield _row(
                f"Cora, {architecture.upper()} {layers}×32, {len(nodes)} nodes, top 10, exact",
                seconds / len(nodes),
                found,
            )


def graph_rows(device: str, rounds: int) -> Iterator[dict[str, Any]]:
    jobs = [
        ("MUTAG", data.mutag(), models.mutag_model()),
        ("PROTEINS", data.proteins(), models.proteins_model()),
    ]
    for name, graphs, model in jobs:
        seconds, found = timed(partial(ew.walks, model, graphs, task="graph", k=10, device=device), rounds)
        yield _row(f"{name}, GIN 3×32, {len(graphs)} graphs, top 10, exact", seconds / len(graphs), found)


def attention_rows(device: str, rounds: int) -> Iterator[dict[str, Any]]:
    """A held question for each node, and its first walks: the model's derivatives are found anew every time."""
    graph, nodes = data.cora(), data.cora_test_nodes().tolist()
    for kind in models.ATTENTION:
        model, taken, found = models.cora_attention(kind), list[float](), list[ew.WalkSet]()
        ew.Question(model, graph, nodes[0], device=device).walks(k=10)
        for node in nodes:
            question = ew.Question(model, graph, node, device=device)
            start = time.process_time()
            found.append(question.walks(k=10))
            taken.append(time.process_time() - start)
        row = _row(
            f"Cora, {kind} 2×32, 4 heads, each of {len(nodes)} nodes by itself, top 10, exact", median(taken), found
        )
        at = quantiles(taken, n=20)[-1]
        yield row | {"most": f"median, 95% take at most {1000 * at:.1f} ms, the slowest {1000 * max(taken):.1f} ms"}


def _row(title: str, each: float, found: list[ew.WalkSet]) -> dict[str, Any]:
    return {
        "title": title,
        "milliseconds": 1000 * each,
        "proven": sum(walks.exact for walks in found) / len(found),
        "expansions": sum(walks.expansions for walks in found) / len(found),
        "scores": [walks[0].score if len(walks) else 0.0 for walks in found],
    }


def sentence(row: dict[str, Any]) -> str:
    proof = f"proven {row['proven']:.0%}, {row['expansions']:.0f} expansions"
    spread = f" ({row['most']})" if "most" in row else ""
    text = f"{row['title']}: {row['milliseconds']:.3f} ms a target{spread}, {proof}"
    if "of_authors" in row:
        text += (
            f"; {row['of_authors']:,.0f}× the authors' code ({AUTHORS_SECONDS} s a node; at least {row['at_least']:,}×)"
        )
        text += f", {row['of_plain_loop']:,.0f}× a plain loop"
    if "same_paths" in row:
        text += f"; the plain loop's paths in {row['same_paths']:.0%} of a sample"
    return text


MAKERS = {"infection": infection_rows, "cora": cora_rows, "attention": attention_rows, "graphs": graph_rows}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.walks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu", help="where to compute (cpu)")
    parser.add_argument("--rounds", type=int, default=5, help="of each row (5)")
    parser.add_argument("--only", choices=MAKERS, help="some rows; the others stay in the file as they are")
    parser.add_argument("--out", type=Path, default=FILE, help="JSON file (benchmarks/walks.json)")
    options = parser.parse_args()
    rows = []
    for make in [MAKERS[options.only]] if options.only else MAKERS.values():
        for row in make(options.device, options.rounds):
            print(sentence(row), flush=True)
            rows.append({key: value for key, value in row.items() if key != "scores"} | {"sentence": sentence(row)})
    found = {"date": str(date.today()), "device": options.device, "torch": torch.__version__, "rows": rows}
    if options.only and options.out.exists():
        old = json.loads(options.out.read_text(encoding="utf-8"))
        measured = {row["title"]: row | {"sentence": f"{row['sentence']} ({date.today()})"} for row in rows}
        kept = [measured.pop(row["title"], row) for row in old["rows"]]
        found = old | {"rows": [*kept, *measured.values()]}
    options.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
