"""Peak memory under a budget: how far resident memory rises above the start, in a warm process, for every method.

    EDGEWISE_DATA=… python -m benchmarks.memory                        # the whole table, each model in a process of its own
    EDGEWISE_DATA=… python -m benchmarks.memory GCN                    # one model
    EDGEWISE_DATA=… python -m benchmarks.memory GCN occlusion 128      # one budget of one case
    EDGEWISE_DATA=… python -m benchmarks.memory first GCN              # first calls at 128 MB, each in a process of its own

The ceiling is 1.1 times the budget plus the result, and 1.5 times for the first call of a process. The peak is the kernel's
own (`VmHWM`), set back before the call.
"""

import ctypes
import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.memory_subjects import MemorySubject

BUDGETS = (128, 256)
CASES: dict[str, tuple[str, dict[str, object]]] = {
    "gradient": ("explain", {"method": "gradient", "level": "layer"}),
    "positive_gradient": ("explain", {"method": "positive_gradient"}),
    "integrated_gradients": ("explain", {"method": "integrated_gradients", "steps": 3}),
    "deep_lift": ("explain", {"method": "deep_lift", "level": "layer"}),
    "lrp": ("explain", {"method": "lrp"}),
    "goat_walks": ("explain", {"method": "goat_walks"}),
    "occlusion": ("explain", {"method": "occlusion"}),
    "layer occlusion": ("explain", {"method": "occlusion", "level": "layer"}),
    "degree": ("explain", {"method": "degree"}),
    "eig_search": ("explain", {"method": "eig_search"}),
    "gnn_explainer": ("explain", {"method": "gnn_explainer", "epochs": 3}),
    "gnn_explainer_fast": ("explain", {"method": "gnn_explainer_fast", "epochs": 3}),
    "shapley": ("explain", {"method": "shapley", "samples": 1}),
    "subgraphx": ("explain", {"method": "subgraphx", "samples": 5, "beam": 3, "max_nodes": 4}),
    "walks": ("walks", {"k": 3}),
    "features": ("features", {}),
    "features, integrated": ("features", {"method": "integrated_gradients", "steps": 3}),
    "features, occlusion": ("features", {"method": "occlusion"}),
}
"""From a name to a public function and its settings."""
BY_PASSES = ("gradient", "positive_gradient", "integrated_gradients", "gnn_explainer", "gnn_explainer_fast")
BY_EDGES = ("occlusion", "layer occlusion", "degree", "eig_search", "shapley", "subgraphx", "features, occlusion")
LESS = {
    "GATv2": {"walks": 60, "layer occlusion": 1000, "deep_lift": 500, "integrated_gradients": 1000},
    "SAGE-max": dict.fromkeys((*BY_PASSES, "features", "features, integrated"), 300)
    | dict.fromkeys((*BY_EDGES, "walks"), 20)
    | {"features, occlusion": 2, "subgraphx": 2},
    "graph-wide norm": dict.fromkeys(BY_PASSES, 50)
    | {"features": 20, "features, integrated": 20, "walks": 20}
    | dict.fromkeys(BY_EDGES, 1),
    "PROTEINS, GIN": {"occlusion": 300, "layer occlusion": 100, "shapley": 10},
    "PROTEINS, GCN": {"occlusion": 300, "layer occlusion": 100, "shapley": 10},
    "2,000 graphs, GCN": {"occlusion": 20, "layer occlusion": 10, "shapley": 2, "walks": 100}
    | dict.fromkeys(("degree", "eig_search", "features, occlusion"), 2),
    "2,000 graphs, SAGE-max": dict.fromkeys((*BY_PASSES, "features", "features, integrated"), 300)
    | dict.fromkeys(BY_EDGES, 1)
    | {"walks": 10},
    "large graphs, GCN": dict.fromkeys(BY_EDGES, 0) | {"goat_walks": 0, "features, integrated": 2},
    "large graphs, SAGE-max": dict.fromkeys(BY_EDGES, 0) | {"walks": 0, "features, integrated": 2},
    "links of Cora": {"occlusion": 200, "layer occlusion": 100, "walks": 0, "features, occlusion": 2}
    | {"lrp": 0, "goat_walks": 0},
    "typed graph": {"occlusion": 500, "layer occlusion": 200, "features, integrated": 500, "features": 2000},
}
"""Targets of a case, where all of them would take minutes; none where even one would."""
MOST = {
    "shapley": 100,
    "degree": 100,
    "eig_search": 300,
    "subgraphx": 10,
    "goat_walks": 200,
    "features, occlusion": 100,
}
ALLOWED, ALLOWED_FIRST = 1.1, 1.5


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


def measure(
    kind: str, asked: "MemorySubject", case: str, budgets: Iterable[int], *, is_first: bool = False
) -> Iterator[dict[str, object]]:
    """One case in this process, budget by budget, after the same call once before; or one budget, by the first call of all."""
    import edgewise as ew

    count = min(LESS.get(kind, {}).get(case, MOST.get(case, asked.size)), asked.size)
    index = asked.first(count)

    def call(budget: int) -> object:
        options = {"memory": f"{budget}MB", "task": asked.task}
        function, settings = CASES[case]
        return getattr(ew, function)(asked.model, asked.data, index, **options, **settings)

    if count == 0:
        return
    if not is_first:
        try:
            call(4096)  # compiles and loads what it needs
        except ew.EdgewiseError as refused:  # not a method for this model
            print(f"{kind}, {case}: {refused}", file=sys.stderr)
            return
    for budget in budgets:
        row: dict[str, object] = {"model": kind, "case": case, "budget": budget, "targets": count}
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        start = time.perf_counter()
        try:
            found = call(budget)
        except ew.EdgewiseError as refused:
            yield {**row, "refused": str(refused), "holds": True}
            continue
        seconds = time.perf_counter() - start
        above, result = resident("VmHWM") - before, size_of(found)
        ratio = max(above - result, 0) / (budget * 2**20)
        row |= {"above": round(above / 2**20), "result": round(result / 2**20), "ratio": round(ratio, 2)}
        yield {**row, "seconds": round(seconds, 1), "holds": ratio <= (ALLOWED_FIRST if is_first else ALLOWED)}
        del found


def measure_subject(kind: str, cases: Iterable[str], budgets: Iterable[int]) -> Iterator[dict[str, object]]:
    """Some cases of one model in this process."""
    import torch

    from benchmarks.memory_subjects import SUBJECTS

    torch.set_num_threads(1)
    asked = SUBJECTS[kind]()
    for case in cases:
        yield from measure(kind, asked, case, budgets)


def first_calls(kind: str, cases: Sequence[str]) -> None:
    """Print the first call of each case; several have a fresh process each: a forked one maps files anew."""
    if len(cases) > 1:
        for case in cases:
            subprocess.run([sys.executable, "-m", "benchmarks.memory", "first", kind, case], check=True)
        return
    import torch

    from benchmarks.memory_subjects import SUBJECTS

    torch.set_num_threads(1)
    for row in measure(kind, SUBJECTS[kind](), cases[0], BUDGETS[:1], is_first=True):
        print(json.dumps({**row, "first": True}), flush=True)


def main() -> None:
    """Some budgets of one case, one model, or all of them, each model in a process of its own."""
    if sys.argv[1:2] == ["first"]:
        first_calls(sys.argv[2], sys.argv[3:] or list(CASES))
        return
    if len(sys.argv) > 1:
        kind, *cases = sys.argv[1:3]
        for row in measure_subject(kind, cases or CASES, list(map(int, sys.argv[3:])) or BUDGETS):
            print(json.dumps(row), flush=True)
        return
    print("| model | method | targets | budget MB | above the start MB | result MB | ratio | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    from benchmarks.memory_subjects import SUBJECTS

    for kind in SUBJECTS:
        command = [sys.executable, "-m", "benchmarks.memory", kind]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                print(table_row(json.loads(line)), flush=True)


def table_row(row: dict[str, object]) -> str:
    """One row of the table.

    >>> table_row({"model": "GCN", "case": "gradient", "targets": 2, "budget": 128, "refused": "memory is 128MB, …"})
    '| GCN | gradient | 2 | 128 | memory is 128MB, … |'
    """
    keys = ("refused",) if "refused" in row else ("above", "result", "ratio", "seconds")
    return "| " + " | ".join(str(row[key]) for key in ("model", "case", "targets", "budget", *keys)) + " |"


if __name__ == "__main__":
    main()
