"""`ew.walks`: the question, checked, and the answer as walk sets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from edgewise.errors import SettingError
from edgewise.model.call import Forward
from edgewise.progress import progress_bar
from edgewise.question import Question, pose
from edgewise.question.memory import read_memory
from edgewise.results.settings import Settings
from edgewise.results.walk_set import Walk, WalkSet
from edgewise.walk.bounds import rounding
from edgewise.walk.search.amp import amp_ave, amp_ave_additive
from edgewise.walk.search.dag import dag_in_pieces
from edgewise.walk.search.emp import emp_neu
from edgewise.walk.search.exact import Search
from edgewise.walk.search.exhaustive import LIMIT, exhaustive
from edgewise.walk.search.frontier import starting
from edgewise.walk.search.order import SIGNS, Found
from edgewise.walk.target_blocks import RelevanceRule, TargetBlock, read_view, target_blocks

SEARCHES = ("exact", "dag", "amp_ave", "amp_ave_additive", "emp_neu", "exhaustive")
_DEFAULT_MEMORY = 2**30
_BYTES_A_NUMBER = 64  # of a prefix's gradient: with copies, and the gradient before the node's map


@dataclass(frozen=True)
class WalkRequest:
    """The checked question about walks."""

    k: int
    search: str
    sign: str
    view: RelevanceRule
    budget: int | None
    width: int
    limit: int
    memory: int


def walks(
    model: Any,
    data: Any,
    index: Any = None,
    *,
    k: int = 1,
    search: str = "exact",
    sign: str = "positive",
    rule: str = "gradient",
    target: Any = None,
    task: str = "node",
    mode: str | None = None,
    of: str = "logit",
    budget: int | None = None,
    epsilon: float = 1e-9,
    gamma: float | Sequence[float] = 0.25,
    attention: str = "full",
    norm: str | None = None,
    width: int = 1,
    limit: int = LIMIT,
    forward: Forward | None = None,
    memory: int | str | None = None,
    device: Any = None,
    progress: bool = False,
) -> Any:
    """The k most relevant walks of each target.

    Args:
        model: As for `explain`, like every argument that is not described here.
        data: The graph, or for a graph task the graphs.
        index: Which nodes or graphs.
        target: Class per index; the predicted one if not given.
        task: `"node"` or `"graph"`.
        mode: `"multiclass"`, `"binary"` or `"regression"`.
        of: `"logit"`, `"log_prob"` or `"prob"`.
        forward: How to call the model.
        device: Where to compute.
        k: How many walks.
        search: `"exact"` (proven), `"dag"` (Algorithm 1 of the paper), `"amp_ave"`, `"amp_ave_additive"`, `"emp_neu"`
            (neuron-level walks) or `"exhaustive"` (every walk).
        sign: `"positive"` walks support the class, `"negative"` ones oppose it, `"magnitude"` is both.
        rule: `"gradient"`, `"lrp-epsilon"` or `"lrp-gamma"`.
        epsilon: Of `"lrp-epsilon"`, absolute.
        gamma: Of `"lrp-gamma"`, a number or one per layer; it is meant for inputs that are not negative.
        budget: at most so many prefixes are expanded for a target; then `exact` may be False, and the bound still holds.
        attention: `"full"` differentiates attention too, `"fixed"` holds it.
        norm: `"fixed"` holds the statistics of norms over whole graphs.
        width: how many vectors `"dag"` keeps at a node.
        limit: how many walks of a target `"exhaustive"` goes through at most.
        memory: a budget such as `"2GB"`.
        progress: show a bar.

    Returns:
        A `WalkSet` for an int (or one graph), otherwise a list of them.

    >>> from edgewise.examples import path_model
    >>> model, data = path_model(gains=[2.0, 3.0])     # 0 ─2→ 1 ─3→ 2, features 1, 0, 0
    >>> print(walks(model, data, 2))
    1 walks to 2 (class 1, 6), proven
      0 → 1 → 2: +6
    """
    view = read_view(rule, epsilon, gamma, attention, norm)
    asked = _read(k, search, sign, view, budget, width, limit, memory)
    question = pose(model, data, index, target=target, task=task, mode=mode, of=of, forward=forward, device=device)
    found: list[WalkSet | None] = [None] * len(question.index)
    with progress_bar(progress, len(question.index), "walks") as advance:
        for block in target_blocks(question, asked.view, asked.memory, beam=max(asked.k, 16)):
            for walk_set in _answer(question, asked, block):
                found[walk_set[0]] = walk_set[1]
            advance(block.num_targets)
    done = [one for one in found if one is not None]
    return done[0] if question.single else done


def _read(
    k: Any, search: str, sign: str, view: RelevanceRule, budget: Any, width: Any, limit: Any, memory: Any
) -> WalkRequest:
    for name, number in (("k", k), ("width", width), ("limit", limit)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise SettingError(f"{name} is {number!r}; needed is a whole number from 1 on.")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int) or budget < 1):
        raise SettingError(
            f"budget is {budget!r}; needed is a whole number of prefixes from 1 on, or None for no limit."
        )
    for name, given, names in (("search", search, SEARCHES), ("sign", sign, SIGNS)):
        if given not in names:
            raise SettingError(f"{name} is {given!r}; known are {', '.join(map(repr, names))}.")
    bytes_ = _DEFAULT_MEMORY if memory is None else read_memory(memory)
    return WalkRequest(k, search, sign, view, budget, width, limit, bytes_)


# --- answers ----------------------------------------------------------------------------------------------------------


def _search(asked: WalkRequest, block: TargetBlock) -> Found:
    network, front, owner, size = block.network, block.front, block.owner, block.num_targets
    about = (network, block.boxes, front, owner, size, asked.k, asked.sign)
    if asked.search == "exact":
        at_once = max(asked.memory // (_BYTES_A_NUMBER * max(network.widest, 8) * network.num_calls), 1)
        slack = rounding(network, block.boxes, front, owner, size)
        return Search(*about[:2], size, asked.k, asked.sign, asked.budget, slack, at_once).run(
            starting(network, front, owner)
        )
    if asked.search == "dag":
        return dag_in_pieces(*about, asked.width, graphs=block.of_graphs, memory=asked.memory)
    if asked.search == "exhaustive":
        slack = rounding(network, block.boxes, front, owner, size)
        return exhaustive(network, front, owner, size, asked.k, asked.sign, slack, asked.limit)
    return {"emp_neu": emp_neu, "amp_ave": amp_ave, "amp_ave_additive": amp_ave_additive}[asked.search](*about)


def _answer(question: Question, asked: WalkRequest, block: TargetBlock) -> Iterator[tuple[int, WalkSet]]:
    found = _search(asked, block)
    target, score, nodes = found.target.cpu(), found.score.cpu().tolist(), found.nodes.cpu()
    rows = block.nodes(nodes - block.first_node[target].view(-1, 1)).tolist()
    start = torch.searchsorted(target, torch.arange(block.num_targets + 1)).tolist()
    upper, exact, expansions = found.upper_bound.tolist(), found.exact.tolist(), found.expansions.tolist()
    neurons = None if found.neurons is None else found.neurons.tolist()
    chosen = question.target.select(block.positions.to(question.device))
    values, columns = chosen.value(chosen.truth).tolist(), chosen.column.tolist()
    counts, _ = question.sizes(block.positions)
    settings = Settings(
        {
            **{"search": asked.search, "k": asked.k, "sign": asked.sign, "budget": asked.budget, "of": chosen.of},
            **{"rule": asked.view.rule.name, "attention": asked.view.attention, "norm": asked.view.norm},
            **{"task": question.task, "mode": chosen.mode, "flow": question.trace.flow},
        }
    )
    for number, position in enumerate(block.positions.tolist()):
        span = range(start[number], start[number + 1])
        listed = tuple(Walk(tuple(rows[i]), score[i], None if neurons is None else tuple(neurons[i])) for i in span)
        yield position, WalkSet(
            listed, exact[number], upper[number], int(question.index[position]), columns[number], values[number],
            settings, question.source_edge_index(position), int(counts[number if len(counts) > 1 else 0]), expansions[number],
        )  # fmt: skip
