"""How often is the smallest flip proven? Nodes of Cora, CiteSeer and Infection, three seeds; both directions are one unit.

    python -m benchmarks.flip_grid --data DIR --nodes 200 --seconds 30 --workers 16 --limit 470 --out grid.jsonl

Nodes are worked off in random order, so that a run that is stopped by its limit has seen a sample of all networks. Every line
of the result is a node: data set, architecture, layers, seed, node, status, size, seconds.
"""

import argparse
import json
import random
import tempfile
import time
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import edgewise as ew
from edgewise_paper.context import Context
from edgewise_paper.similarity import model_graph_and_nodes
from edgewise_paper.task import PaperOptions, Task
from edgewise_paper.training.networks import SAGE, Recipe

NETWORKS, SEEDS, EPOCHS = (("GCN", 2), (SAGE, 2), ("GIN", 2), ("GCN", 3)), 3, 200
_AT_ONCE = 4  # nodes of a piece of work


def networks() -> list[dict[str, Any]]:
    """What each network is made of."""
    found: list[dict[str, Any]] = []
    for seed in range(SEEDS):
        found.append({"dataset": "Infection", "architecture": "GraphSAGE", "layers": 4, "seed": seed})
        for dataset in ("Cora", "CiteSeer"):
            for architecture, layers in NETWORKS:
                about = {"dataset": dataset, "architecture": architecture, "layers": layers, "seed": seed}
                found.append({**about, "training": Recipe(dataset, architecture, layers, seed, EPOCHS).plain})
    return found


@cache
def trained(number: int, data: Path, store: Path, nodes: int) -> tuple[Any, Any, Any]:
    """A network, its graph, and some of its test nodes."""
    torch.set_num_threads(1)
    about = networks()[number]
    context = Context(PaperOptions(store / str(number), data=data))  # a store for each: processes do not write into one
    model, graph, index = model_graph_and_nodes(Task("flips", "sets", about, 1.0), context)
    draw = torch.Generator().manual_seed(about["seed"])
    return model, graph, index[torch.randperm(len(index), generator=draw)[:nodes]].sort().values


def proven(piece: tuple[Any, ...]) -> list[list[Any]]:
    """The answers of a few nodes; none that could outlast the limit is begun."""
    number, first, options, store, start = piece
    model, graph, index = trained(number, options.data, store, options.nodes)
    about, found = networks()[number], []
    for node in index[first : first + _AT_ONCE].tolist():
        if time.time() - start > options.limit - options.seconds - 3:
            break
        begin = time.perf_counter()
        answer = ew.counterfactual(model, graph, node, undirected=True, seconds=options.seconds)
        assert isinstance(answer, ew.Counterfactual)
        place = [about[name] for name in ("dataset", "architecture", "layers", "seed")]
        found.append([*place, node, answer.status, answer.size, round(time.perf_counter() - begin, 3)])
    return found


def summary(rows: list[list[Any]]) -> str:
    """A line for each data set and architecture."""
    lines = []
    for name in sorted({tuple(row[:3]) for row in rows}):
        mine = [row for row in rows if tuple(row[:3]) == name]
        decided = sum(row[5] in ("proven", "none") for row in mine)
        middle = sorted(row[7] for row in mine)[len(mine) // 2]
        lines.append(
            f"{name[0]} {name[1]}-{name[2]}: {decided} of {len(mine)} ({decided / len(mine):.1%}), median {middle:.2f} s"
        )
    return "\n".join(lines)


def main() -> None:
    """Train, then prove."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=86_400.0, help="seconds of the whole run")
    parser.add_argument("--out", type=Path, default=Path("flip_grid.jsonl"))
    options, start = parser.parse_args(), time.time()
    with tempfile.TemporaryDirectory() as folder, get_context("fork").Pool(options.workers) as pool:
        store = Path(folder)
        pool.starmap(trained, [(n, options.data, store, options.nodes) for n in range(len(networks()))], chunksize=1)
        print(f"networks are trained, {time.time() - start:.0f} s", flush=True)
        firsts = [(n, first) for n in range(len(networks())) for first in range(0, options.nodes, _AT_ONCE)]
        random.Random(0).shuffle(firsts)
        pieces = [(*one, options, store, start) for one in firsts]
        rows = [row for part in pool.imap_unordered(proven, pieces) for row in part]
    options.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(summary(rows))


if __name__ == "__main__":
    main()
