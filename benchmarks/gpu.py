"""On a GPU: how fast, and is it what the CPU says? Needs torch, torch_geometric and numpy; makes its own data.

python -m benchmarks.gpu
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch

import edgewise as ew
from benchmarks.data import LARGE_NODES, power_law_graph
from benchmarks.deviation import TOLERANCE, between
from benchmarks.models import infection, large_model

DEVICE = "cuda"
EPOCHS, TOP = 100, 50
JOBS: dict[str, dict[str, Any]] = {
    f"GNNExplainer({EPOCHS})": {"method": "gnn_explainer", "epochs": EPOCHS},
    "layerwise occlusion": {"method": "occlusion", "level": "layer"},
    "layer gradients": {"method": "gradient", "level": "layer"},
}


def timed(run: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """The median wall time of some rounds after a warm-up, the device idle at both ends; and the last result."""
    run()
    taken = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        result = run()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return sorted(taken)[rounds // 2], result


def all_infection_nodes(rounds: int) -> Iterator[dict[str, Any]]:
    trained = infection()
    for name, asked in JOBS.items():
        explain: Callable[..., ew.ExplanationSet] = partial(ew.explain, trained.model, trained.graphs.test, **asked)
        seconds, found = timed(partial(explain, device=DEVICE), rounds)
        start = time.perf_counter()
        on_cpu = explain(device="cpu")
        cpu_seconds, apart = time.perf_counter() - start, between(found, on_cpu).worst
        yield {
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "deviation": apart,
            "equal": apart <= TOLERANCE,
            "sentence": f"{name}, all {len(found)} Infection nodes: {seconds:.3f} s; that machine's CPU {cpu_seconds:.3f} s, "
            f"deviation from the CPU {apart:.0e}{_way(found)}",
        }


def held_infection(rounds: int) -> Iterator[dict[str, Any]]:
    """A question that is posed already, about all nodes and about one; and one node in a plain call."""
    trained = infection()
    model, graph = trained.model, trained.graphs.test
    everyone, one = ew.Question(model, graph, device=DEVICE), ew.Question(model, graph, [0], device=DEVICE)
    masks, slopes = {"method": "gnn_explainer", "epochs": EPOCHS}, {"method": "gradient", "level": "layer"}
    runs: dict[str, Callable[[], Any]] = {
        f"GNNExplainer({EPOCHS}), all Infection nodes, held": lambda: everyone.explain(**masks),
        f"GNNExplainer({EPOCHS}), one Infection node, held": lambda: one.of(5).explain(**masks),
        f"GNNExplainer({EPOCHS}), one Infection node, plain": lambda: ew.explain(
            model, graph, 5, device=DEVICE, **masks
        ),
        "layer gradients, one Infection node, held": lambda: one.of(5).explain(**slopes),
        "layer gradients, one Infection node, plain": lambda: ew.explain(model, graph, 5, device=DEVICE, **slopes),
    }
    for name, run in runs.items():
        seconds, _ = timed(run, 5 * rounds)
        yield {"seconds": seconds, "sentence": f"{name}: {seconds:.4f} s"}


def large_occlusion(nodes: int, memory: str, rounds: int) -> Iterator[dict[str, Any]]:
    graph, model = power_law_graph(), large_model()
    targets = torch.randperm(LARGE_NODES, generator=torch.Generator().manual_seed(1))[:nodes]
    ask = partial(ew.explain, model, graph, method="occlusion", level="layer", top=TOP, memory=memory)
    torch.cuda.reset_peak_memory_stats()
    seconds, found = timed(partial(ask, index=targets, device=DEVICE), rounds)
    peak = torch.cuda.max_memory_allocated() / 1e9
    apart = between(found[:3], ask(index=targets[:3], device="cpu")).worst
    yield {
        "seconds": seconds,
        "peak_device_memory_gb": peak,
        "deviation": apart,
        "equal": apart <= TOLERANCE,
        "sentence": f"169,343 nodes, GCN 3×128, layerwise occlusion of {nodes:,} nodes, top {TOP}, memory={memory!r}: "
        f"{seconds:.2f} s, {peak:.1f} GB of device memory at most, deviation of three nodes from the CPU {apart:.0e}",
    }


def infection_walks(rounds: int) -> Iterator[dict[str, Any]]:
    trained = infection()
    for search in ("exact", "dag"):
        find: Callable[..., list[ew.WalkSet]] = partial(
            ew.walks, trained.model, trained.graphs.test, k=10, search=search
        )
        seconds, found = timed(partial(find, device=DEVICE), rounds)
        on_cpu = find(device="cpu")
        apart = max(
            abs(one.score - other.score) / abs(here[0].score)
            for there, here in zip(found, on_cpu, strict=True)
            for one, other in zip(there, here, strict=True)
        )
        same = sum(
            one.walks[0].nodes == other.walks[0].nodes for one, other in zip(found, on_cpu, strict=True) if len(one)
        )
        yield {
            "seconds": seconds,
            "deviation": apart,
            "equal": apart <= TOLERANCE,
            "sentence": f"ten best walks ({search}), all {len(found)} Infection nodes: {seconds:.3f} s, scores within "
            f"{apart:.0e} of the CPU's, the same best walk for {same}",
        }


def large_graph(nodes: int, memory: str, rounds: int) -> Iterator[dict[str, Any]]:
    graph, model = power_law_graph(), large_model()
    targets = torch.randperm(LARGE_NODES, generator=torch.Generator().manual_seed(1))[:nodes]
    ask = partial(ew.explain, model, graph, level="layer", top=TOP, memory=memory, device=DEVICE)
    torch.cuda.reset_peak_memory_stats()
    seconds, found = timed(partial(ask, index=targets), rounds)
    peak = torch.cuda.max_memory_allocated() / 1e9
    yield {
        "seconds": seconds,
        "nodes_per_second": nodes / seconds,
        "peak_device_memory_gb": peak,
        "sentence": f"169,343 nodes, 1,166,243 edges, GCN 3×128, layer gradients of {nodes:,} nodes, top {TOP}, "
        f"memory={memory!r}: {nodes / seconds:,.1f} nodes per second, {peak:.2f} GB of device memory at most{_way(found)}",
    }


def _way(found: ew.ExplanationSet) -> str:
    return f"; way: {found.settings['way']}" if "way" in found.settings else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="after a warm-up, the median counts (3)")
    parser.add_argument("--nodes", type=int, default=10_000, help="of the large graph (10000)")
    parser.add_argument("--memory", default="2GB", help="budget of the large graph (2GB)")
    parser.add_argument("--out", type=Path, default=None, help="JSON file; benchmarks/gpu.json goes into the README")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("No CUDA device here: nothing was measured.")
        return 0
    device = torch.cuda.get_device_name()
    print(f"{device}, torch {torch.__version__}")
    rows = []
    large = large_graph(options.nodes, options.memory, options.rounds)
    occluded = large_occlusion(1000, "16GB", options.rounds)
    jobs = (all_infection_nodes(options.rounds), held_infection(options.rounds), infection_walks(options.rounds))
    for row in chain(*jobs, large, occluded):
        rows.append(row)
        print(row["sentence"], flush=True)
    if options.out is not None:
        found = {"date": date.today().isoformat(), "device": device, "torch": torch.__version__, "rows": rows}
        options.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0 if all(row.get("equal", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
