"""compare(): which methods say the same about this model, here?

The front door: it reads the arguments, runs the methods (`metrics/runs.py`), lays their scores side by side
(`metrics/pairwise.py`) and returns a `Comparison` (`results/comparison.py`).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from edgewise.api.explain import explain
from edgewise.arguments import one_of, share, whole_number
from edgewise.metrics.pairwise import PairwiseAgreement
from edgewise.metrics.runs import Contender, check_some_ran, read_levels, read_methods, read_seeds, run_all
from edgewise.progress import progress_bar
from edgewise.question import pose
from edgewise.results.comparison import Agreement, Comparison, Key, Running
from edgewise.results.explanation import ORDERS
from edgewise.results.explanation_set import ExplanationSet
from edgewise.results.score_rows import as_set

CORE = ("gradient", "positive_gradient", "occlusion", "gnn_explainer", "integrated_gradients")
"""The methods that are compared unless others are named."""


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

    The comparison is over the scores of the edges that can matter to a target, at layer level also layer by layer. A method
    that has no such level, or that cannot explain this model, stays in the tables with the reason.

    Args:
        model: As in `explain`.
        data: As in `explain`.
        index: As in `explain`.
        methods: Names of `ew.methods()`, pairs of a name and its settings, or objects that `ew.from_pyg` made.
        levels: `"input"`, `"layer"`, or both.
        seeds: Random seeds; a method that draws random numbers runs with each of them. With several seeds the diagonal of
            a table says how alike such a method is to itself.
        k: Number of strongest edges whose overlap is measured.
        by: Which edges are strong: `"support"`, `"opposition"` or `"magnitude"`.
        yardsticks: Whether `random` and `full` are compared too.
        resamples: Number of bootstrap resamples over targets and seeds.
        confidence: Coverage of the bootstrap interval, between 0 and 1.
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
    k, by = whole_number("k", k, at_least=1, such_as=10), one_of("`by`", by, ORDERS)
    resamples = whole_number("resamples", resamples, at_least=1, such_as=1000)
    confidence = share("confidence", confidence, such_as=0.95)
    asked = {"target": target, "task": task, "mode": mode, "of": of, "forward": forward, "device": device}
    question = pose(
        model, data, index, **asked
    )  # a mistake in the question itself is raised here, before any method runs
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
            check_some_ran(runs)
            table = PairwiseAgreement(runs, level, question.num_layers, k, by)
            cells |= table.agreements(resamples, confidence)
            running += table.running()
    names = tuple(one.label for one in contenders)
    return Comparison(
        names, level_names, numbers, question.index, question.num_layers, k, by, confidence, tuple(running), cells
    )
