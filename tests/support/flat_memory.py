"""Many calls, then many questions: resident memory must stay where it is.

    python tests/support/flat_memory.py 3000 500        # calls of every kind in turn, and questions

Questions are held in three ways: one that is asked so many times; as many, of which the last three are held; and all of them at
once, five times, each time dropped. Memory is read after every hundred calls or twenty questions, with garbage collected and
free memory given back. A finding is growth from the middle to the end above `MOST`; then the program ends with 1.
"""

import ctypes
import gc
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN

import edgewise as ew
from altered_files import Pairs, Pooled, Typed, graph, typed_graph

MOST = 4.0
"""MB: a few tensors of the caches, and nothing that a call leaves."""


def resident() -> float:
    """MB of this process that are in memory and needed."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def calls() -> dict[str, Callable[[int], Any]]:
    """One call of each kind: models and data are made anew in each, as by a service."""
    asked: dict[str, Callable[[int], dict[str, Any]]] = {
        "node": lambda seed: {"model": GCN(6, 8, 2, 3).eval(), "data": _nodes(seed), "index": [1, 2]},
        "attention": lambda seed: {"model": GAT(6, 8, 2, 3).eval(), "data": _nodes(seed), "index": [3]},
        "link": lambda seed: {"model": Pairs().eval(), "data": graph(9, seed), "index": [(0, 1)], "task": "link"},
        "graph": lambda seed: {"model": Pooled().eval(), "data": [graph(5, seed), graph(6, 1)], "task": "graph"},
        "typed": lambda seed: {"model": Typed().eval(), "data": typed_graph(), "index": ("b", [0, 2])},
    }
    ways: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "gradient": (ew.explain, {"method": "gradient"}),
        "occlusion": (ew.explain, {"method": "occlusion", "level": "layer"}),
        "masks": (ew.explain, {"method": "gnn_explainer", "epochs": 2}),
        "shapley": (ew.explain, {"method": "shapley", "samples": 2}),
        "features": (ew.features, {}),
        "counterfactual": (ew.counterfactual, {"budget": 200}),
        "walks": (ew.walks, {"k": 2}),
        "check": (ew.check, {}),
    }
    found = {}
    for task, make in asked.items():
        for way, (function, settings) in ways.items():
            found[f"{task}, {way}"] = lambda seed, f=function, m=make, s=settings: f(**m(seed), **s)
    return found


def _nodes(seed: int) -> Data:
    torch.manual_seed(seed)
    return Data(x=torch.randn(30, 6), edge_index=torch.randint(0, 30, (2, 90)))


def grown(name: str, read: list[float]) -> bool:
    """Whether memory grew in the second half; says what it was."""
    middle, end = read[len(read) // 2], read[-1]
    print(
        f"{name}: start {read[0]:.1f} MB, middle {middle:.1f} MB, end {end:.1f} MB of {list(map(round, read))}",
        flush=True,
    )
    return end - middle > MOST


def many_calls(count: int) -> list[float]:
    """Memory after each hundred calls; the first reading is after each kind was called once."""
    kinds = calls()
    for name, call in kinds.items():
        try:
            call(0)
        except ew.EdgewiseError as error:
            raise SystemExit(f"{name}: {error}") from error
    read, names = [resident()], list(kinds)
    for number in range(count):
        kinds[names[number % len(names)]](number)
        if (number + 1) % 100 == 0:
            read.append(resident())
    return read


def one_question(count: int) -> list[float]:
    """The same of one question that is held, and asked about other nodes by other methods."""
    torch.manual_seed(0)
    ask, read = ew.Question(GCN(6, 8, 2, 3).eval(), _nodes(0), [1, 2]), []
    methods = ("gradient", "occlusion", "gnn_explainer", "shapley")
    for number in range(count):
        ask.of(number % 30).explain(method=methods[number % 4])
        ask.features()
        if number % 20 == 19:
            read.append(resident())
    return read


def many_questions(count: int) -> list[float]:
    """The same of questions about one model that is trained meanwhile; the last three are held."""
    torch.manual_seed(0)
    model, held, read = GCN(6, 8, 2, 3).eval(), [], []
    for number in range(count):
        ask = ew.Question(model, _nodes(number), [number % 30, 0])
        ask.explain()
        ask.of(5).explain(method="occlusion")
        held = [*held[-2:], ask]
        with torch.no_grad():
            next(model.parameters()).add_(0.001)
        if number % 20 == 19:
            read.append(resident())
    return read


def questions_at_once(count: int) -> list[float]:
    """Memory while all questions are held, five times, and they are dropped in between."""
    torch.manual_seed(0)
    model, read = GCN(6, 8, 2, 3).eval(), []
    for time in range(5):
        held = [ew.Question(model, _nodes(number + time), [number % 30]) for number in range(count)]
        for ask in held:
            ask.explain()
        read.append(resident())
        del held, ask
    return read


def main() -> int:
    """All, in one process."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    asked, questions = int(sys.argv[1]), int(sys.argv[2])
    found = [grown("calls", many_calls(asked))]
    found += [grown(f"{ask.__name__}", ask(questions)) for ask in (one_question, many_questions, questions_at_once)]
    return int(any(found))


if __name__ == "__main__":
    sys.exit(main())
