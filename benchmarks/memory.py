"""Peak memory under a budget: how far resident memory rises above the start, in a warm process, for every method.

    EDGEWISE_DATA=… python -m benchmarks.memory                        # the whole table, each case in a process of its own
    EDGEWISE_DATA=… python -m benchmarks.memory GCN occlusion 128      # one budget of one case

The ceiling is 1.1 times the budget plus the result. The peak is the kernel's own (`VmHWM`), set back before the call.
"""

import ctypes
import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

BUDGETS = (128, 256, 512)
MODELS = ("GCN", "GATv2", "SAGE-max", "graphs")
"""Nodes of Cora by three networks, and the graphs of PROTEINS by a GIN."""
CASES = {
    "gradient": {"method": "gradient", "level": "layer"},
    "occlusion": {"method": "occlusion"},
    "layer occlusion": {"method": "occlusion", "level": "layer"},
    "gnn_explainer": {"method": "gnn_explainer", "epochs": 3},
    "shapley": {"method": "shapley", "samples": 1},
    "walks": {},
}
TARGETS = {"shapley": 100, ("GATv2", "walks"): 60, ("SAGE-max", "walks"): 20} | {
    ("SAGE-max", case): 300 for case in ("gradient", "gnn_explainer")
}
TARGETS |= {("graphs", "occlusion"): 300, ("graphs", "layer occlusion"): 100, ("graphs", "shapley"): 10}
TARGETS |= {("SAGE-max", case): 20 for case in ("occlusion", "layer occlusion", "shapley")}
ALLOWED = 1.1


def resident(name: str) -> int:
    """`VmRSS` (now) or `VmHWM` (peak) of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def trained(kind: str, data: object) -> object:
    """A two-layer network after a few steps."""
    import torch
    from torch_geometric.nn import GAT, GCN, GraphSAGE

    torch.manual_seed(0)
    make, options = {
        "GCN": (GCN, {}),
        "GATv2": (GAT, {"v2": True, "heads": 8}),
        "SAGE-max": (GraphSAGE, {"aggr": "max"}),  # not lowered: copies of the model run
    }[kind]
    model = make(data.num_features, 64, 2, 7, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(data.x, data.edge_index), data.y).backward()
        optimizer.step()
    return model.eval()


def size_of(found: object) -> int:
    """Bytes of the arrays of a result."""
    import torch

    seen, total, left = set(), 0, [found]
    while left:
        item = left.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            total += item.untyped_storage().nbytes()
        elif isinstance(item, dict):
            left += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple)):
            total += sys.getsizeof(item)
            left += list(item)
        elif type(item).__module__.startswith("edgewise"):
            left += list(getattr(item, "__dict__", {}).values())
            left += [getattr(item, name) for name in getattr(type(item), "__slots__", ()) if hasattr(item, name)]
        elif isinstance(item, (int, float)):
            total += 32
    return total


def measure(kind: str, case: str, budgets: Iterable[int]) -> Iterator[dict[str, object]]:
    """One case in this process, budget by budget, after the same call once before."""
    import torch

    import edgewise as ew
    from benchmarks.data import cora, proteins
    from benchmarks.models import proteins_model

    torch.set_num_threads(1)
    graphs = kind == "graphs"
    data = proteins() if graphs else cora()
    model = proteins_model() if graphs else trained(kind, data)
    count = TARGETS.get((kind, case), TARGETS.get(case, len(data) if graphs else data.num_nodes))
    task = "graph" if graphs else "node"

    def call(budget: int) -> object:
        memory = f"{budget}MB"
        if case == "walks":
            return ew.walks(model, data, range(count), k=3, memory=memory, task=task)
        return ew.explain(model, data, range(count), memory=memory, task=task, **CASES[case])

    call(1024)  # compiles and loads what it needs
    for budget in budgets:
        row: dict[str, object] = {"model": kind, "case": case, "budget": budget, "targets": count}
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        start = time.perf_counter()
        try:
            found = call(budget)
        except ew.SettingError as refused:
            yield {**row, "refused": str(refused), "holds": True}
            continue
        seconds = time.perf_counter() - start
        above, result = resident("VmHWM") - before, size_of(found)
        ratio = max(above - result, 0) / (budget * 2**20)
        row |= {"above": round(above / 2**20), "result": round(result / 2**20), "ratio": round(ratio, 2)}
        yield {**row, "seconds": round(seconds, 1), "holds": ratio <= ALLOWED}
        del found


def main() -> None:
    """Some budgets of one case, or all of them, each case in a process of its own."""
    if len(sys.argv) >= 4:
        for row in measure(sys.argv[1], sys.argv[2], map(int, sys.argv[3:])):
            print(json.dumps(row), flush=True)
        return
    print("| model | method | targets | budget MB | above the start MB | result MB | ratio | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in MODELS:
        for case in CASES:
            command = [sys.executable, "-m", "benchmarks.memory", kind, case, *map(str, BUDGETS)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            for line in done.stdout.splitlines():
                row = json.loads(line)
                keys = ("above", "result", "ratio", "seconds")
                numbers = [row["refused"]] if "refused" in row else [row[key] for key in keys]
                told = [row["model"], row["case"], row["targets"], row["budget"], *numbers]
                print("| " + " | ".join(map(str, told)) + " |", flush=True)


if __name__ == "__main__":
    main()
