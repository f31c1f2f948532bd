"""`ew.walks`: the k most relevant walks of each target. The question is checked, the answers become walk sets.

What a walk is: `docs/walks.md`. How walks are found: `edgewise/walk/__init__.py` says in which order to read the files.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from edgewise.arguments import one_of, real_number, whole_number
from edgewise.arrays import plain_index
from edgewise.contract import checked
from edgewise.errors import SettingError
from edgewise.model.call import Forward
from edgewise.progress import progress_bar
from edgewise.question import PosedQuestion, pose
from edgewise.question.freed_memory import FreedMemory
from edgewise.question.memory import read_memory, room
from edgewise.question.target import Target
from edgewise.random_numbers import one_thread
from edgewise.results.explanation import Settings
from edgewise.results.walk_set import Walk, WalkSet, WalkSets
from edgewise.walk.bounds import rounding
from edgewise.walk.prefixes import starting
from edgewise.walk.search.amp import amp_ave, amp_ave_additive
from edgewise.walk.search.dag import dag_in_pieces
from edgewise.walk.search.emp import emp_neu
from edgewise.walk.search.exact import Search
from edgewise.walk.search.exhaustive import LIMIT, exhaustive
from edgewise.walk.search.order import SIGNS, SearchResult
from edgewise.walk.target_blocks import RelevanceRule, TargetBlock, dense_bytes, read_rule, target_blocks

SEARCHES = ("exact", "dag", "amp_ave", "amp_ave_additive", "emp_neu", "exhaustive")
_BYTES_A_NUMBER = 64  # of a prefix's gradient: with copies, and the gradient before the node's map


@dataclass(frozen=True)
class WalkRequest:
    """What is asked of a search, checked; see the arguments of `walks`."""

    k: int
    search: str
    sign: str
    how: RelevanceRule
    budget: int | None
    seconds: float | None
    width: int
    limit: int
    memory: int


@checked
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
    seconds: float | None = None,
    epsilon: float = 1e-9,
    gamma: float | Sequence[float] = 0.25,
    attention: str = "full",
    norm: str | None = None,
    width: int = 1,
    limit: int = LIMIT,
    output: str | None = None,
    forward: Forward | None = None,
    without_itself: bool = False,
    memory: int | str | None = None,
    device: Any = None,
    progress: bool = False,
) -> Any:
    """Find the k most relevant walks of each target: along which nodes information reached it, layer by layer.

    Args:
        model: The model, as for `explain`.
        data: The graph, or for a graph task the graphs.
        index: The nodes or graphs, as for `explain`.
        target: The class, one or one for each index; `None` is the predicted one, `"all"` every class of each target in turn.
        task: `"node"`, `"graph"` or `"link"`: walks to either end of a pair.
        mode: `"multiclass"`, `"binary"`, `"multilabel"`, `"regression"`, or `None` to infer it.
        of: The explained number: `"logit"`, `"log_prob"` or `"prob"`.
        output: What the model returns: `"logit"`, `"log_prob"`, `"prob"` or `"value"`; `None` reads it off the model.
        forward: How to call the model, as for `explain`.
        without_itself: As for `explain`, for links.
        device: Where to compute, such as `"cuda"`.
        k: How many walks of each target.
        search: `"exact"` (proven), `"dag"` (Algorithm 1 of the paper), `"amp_ave"`, `"amp_ave_additive"`, `"emp_neu"`
            (neuron-level walks) or `"exhaustive"` (every walk).
        sign: `"positive"` walks support the class, `"negative"` ones oppose it, `"magnitude"` is both.
        rule: `"gradient"`, `"lrp-epsilon"` or `"lrp-gamma"`.
        epsilon: The ε of `"lrp-epsilon"`, absolute.
        gamma: The γ of `"lrp-gamma"`, a number or one per layer; it is meant for inputs that are not negative.
        budget: The most prefixes that are expanded for a target; then `exact` may be False, and the bound still holds.
        seconds: After so many, for all targets together, nothing more is expanded: as with a budget. Of `"exact"` alone.
        attention: `"full"` differentiates attention too, `"fixed"` holds it.
        norm: `"fixed"` holds the statistics of norms over whole graphs.
        width: How many vectors `"dag"` keeps at a node.
        limit: The most walks of a target that `"exhaustive"` goes through.
        memory: A ceiling such as `"2GB"`; it changes the size of batches, never a result.
        progress: Show a progress bar.

    Returns:
        A `WalkSet` for an int (or one graph), otherwise a list of them, which prints each below the one before.

    >>> from edgewise.examples import path_model
    >>> model, data = path_model(gains=[2.0, 3.0])     # 0 ─2→ 1 ─3→ 2, features 1, 0, 0
    >>> print(walks(model, data, 2))
    1 walk to node 2 (class 1, logit 6), proven up to ties of 1e-9
      0 → 1 → 2: +6
    """
    own: dict[str, Any] = {
        "k": k, "search": search, "sign": sign, "rule": rule, "epsilon": epsilon, "gamma": gamma, "attention": attention,
        "norm": norm, "budget": budget, "seconds": seconds, "width": width, "limit": limit, "memory": memory,
    }  # fmt: skip
    walks_request(**own)  # a wrong setting is said before the model is run
    question = pose(
        model, data, index, target=target, task=task, mode=mode, of=of, output=output, forward=forward, device=device,
        without_itself=without_itself,
    )  # fmt: skip
    return walks_of_question(question, **own, progress=progress)


@checked
def walks_of_question(question: PosedQuestion, *, progress: bool = False, **own: Any) -> WalkSet | list[WalkSet]:
    """The same for a question that is posed already; `own` are the arguments of `walks` that a search takes."""
    asked, began = walks_request(**own), time.perf_counter()
    dense = dense_bytes(question, asked.how.attention)
    asked = replace(
        asked, memory=room(question, own.get("memory"), dense, "holding the derivatives of all edges" if dense else "")
    )
    found: list[WalkSet | None] = [None] * len(question.index)
    freed = FreedMemory(asked.memory)
    with one_thread(), progress_bar(progress, len(question.index), "walks") as advance:
        for block in target_blocks(question, asked.how, asked.memory, beam=max(asked.k, 16)):
            for position, walk_set in _answer(question, asked, block, began):
                found[position] = walk_set
            advance(block.num_targets)
            freed.give_back()
    if asked.how.rule.is_gradient:
        question.check_slopes()  # at the end: a model whose walks cannot be followed has been refused for that
    done = [one for one in found if one is not None]
    return done[0] if question.single else WalkSets(done)


@checked
def walks_request(
    *,
    k: Any = 1,
    search: str = "exact",
    sign: str = "positive",
    rule: str = "gradient",
    epsilon: float = 1e-9,
    gamma: Any = 0.25,
    attention: str = "full",
    norm: str | None = None,
    budget: Any = None,
    seconds: Any = None,
    width: Any = 1,
    limit: Any = 10**6,
    memory: Any = None,
) -> WalkRequest:
    """The arguments of a search, with the defaults of `walks`."""
    how = read_rule(rule, epsilon, gamma, attention, norm)
    return _read(k, search, sign, how, budget, _seconds(seconds, search), width, limit, memory)


def _seconds(seconds: Any, search: Any) -> float | None:
    """The time that a search may take; the others have nothing to leave out."""
    if seconds is None:
        return None
    if search in SEARCHES and search != "exact":
        raise SettingError(
            f"`seconds` ends search='exact' early, got search={search!r}, which goes through everything that it keeps. Use "
            f"search='exact', or leave `seconds` out."
        )
    return real_number("seconds", seconds, above=0, such_as=10.0)


def _read(
    k: Any, search: str, sign: str, how: RelevanceRule, budget: Any, seconds: float | None, width: Any, limit: Any, memory: Any
) -> WalkRequest:  # fmt: skip
    """Check what `walks` asks of a search."""
    return WalkRequest(
        k=whole_number("k", k, at_least=1, such_as=10),
        search=one_of("search", search, SEARCHES),
        sign=one_of("sign", sign, SIGNS),
        how=how,
        budget=whole_number("budget", budget, at_least=1, or_none="for no limit", such_as=100),
        seconds=seconds,
        width=whole_number("width", width, at_least=1, such_as=4),
        limit=whole_number("limit", limit, at_least=1, such_as=LIMIT),
        memory=read_memory(memory),
    )


def _search(asked: WalkRequest, block: TargetBlock, began: float) -> SearchResult:
    """Run the search that is asked for on one block of targets; `began` is when the call was made."""
    network, front, owner, size = block.network, block.front, block.owner, block.num_targets
    about = (network, block.boxes, front, owner, size, asked.k, asked.sign)
    if asked.search == "exact":
        at_once = max(asked.memory // 2 // (_BYTES_A_NUMBER * max(network.widest, 8) * network.num_calls), 1)
        slack = rounding(network, block.boxes, front, owner, size)
        seconds = asked.seconds
        is_over = None if seconds is None else lambda: time.perf_counter() - began > seconds
        search = Search(network, block.boxes, size, asked.k, asked.sign, asked.budget, slack, at_once, is_over)
        return search.run(starting(front, owner, network.num_calls))
    if asked.search == "dag":
        return dag_in_pieces(*about, asked.width, graphs=block.of_graphs, memory=asked.memory)
    if asked.search == "exhaustive":
        slack = rounding(network, block.boxes, front, owner, size)
        return exhaustive(network, front, owner, size, asked.k, asked.sign, slack, asked.limit)
    return {"emp_neu": emp_neu, "amp_ave": amp_ave, "amp_ave_additive": amp_ave_additive}[asked.search](*about)


def _answer(
    question: PosedQuestion, asked: WalkRequest, block: TargetBlock, began: float
) -> Iterator[tuple[int, WalkSet]]:
    """The walk sets of one block, each with its position in the question; nodes are numbered as the user does."""
    found = _search(asked, block, began)
    target, score, nodes = found.target.cpu(), found.score.cpu().tolist(), found.nodes.cpu()  # [n], [n], [n, L + 1]
    rows = block.nodes(nodes - block.first_node[target].view(-1, 1)).tolist()
    start = torch.searchsorted(
        target, torch.arange(block.num_targets + 1)
    ).tolist()  # walks of t: start[t]:start[t + 1]
    upper, exact, expansions = found.upper_bound.tolist(), found.exact.tolist(), found.expansions.tolist()
    neurons = None if found.neurons is None else found.neurons.tolist()
    chosen = question.target.select(block.positions.to(question.device))
    values, columns = chosen.value(chosen.truth).tolist(), chosen.column.tolist()
    counts, _ = question.sizes(block.positions)
    settings = _settings(question, asked, chosen)
    index = plain_index(question.index)
    if question.types is not None and question.types.explained:
        index = [question.types.asked(one) for one in index]
    for number, position in enumerate(block.positions.tolist()):
        span, types = range(start[number], start[number + 1]), question.types_of(position)
        if types is not None:
            rows[span.start : span.stop] = [[types.node(node) for node in rows[i]] for i in span]
        listed = tuple(Walk(tuple(rows[i]), score[i], None if neurons is None else tuple(neurons[i])) for i in span)
        yield position, WalkSet(
            listed, exact[number], upper[number], index[position], columns[number], values[number],
            settings, question.source_edge_index(position), int(counts[number if len(counts) > 1 else 0]), expansions[number],
            types,
        )  # fmt: skip


def _settings(question: PosedQuestion, asked: WalkRequest, chosen: Target) -> Settings:
    """What a walk set says about how it was found."""
    return Settings(
        {
            **{"search": asked.search, "k": asked.k, "sign": asked.sign, "budget": asked.budget, "of": chosen.of},
            **({} if asked.seconds is None else {"seconds": asked.seconds}),
            **{"rule": asked.how.rule.name, "attention": asked.how.attention, "norm": asked.how.norm},
            **{"task": question.task, "mode": chosen.mode, "flow": question.trace.flow or question.trace.flows},
        }
    )
