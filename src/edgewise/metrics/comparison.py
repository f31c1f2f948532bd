"""compare(): which methods say the same about this model, here?"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from edgewise.collection import ExplanationSet
from edgewise.errors import SettingError
from edgewise.explaining import explain
from edgewise.explanation import ORDERS
from edgewise.metrics.compared import Agreement, Comparison, Key, Running
from edgewise.metrics.contenders import Contender, read_levels, read_methods, read_seeds
from edgewise.metrics.every_pair import Table, run_all
from edgewise.metrics.rows import as_set
from edgewise.problem import pose
from edgewise.progress import progress_bar

CORE = ("gradient", "positive_gradient", "occlusion", "gnn_explainer", "integrated_gradients")


def compare(
    model: nn.Module,
    data: Any,
    index: Any = None,
    *,
    methods: Sequence[Any] = CORE,
    levels: Sequence[str] = ("input", "layer"),
    seeds: Iterable[int] = (0,),
    k: int = 10,
    by: str = "support",
    yardsticks: bool = True,
    resamples: int = 1000,
    confidence: float = 0.95,
    target: Any = None,
    task: str = "node",
    mode: str | None = None,
    of: str = "logit",
    forward: Callable[..., Tensor] | None = None,
    memory: Any = None,
    batch_size: int | None = None,
    device: Any = None,
    progress: bool = False,
) -> Comparison:
    """How alike methods are on this model: every two of them, by cosine, Spearman's rank correlation, top-k overlap and sign.

    Compared are the scores of the edges that can matter to a target, at layer level also layer by layer. A method that has no
    such level, or that cannot explain this model, stays in the tables with the reason.

    Args:
        model: As in `explain`.
        data: As in `explain`.
        index: As in `explain`.
        methods: Names of `ew.methods()`, pairs of a name and its settings, or objects that `ew.from_pyg` made.
        levels: `"input"`, `"layer"`, or both.
        seeds: Methods that draw random numbers run with each; with several seeds the diagonal says how alike a method is to
            itself with another seed.
        k: Edges in the overlap of the strongest.
        by: What is strong: `"support"`, `"opposition"` or `"magnitude"`.
        yardsticks: Whether `random` and `full` come along.
        resamples: Of the bootstrap over targets and seeds.
        confidence: Of its interval.
        target: As in `explain`, and so are `task`, `mode`, `of`, `forward`, `memory`, `batch_size` and `device`.
        task: `"node"` or `"graph"`.
        mode: `"multiclass"`, `"binary"`, `"regression"`, or `None` to infer it.
        of: The explained number: `"logit"`, `"log_prob"` or `"prob"`.
        forward: `lambda model, data: …`, if the model is not called as `model(x, edge_index, …)`.
        memory: A budget for one block of targets, such as `"2GB"`.
        batch_size: Targets in a block, instead of `memory`.
        device: Where to compute, such as `"cuda"`.
        progress: Show a progress bar.

    Returns:
        A `Comparison`: print it for the tables.

    >>> import torch; from torch_geometric.data import Data; from torch_geometric.nn import SAGEConv
    >>> conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)
    >>> _ = conv.lin_l.weight.data.fill_(2.0)
    >>> data = Data(x=torch.tensor([[1.0], [3.0], [0.0]]), edge_index=torch.tensor([[0, 1], [2, 2]]))
    >>> found = compare(conv, data, [2], methods=["gradient", "occlusion"], target=1)
    >>> round(found.pair("gradient", "occlusion").mean, 4), round(found.pair("gradient", "full").mean, 4)
    (1.0, 0.8944)
    """
    contenders = read_methods(methods, yardsticks=yardsticks)
    level_names, numbers = read_levels(levels), read_seeds(seeds)
    _check_numbers(k, by, resamples, confidence)
    asked = {"target": target, "task": task, "mode": mode, "of": of, "forward": forward, "device": device}
    problem = pose(model, data, index, **asked)  # what is wrong with the question is no method's fault
    options = {**asked, "memory": memory, "batch_size": batch_size}

    def run(contender: Contender, level: str, seed: int) -> ExplanationSet:
        own = {"method": contender.method, "level": level, "seed": seed, **contender.settings}
        return as_set(explain(model, data, index, **own, **options), "compare")

    total = len(level_names) * sum(len(numbers) if one.draws else 1 for one in contenders)
    running: list[Running] = []
    cells: dict[Key, Agreement] = {}
    with progress_bar(progress, total, "compare", "run") as advance:
        for level in level_names:
            runs = run_all(contenders, level, numbers, run, advance)
            table = Table(runs, level, problem.num_layers, k, by)
            cells |= table.agreements(resamples, confidence)
            running += table.running()
    names = tuple(one.label for one in contenders)
    return Comparison(
        names, level_names, numbers, problem.index, problem.num_layers, k, by, confidence, tuple(running), cells
    )


def _check_numbers(k: Any, by: Any, resamples: Any, confidence: Any) -> None:
    for name, value, such_as in (("k", k, 10), ("resamples", resamples, 1000)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise SettingError(f"{name} is {value!r}; needed is a whole number of at least 1, such as {such_as}.")
    if by not in ORDERS:
        raise SettingError(f"by is {by!r}; known are {', '.join(ORDERS)}.")
    if not isinstance(confidence, float) or not 0 < confidence < 1:
        raise SettingError(f"confidence is {confidence!r}; needed is a share between 0 and 1, such as 0.95.")
