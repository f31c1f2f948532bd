"""check(): which explanation can I believe, for this model, here?

The front door: it reads the arguments, measures everything that `trust/` knows how to measure, block of targets by block,
and returns a `Report`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.algorithms.gradient import gradients_at_one
from edgewise.arguments import whole_number
from edgewise.contract import checked
from edgewise.progress import progress_bar
from edgewise.question import PosedQuestion, pose
from edgewise.question.memory import blocks, read_batch_size, read_memory, room
from edgewise.score import Score
from edgewise.trust.activity import activity
from edgewise.trust.certificate import certificate_of
from edgewise.trust.completeness import Balance, Pull, balance_of, pull_of
from edgewise.trust.flips import WEIGHTS, flip_draw, flips_of
from edgewise.trust.gradient_vs_occlusion import Effects, drops_of, effects_of
from edgewise.trust.measurements import Measurements, asked_question, layer_findings, softmax_findings, whole_findings
from edgewise.trust.reliance import path_of
from edgewise.trust.report import Report
from edgewise.trust.statements import Facts, statements
from edgewise.trust.target_edges import EVERYTHING, MOST_PAIRS, Draw, read_edges
from edgewise.walk.target_blocks import refusal_of_walks

LEVELS = ("layer", "input")
_HALVES = 4  # random halves of every layer's edges, for each target
_PIECES = 5  # parts of [0, 1] in a proof


@checked
def check(
    model: nn.Module,
    data: Any,
    index: Any = None,
    *,
    target: Any = None,
    task: str = "node",
    mode: str | None = None,
    of: str = "logit",
    output: str | None = None,
    forward: Callable[..., Tensor] | None = None,
    without_itself: bool = False,
    edges: int | None = MOST_PAIRS,
    memory: Any = None,
    batch_size: int | None = None,
    device: Any = None,
    seed: int = 0,
    progress: bool = False,
) -> Report:
    """How far explanations of this model can be trusted, here: measured, and judged by the statements of the paper.

    For each layer it measures whether gradients add up to the explained number and what self edges and biases carry, how far
    gradients are from occlusions, whether they keep their signs (when an edge is weakened alone: sampled, and proved where
    possible; when all are weakened together: sampled), and how often ReLU units are on; and once, how flat the softmax is. It
    says whether gradients can be relied on here, as `method="auto"` decides it, which statements of the paper hold, and so
    which fast method can replace a slow one.

    Args:
        model: As in `explain`.
        data: As in `explain`.
        index: As in `explain`.
        target: As in `explain`.
        task: `"node"`, `"graph"` or `"link"`.
        mode: `"multiclass"`, `"binary"`, `"multilabel"`, `"regression"`, or `None` to infer it.
        of: The explained number: `"logit"`, `"log_prob"` or `"prob"`.
        output: What the model returns: `"logit"`, `"log_prob"`, `"prob"` or `"value"`; `None` reads it off the model.
        forward: `lambda model, data: …`, if the model is not called as `model(x, edge_index, …)`.
        without_itself: As in `explain`, for links.
        edges: About how many (target, edge) pairs to ask about where each pair costs work of its own: a random part if there
            are more, all of them with `None`. For a model that is not local, whose targets cannot share a pass, it is a
            twentieth of that. The report says how large the part was.
        memory: A ceiling for the memory of the work, such as `"2GB"`; blocks are made to fit.
        batch_size: Targets in a block, instead of `memory`.
        device: Where to compute, such as `"cuda"`.
        seed: Random seed of that part, and of the random halves of edges.
        progress: Show a progress bar.

    Returns:
        A `Report`: print it.

    >>> import torch; from torch_geometric.data import Data; from torch_geometric.nn import SAGEConv
    >>> conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)
    >>> _ = conv.lin_l.weight.data.fill_(2.0)
    >>> data = Data(x=torch.tensor([[1.0], [-3.0], [0.0]]), edge_index=torch.tensor([[0, 1], [2, 2]]))
    >>> report = check(conv, data, index=2)                  # z = 2·ω₀ − 6·ω₁, so class 0 is predicted
    >>> report.layers[0].gap.value, report.statement("Proposition 1").verdict
    (tensor([0.], dtype=torch.float64), 'holds')
    """
    own = {"edges": edges, "memory": memory, "batch_size": batch_size, "seed": seed}
    _checked(**own)
    question = pose(
        model, data, index, target=target, task=task, mode=mode, of=of, output=output, forward=forward, device=device,
        without_itself=without_itself,
    )  # fmt: skip
    return check_question(question, **own, progress=progress)


def _checked(*, edges: Any, memory: Any, batch_size: Any, seed: Any) -> tuple[int, int | None, int | None, int]:
    """(bytes, targets in a block, pairs to ask about, seed), checked."""
    return read_memory(memory), read_batch_size(batch_size), read_edges(edges), whole_number("seed", seed)


@checked
def check_question(
    question: PosedQuestion,
    *,
    edges: int | None = MOST_PAIRS,
    memory: Any = None,
    batch_size: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Report:
    """The same for a question that is posed already."""
    _, size, most, seed = _checked(edges=edges, memory=memory, batch_size=batch_size, seed=seed)
    budget = room(question, memory)
    question.check_slopes()
    with question.borrowed(), progress_bar(progress, 6, "check", "step") as advance:
        draw = flip_draw(question, most, budget, seed)
        found = _measure(question, draw, seed, budget, size, advance)
        no_walks = refusal_of_walks(question, budget)
    asked = asked_question(question, found, draw, no_walks)
    layers = tuple(layer_findings(question, found, layer) for layer in range(question.num_layers))
    whole, softmax = whole_findings(question, found), softmax_findings(question, found)
    every = range(len(question.index))
    together, each = found.reliance(), tuple(found.reliance([position]) for position in every)
    return Report(asked, layers, whole, softmax, statements(Facts(asked, layers, whole, softmax)), together, each)


def _measure(
    question: PosedQuestion, draw: Draw, seed: int, memory: int, batch_size: int | None, advance: Callable[[float], Any]
) -> Measurements:
    """Everything that a report needs; `draw` says about which edges to ask where each costs work of its own."""
    drops = {level: drops_of(question, level, memory) for level in LEVELS}
    about = EVERYTHING if question.lowering is not None else draw  # occlusion of a lowered model costs next to nothing
    balances: list[Balance] = []
    effects: dict[str, list[Effects]] = {level: [] for level in LEVELS}
    paths: list[Tensor] = []
    pull, pairs = Pull(), 0
    for positions in blocks(question, memory, batch_size):
        score = Score.of_block(question, positions)
        edge, own = gradients_at_one(score)
        if score.way == "copies":
            question.check_layout(positions, may_stop=score.may_stop)
        pairs += score.owner.numel()
        balances.append(balance_of(score, edge, own, _HALVES, seed))
        for level in LEVELS:
            effects[level].append(effects_of(question, score, edge, level, about, drops[level]))
        paths.append(path_of(score, edge.sum(dim=0)))
        if question.target.mode != "regression":
            pull += pull_of(score, edge.sum(dim=0))
    advance(1)
    flips, proofs = {}, {}
    for level in LEVELS:
        flips[level] = flips_of(question, level, WEIGHTS, draw, memory, batch_size)
        advance(1)
        proofs[level] = certificate_of(question, level, _PIECES, draw, memory)
        advance(1)
    active = activity(question, memory)
    advance(1)
    joined = {level: Effects.joined(parts) for level, parts in effects.items()}
    path = torch.cat(paths, dim=1)
    return Measurements(Balance.joined(balances), joined, flips, proofs, path, active, pull, pairs)
