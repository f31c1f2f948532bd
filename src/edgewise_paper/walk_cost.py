"""The experiment on what Algorithm 1 costs: the text claims O(L (|V| + |E|) γ(p)), γ the cost of a product of p × p matrices.

One node of a random graph is explained whose walks reach the whole graph. Edges, layers and width grow by themselves; the
exponent is the slope of log seconds (of the processor) over log size. Walks carry vectors, not matrices, so a step costs p²:
γ(p) = p³ is more than is needed.

| part of a task | its rows |
|---|---|
| `edges`, `layers`, `width` | seconds for each size, and the exponent |
"""

import math
import time

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import edgewise as ew
from edgewise.random_numbers import seeded
from edgewise_paper.context import Context
from edgewise_paper.task import PaperOptions, Task, TaskOutcome

NAME = "walk-cost"
USUAL = {"nodes": 1000, "edges": 80_000, "layers": 4, "width": 64}
SIZES = {"edges": (100_000, 200_000, 400_000, 800_000), "layers": (4, 8, 12, 16), "width": (64, 128, 256, 512)}
QUICK = {"edges": (5_000, 10_000), "layers": (4, 6), "width": (16, 32)}
SEARCHES = ("dag",)
REPEATS = 2


def tasks(options: PaperOptions) -> list[Task]:
    """One task for each thing that grows."""
    sizes = QUICK if options.quick else SIZES
    about = {"dataset": "random graph", "architecture": "GraphSAGE", "seed": 0, **USUAL}
    seconds = 1.0 if options.quick else 20.0
    return [Task(NAME, part, about | {"sizes": list(some)}, seconds) for part, some in sizes.items()]


def run(task: Task, _context: Context) -> TaskOutcome:
    """Seconds for every size, and the exponent."""
    rows = []
    for search in SEARCHES:
        seconds = []
        for size in task.settings["sizes"]:
            setting = {name: task.settings[name] for name in USUAL} | {task.part: size}
            seconds.append(_seconds(setting, search))
            about = {"method": search, "variant": f"{task.part} {size}", "layers": setting["layers"]}
            rows.append(task.row("seconds of the processor", seconds[-1], **about))
        exponent = slope(task.settings["sizes"], seconds)
        rows.append(task.row("exponent", exponent, method=search, reference=task.part, count=len(seconds), layers=0))
    return TaskOutcome(rows)


def _seconds(setting: dict[str, int], search: str) -> float:
    """The least of a few measurements of one search: posing the question, which trains nothing, is left out."""
    with seeded(0):
        edge_index = torch.randint(setting["nodes"], (2, setting["edges"]))
        data = Data(x=torch.rand(setting["nodes"], 8), edge_index=edge_index)
        model = GraphSAGE(8, setting["width"], setting["layers"], 2, aggr="mean").eval()
    question = ew.Question(model, data, [0])
    found = []
    for _ in range(REPEATS):
        start = time.process_time()
        question.walks(search=search)
        found.append(time.process_time() - start)
    return min(found)


def slope(sizes: list[int], seconds: list[float]) -> float:
    """The exponent k of seconds ∝ size^k, by least squares of the logarithms.

    >>> round(slope([1, 2, 4], [3.0, 12.0, 48.0]), 6)
    2.0
    """
    x, y = [math.log(size) for size in sizes], [math.log(max(second, 1e-9)) for second in seconds]
    middle, height = sum(x) / len(x), sum(y) / len(y)
    return sum((a - middle) * (b - height) for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)
