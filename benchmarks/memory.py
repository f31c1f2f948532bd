"""Peak memory under a budget: how far resident memory rises above the start, in a warm process, for every method.

    EDGEWISE_DATA=… python -m benchmarks.memory                        # the whole table, each case in a process of its own
    EDGEWISE_DATA=… python -m benchmarks.memory GCN occlusion 128      # one case

The ceiling is 1.1 times the budget plus the result. The peak is the kernel's own (`VmHWM`), set back before the call.
"""

import ctypes
import gc
import json
import subprocess
import sys
import time
from pathlib import Path

BUDGETS = (128, 256, 512)
MODELS = ("GCN", "GATv2", "SAGE-max")
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


def measure(kind: str, case: str, budget: int) -> dict[str, object]:
    """One case in this process, after the same call once before."""
    import torch

    import edgewise as ew
    from benchmarks.data import cora

    torch.set_num_threads(1)
    data = cora()
    model = trained(kind, data)
    count = TARGETS.get((kind, case), TARGETS.get(case, data.num_nodes))
    memory = f"{budget}MB"

    def call(index: range) -> object:
        if case == "walks":
            return ew.walks(model, data, index, k=3, memory=memory)
        return ew.explain(model, data, index, memory=memory, **CASES[case])

    call(range(count))  # compiles and loads what it needs
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    start = time.perf_counter()
    found = call(range(count))
    seconds = time.perf_counter() - start
    above, result = resident("VmHWM") - before, size_of(found)
    ratio = max(above - result, 0) / (budget * 2**20)
    return {
        "model": kind, "case": case, "budget": budget, "targets": count, "above": round(above / 2**20),
        "result": round(result / 2**20), "ratio": round(ratio, 2), "seconds": round(seconds, 1),
        "holds": ratio <= ALLOWED,
    }  # fmt: skip


def main() -> None:
    """One case, or all of them, each in a process of its own."""
    if len(sys.argv) == 4:
        print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
        return
    print("| model | method | budget MB | above the start MB | result MB | (above − result) / budget | seconds |")
    print("|---|---|---|---|---|---|---|")
    for kind in MODELS:
        for case in CASES:
            for budget in BUDGETS:
                command = [sys.executable, "-m", "benchmarks.memory", kind, case, str(budget)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    print(f"| {kind} | {case} | {budget} | {done.stderr.strip().splitlines()[-1]} |", flush=True)
                    continue
                row = json.loads(done.stdout.splitlines()[-1])
                keys = ("model", "case", "budget", "above", "result", "ratio", "seconds")
                print("| " + " | ".join(str(row[key]) for key in keys) + " |", flush=True)


if __name__ == "__main__":
    main()
