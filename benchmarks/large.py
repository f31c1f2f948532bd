"""A graph of the size of ogbn-arxiv, generated: layer gradients of many nodes, how fast and in how much memory.

python -m benchmarks.large --nodes 10000

A process of its own, because the peak memory of a process is that of everything it did.
"""

if __name__ == "__main__":
    from benchmarks.threads import pin

    pin()

import argparse
import json
import time
from typing import Any

import torch

import edgewise as ew
from benchmarks.data import LARGE_NODES, power_law_graph
from benchmarks.machine import peak_memory
from benchmarks.models import large_model

LIMIT = 4.0  # GB


def run(nodes: int, top: int = 50, memory: str = "2GB", device: str | None = None) -> dict[str, Any]:
    graph, model = power_law_graph(), large_model()
    targets = torch.randperm(LARGE_NODES, generator=torch.Generator().manual_seed(1))[:nodes]
    before = peak_memory()
    start, wall = time.process_time(), time.perf_counter()
    found = ew.explain(model, graph, index=targets, level="layer", top=top, memory=memory, device=device)
    seconds, wall = time.process_time() - start, time.perf_counter() - wall
    assert len(found) == nodes
    return {
        "nodes": nodes,
        "top": top,
        "memory": memory,
        "seconds": seconds if device is None else wall,
        "nodes_per_second": nodes / (seconds if device is None else wall),
        "peak_memory_gb": peak_memory(),
        "before_gb": before,
        "within_limit": peak_memory() <= LIMIT,
        "way": str(found.settings.get("way", "")),
    }


def sentence(row: dict[str, Any]) -> str:
    return (
        f"169,343 nodes, 1,166,243 edges, GCN 3×128: layer gradients of {row['nodes']:,} nodes, top {row['top']}, "
        f"memory={row['memory']!r}: {row['nodes_per_second']:,.1f} nodes per second, "
        f"{row['peak_memory_gb']:.2f} GB at most ({row['before_gb']:.2f} GB of them before the call; "
        f"the limit is {LIMIT:.0f} GB), way: {row['way']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000, help="how many random nodes to explain (10000)")
    parser.add_argument("--json", action="store_true", help="print the figures for a program")
    options = parser.parse_args()
    row = run(options.nodes)
    print(json.dumps(row) if options.json else sentence(row))


if __name__ == "__main__":
    main()
