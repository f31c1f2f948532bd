"""compare(): which methods say the same about this model, here?

The front door: it reads the arguments, runs the methods (`metrics/runs.py`), lays their scores side by side
(`metrics/pairwise.py`) and returns a `Comparison` (`results/comparison.py`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from edgewise.api.explain import explain_question
from edgewise.arguments import one_of, share, whole_number
from edgewise.contract import checked
from edgewise.metrics.pairwise import PairwiseAgreement
from edgewise.metrics.runs import Contender, check_some_ran, read_levels, read_methods, read_seeds, run_all
from edgewise.progress import progress_bar
from edgewise.question import PosedQuestion, pose
from edgewise.results.comparison import Agreement, Comparison, Key, Running
from edgewise.results.explanation import ORDERS
from edgewise.results.explanation_set import ExplanationSet
from edgewise.results.score_rows import as_set

CORE = ("gradient", "positive_gradient", "occlusion", "gnn_explainer", "integrated_gradients")
"""The methods that are compared unless others are named."""


@checked
def compare(
    model: nn.Module,
    data: Any,
    index: Any = None,
    *,
    methods: Sequence[Any] = CORE,
    levels: str | Sequence[str] = ("input", "layer"),
    seeds: Iterable[int] = (0,),
    k: int = 10,
    by: str = "support",
    yardsticks: bool = True,
    confidence: float = 0.95,
    target: Any = None,
    task: str = "node",
    mode: str | None = None,
    of: str = "logit",
    output: str | None = None,
    forward: Callable[..., Tensor] | None = None,
    without_itself: bool = False,
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
        confidence: Coverage of the Student interval, between 0 and 1.
        target: As in `explain`, and so are `task`, `mode`, `of`, `forward`, `memory`, `batch_size` and `device`.
        task: `"node"`, `"graph"` or `"link"`.
        mode: `"multiclass"`, `"binary"`, `"multilabel"`, `"regression"`, or `None` to infer it.
        of: The explained number: `"logit"`, `"log_prob"` or `"prob"`.
        output: What the model returns: `"logit"`, `"log_prob"`, `"prob"` or `"value"`; `None` reads it off the model.
        forward: `lambda model, data: …`, if the model is not called as `model(x, edge_index, …)`.
        without_itself: As in `explain`, for links.
        memory: A ceiling for the memory of the work, such as `"2GB"`; blocks are made to fit.
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
    own: dict[str, Any] = {
        "methods": methods, "levels": levels, "seeds": seeds, "k": k, "by": by, "yardsticks": yardsticks,
        "confidence": confidence,
    }  # fmt: skip
    compare_request(**own)
    question = pose(
        model, data, index, target=target, task=task, mode=mode, of=of, output=output, forward=forward, device=device,
        without_itself=without_itself,
    )  # fmt: skip
    return compare_question(question, **own, memory=memory, batch_size=batch_size, progress=progress)


@dataclass(frozen=True)
class _Request:
    """The arguments of `compare` that say what is compared, checked."""

    contenders: list[Contender]
    levels: tuple[str, ...]
    seeds: tuple[int, ...]
    k: int
    by: str
    confidence: float


@checked
def compare_request(
    *,
    methods: Any = CORE,
    levels: Any = ("input", "layer"),
    seeds: Any = (0,),
    k: Any = 10,
    by: Any = "support",
    yardsticks: bool = True,
    confidence: Any = 0.95,
) -> _Request:
    """What is asked of a comparison, checked."""
    return _Request(
        read_methods(methods, yardsticks=yardsticks),
        read_levels(levels),
        read_seeds(seeds),
        whole_number("k", k, at_least=1, such_as=10),
        one_of("`by`", by, ORDERS),
        share("confidence", confidence, such_as=0.95),
    )


@checked
def compare_question(
    question: PosedQuestion, *, memory: Any = None, batch_size: Any = None, progress: bool = False, **own: Any
) -> Comparison:
    """The same for a question that is posed already: it is posed once, whatever the number of methods."""
    asked = compare_request(**own)

    def run(contender: Contender, level: str, seed: int) -> ExplanationSet:
        settings = {"method": contender.method, "level": level, "seed": seed, **contender.settings}
        found = explain_question(question, **settings, memory=memory, batch_size=batch_size)
        return as_set(found, "compare")

    total = len(asked.levels) * sum(len(asked.seeds) if one.draws else 1 for one in asked.contenders)
    running: list[Running] = []
    cells: dict[Key, Agreement] = {}
    with progress_bar(progress, total, "compare", "run") as advance:
        for level in asked.levels:
            runs = run_all(asked.contenders, level, asked.seeds, run, advance)
            check_some_ran(runs)
            table = PairwiseAgreement(runs, level, question.num_layers, asked.k, asked.by)
            cells |= table.agreements(asked.confidence)
            running += table.running()
    names = tuple(one.label for one in asked.contenders)
    return Comparison(
        names, asked.levels, asked.seeds, question.index, question.num_layers, asked.k, asked.by, asked.confidence,
        tuple(running), cells,
    )  # fmt: skip
