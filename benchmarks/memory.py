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
CASES = {
    "gradient": {"method": "gradient", "level": "layer"},
    "occlusion": {"method": "occlusion"},
    "layer occlusion": {"method": "occlusion", "level": "layer"},
    "gnn_explainer": {"method": "gnn_explainer", "epochs": 3},
    "shapley": {"method": "shapley", "samples": 1},
    "walks": {},
    "features": {},
}
LESS = {
    "GATv2": {"walks": 60},
    "SAGE-max": {"gradient": 300, "gnn_explainer": 300}
    | dict.fromkeys(("occlusion", "layer occlusion", "shapley", "walks"), 20),
    "graph-wide norm": dict.fromkeys(("gradient", "gnn_explainer"), 100)
    | {"occlusion": 2, "layer occlusion": 2, "shapley": 1, "features": 20, "walks": 20},
    "PROTEINS, GIN": {"occlusion": 300, "layer occlusion": 100, "shapley": 10},
    "PROTEINS, GCN": {"occlusion": 300, "layer occlusion": 100, "shapley": 10},
    "2,000 graphs, GCN": {"occlusion": 20, "layer occlusion": 10, "shapley": 2, "walks": 100},
    "2,000 graphs, SAGE-max": {
        "gradient": 500,
        "gnn_explainer": 500,
        "features": 500,
        "occlusion": 2,
        "layer occlusion": 1,
        "shapley": 1,
        "walks": 10,
    },
    "large graphs, GCN": {"occlusion": 0, "layer occlusion": 0, "shapley": 0},
    "large graphs, SAGE-max": {"occlusion": 0, "layer occlusion": 0, "shapley": 0, "walks": 0},
    "links of Cora": {"occlusion": 200, "layer occlusion": 100, "walks": 0},
    "typed graph": {"occlusion": 500, "layer occlusion": 200},
}
"""Targets of a case, where all of them would take minutes; none where even one would."""
MOST = {"shapley": 100}
ALLOWED = 1.1


def resident(name: str) -> int:
    """`VmRSS` (now) or `VmHWM` (peak) of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def size_of(found: object) -> int:
    """Bytes of the arrays of a result."""
    import torch

    seen, total, left = set(), 0, [found]
    held: set[int] = set()  # storages: many tensors are views of one
    while left:
        item = left.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            storage = item.untyped_storage()
            total += 0 if storage.data_ptr() in held else storage.nbytes()
            held.add(storage.data_ptr())
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
    from benchmarks.memory_subjects import SUBJECTS

    torch.set_num_threads(1)
    asked = SUBJECTS[kind]()
    count = min(LESS.get(kind, {}).get(case, MOST.get(case, asked.size)), asked.size)
    index = asked.first(count)

    def call(budget: int) -> object:
        options = {"memory": f"{budget}MB", "task": asked.task}
        if case == "walks":
            return ew.walks(asked.model, asked.data, index, k=3, **options)
        if case == "features":
            return ew.features(asked.model, asked.data, index, **options)
        return ew.explain(asked.model, asked.data, index, **options, **CASES[case])

    if count == 0:
        return
    call(4096)  # compiles and loads what it needs
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
    from benchmarks.memory_subjects import SUBJECTS

    for kind in SUBJECTS:
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
