"""How often is the smallest flip proven? Nodes of Cora, CiteSeer and Infection, three seeds; both directions are one unit.

    python -m benchmarks.flip_grid --data DIR --nodes 200 --seconds 30 --workers 16 --limit 470 --out grid.jsonl

Nodes are worked off in random order, so that a run that is stopped by its limit has seen a sample of all networks. Every line
of the result is a node: data set, architecture, layers, seed, node, status, size, seconds. Seconds for a node are processor
time, so that a busy machine gives the same answers. `--directed` has a unit for each column. `--again grid.jsonl` asks only
for those nodes of an earlier run that stayed open or took long, and takes the answers of the others over. `--store` keeps the
trained networks; `--nodes 0` does no more than that.
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
from edgewise.counterfactuals.allowance import processor_time
from edgewise_paper.context import Context
from edgewise_paper.similarity import model_graph_and_nodes
from edgewise_paper.task import PaperOptions, Task
from edgewise_paper.training.networks import SAGE, Recipe

NETWORKS, SEEDS, EPOCHS = (("GCN", 2), (SAGE, 2), ("GIN", 2), ("GCN", 3)), 3, 200
_AT_ONCE = 4  # nodes of a piece of work
_LONG = 2.0  # seconds of a node that is asked for again


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


def place_of(number: int) -> list[Any]:
    """The first words of the lines of a network."""
    return [networks()[number][name] for name in ("dataset", "architecture", "layers", "seed")]


def proven(piece: tuple[Any, ...]) -> list[list[Any]]:
    """The answers of a few nodes; none that could outlast the limit is begun."""
    number, nodes, options, store, start = piece
    model, graph, index = trained(number, options.data, store, options.nodes)
    found = []
    for node in index[nodes].tolist() if isinstance(nodes, slice) else nodes:
        if time.time() - start > options.limit - options.seconds - 3:
            break
        begin = time.process_time()
        with processor_time():
            answer = ew.counterfactual(model, graph, node, undirected=not options.directed, seconds=options.seconds)
        assert isinstance(answer, ew.Counterfactual)
        found.append([*place_of(number), node, answer.status, answer.size, round(time.process_time() - begin, 3)])
    return found


def pieces(options: argparse.Namespace) -> tuple[list[tuple[int, Any]], list[list[Any]]]:
    """Networks with the nodes to ask for, in random order, and the answers that are taken over."""
    numbers = {tuple(place_of(number)): number for number in range(len(networks()))}
    if options.again is None:
        found: list[tuple[int, Any]] = [
            (number, slice(first, first + _AT_ONCE))
            for number in numbers.values()
            for first in range(0, options.nodes, _AT_ONCE)
        ]
        rows: list[list[Any]] = []
    else:
        lines = [json.loads(line) for line in options.again.read_text().splitlines()]
        rows = [row for row in lines if row[5] != "open" and row[7] < _LONG]
        found = [(numbers[tuple(row[:4])], [row[4]]) for row in lines if row[5] == "open" or row[7] >= _LONG]
    random.Random(0).shuffle(found)
    return found, rows


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
    parser.add_argument("--directed", action="store_true", help="a unit for each column")
    parser.add_argument("--again", type=Path, help="the lines of an earlier run")
    parser.add_argument("--store", type=Path, help="a folder for trained networks")
    parser.add_argument("--out", type=Path, default=Path("flip_grid.jsonl"))
    options, start = parser.parse_args(), time.time()
    with tempfile.TemporaryDirectory() as folder, get_context("fork").Pool(options.workers) as pool:
        store = options.store or Path(folder)
        pool.starmap(trained, [(n, options.data, store, options.nodes) for n in range(len(networks()))], chunksize=1)
        print(f"networks are trained, {time.time() - start:.0f} s", flush=True)
        asked, rows = pieces(options)
        with options.out.open("w") as lines:
            lines.writelines(json.dumps(row) + "\n" for row in rows)
            for part in pool.imap_unordered(proven, [(*one, options, store, start) for one in asked]):
                rows += part
                lines.writelines(json.dumps(row) + "\n" for row in part)
                lines.flush()  # a run that is stopped keeps what it has
    print(summary(rows))


if __name__ == "__main__":
    main()
