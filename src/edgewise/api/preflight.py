"""What `print(question)` says before any long work: what is asked, how it will run, and what each method will cost."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.algorithms.registry import methods
from edgewise.errors import EdgewiseError
from edgewise.question import NodeQuestion, PosedQuestion, sub_target
from edgewise.question.block_growth import DEFAULT_MEMORY
from edgewise.question.memory import held_bytes
from edgewise.text import columns, counted, duration

_SAMPLE = 4
"""Targets on which a pass is timed."""
FEWEST = 0.6
"""The share of right predictions below which something may be wrong with the data."""
_MANY = {"logit": "logits", "log_prob": "log-probabilities", "prob": "probabilities", "value": "values"}
_SLOW = 120.0
"""Seconds from which on a cheaper method is named."""
_TRIAL = 1.0
"""Seconds that a method may take for one target to be tried there: whether a model is refused is not guessed."""
_SMALLEST: Mapping[str, Mapping[str, Any]] = {
    **{name: {} for name in ("gradient", "positive_gradient", "occlusion", "eig_search")},
    **{name: {} for name in ("deep_lift", "degree", "lrp", "goat_walks")},
    "gnn_explainer": {"epochs": 1},
    "gnn_explainer_fast": {"epochs": 1},
    "integrated_gradients": {"steps": 1},
    "shapley": {"samples": 2},
    "subgraphx": {"beam": 1, "samples": 1},
}
"""Methods that are tried, with the settings that make the least work."""
_WAYS = {
    "lowered": "the model's operations are run by a program of ours that was compared with it",
    "copies": "the model itself is run, on a copy of each target's neighbourhood",
    "whole graph": "the model itself is run, on the whole graph for every target: slower, and as right",
}
_LOCALITY = {
    "whole graph": "the graph is small enough to be taken whole, nothing was cut out",
    "proved": "targets need their neighbourhoods alone, and that is proved",
    "confirmed": "on their neighbourhoods alone targets have the values that one pass over the whole graph gave",
    "tested": "targets seem to need their neighbourhoods alone: that was tested, not proved",
}


def preflight(question: PosedQuestion, way: str) -> str:
    """The facts, then a table of methods with estimated seconds and megabytes."""
    lines = [columns([(name, text) for name, text in _facts(question, way)])]
    rows, slow = [("method", "level", "seconds", "memory")], []
    refused: dict[str, list[str]] = {}
    seconds, edges = _pass(question, way)
    for name, method in methods().items():
        if method.chooses:
            continue  # what it costs is what it chooses
        for level in method.levels:
            cost = seconds * _passes(name, level, question, edges, way)
            at_once = method.stepwise and question.lowering is None  # such a refusal takes no time
            if why := _refusal(question, name, level, 0.0 if at_once else cost / max(len(question.index), 1)):
                refused.setdefault(why, []).append(f"{name} ({level})")
                continue
            rows.append((name, level, _short(cost), _megabytes(question, edges)))
            if cost > _SLOW:
                slow.append(f"{name} ({level})")
    lines.append(columns(rows))
    lines += [f"Refused here: {', '.join(names)}. {why}" for why, names in refused.items()]
    lines.append(
        'Recommended: method="auto". It measures gradients against occlusions on a few targets, takes the method that can be '
        "relied on here, and says why (docs/which-method.md)."
    )
    if slow:
        lines.append(f"Slow here: {', '.join(slow)}. Use gradient, or occlusion if it is fast, for a first look.")
    return "\n\n".join(lines)


def _refusal(question: PosedQuestion, name: str, level: str, seconds: float) -> str:
    """Why a method refuses this model, found out on one target; empty if it does not, or if a trial takes too long.

    A reason that names how far gradients are off is that of all targets, as an explanation of them would say it.
    """
    from edgewise.api.explain import explain_question

    if name not in _SMALLEST or seconds > _TRIAL or not len(question.index):
        return ""
    one = question.at(torch.zeros(1, dtype=torch.long)) if len(question.index) > 1 else question
    try:
        explain_question(one, method=name, level=level, **_SMALLEST[name])
    except EdgewiseError as error:
        is_slope = one.is_slope_refused and str(error) == one.slope_problem()
        return question.slope_problem() if is_slope else str(error)
    return ""


def brief(question: PosedQuestion, way: str, asked: Sequence[tuple[str, str]], total: int, explained: int) -> list[str]:
    """The same in two or three sentences, about the methods and levels that were asked for; `question` may be about some.

    Args:
        question: The targets, or the first of them.
        way: How the model is run.
        asked: (method, level) pairs whose cost is told.
        total: How many targets there are in all.
        explained: How many of them are explained.
    """
    types = question.types
    of_nodes = types is not None and types.explained and types.link is None
    noun = types.explained if types is not None and of_nodes else question.task
    returns = f"the model returns {_MANY[question.output.name]}, and the {_number(question.target)} is explained"
    lines = [f"{counted(total, noun)}; {returns}; {counted(question.num_layers, 'layer')}."]
    if agreement := agreement_with_labels(question, noun):
        lines.append(agreement)
    if asked:
        seconds, edges = _pass(question, way)
        each = seconds * explained / len(question.index)
        costs = {(name, level): each * _passes(name, level, question, edges, way) for name, level in asked}
        told = [f"{name} ({level}) {_about(cost)}" for (name, level), cost in costs.items()]
        lines.append(f"Estimated: {', '.join(told)}; memory {_megabytes(question, edges, explained)}.")
        lines += _cheaper(costs, each)
    return lines


def _cheaper(costs: dict[tuple[str, str], float], each: float) -> list[str]:
    """What to do first, where a method that was asked for takes minutes; `each` are the seconds of a gradient pass.

    >>> _cheaper({("shapley", "input"): 1500.0, ("gradient", "input"): 2.0}, 2.0)
    ['shapley: for a first look, --method gradient takes about 2 s.']
    """
    slow = [name for (name, _), cost in costs.items() if cost > _SLOW and cost > 2 * each]
    if not slow:
        return []
    return [f"{' and '.join(dict.fromkeys(slow))}: for a first look, --method gradient takes {_about(each)}."]


def _about(seconds: float) -> str:
    """An estimate in words.

    >>> _about(0.004), _about(75.0)
    ('under 1 s', 'about 1 min 15 s')
    """
    return "under 1 s" if seconds < 1 else f"about {duration(seconds)}"


def agreement_with_labels(question: PosedQuestion, noun: str) -> str:
    """A sentence about how many predictions are the labels; with a question where they are few. Empty without labels."""
    found = question.agreement()
    if found is None:
        return ""
    right, known = found
    text = f"Predictions agree with {_labels_of(question)} on {right} of {counted(known, noun)}"
    return f"{text}." if right >= FEWEST * known else f"{text}: is the data scaled as in training?"


def _labels_of(question: PosedQuestion) -> str:
    return "edge_label" if question.task == "link" else "y"


def _facts(question: PosedQuestion, way: str) -> list[tuple[str, str]]:
    target, count = question.target, len(question.index)
    nodes, edges = _sizes(question)
    types = question.types
    of_type = f" of type {types.explained}" if types is not None and types.explained else ""
    facts = [
        ("task", f"{question.task}{of_type}, {count} target{'s' if count > 1 else ''}"),
        ("model returns", f"{_MANY[question.output.name]}; the {_number(target)} is explained"),
        ("layers", str(question.num_layers)),
        ("way", _meant(way, _WAYS)),
        ("locality", _meant(question.locality, _LOCALITY)),
        (
            "neighbourhoods",
            f"{nodes:.0f} nodes and {edges:.0f} edges on average",
        ),
    ]
    if question.unread_labels:
        facts.append(("labels", f"not compared: {question.unread_labels}"))
    agreement = _agreement(question)
    return [*facts, (f"agreement with {_labels_of(question)}", agreement)] if agreement else facts


def _meant(word: str, meanings: Mapping[str, str]) -> str:
    return f"{word} ({meanings[word]})" if word in meanings else word


def _number(target: Any) -> str:
    return "value" if target.mode == "regression" else f"{target.of} ({target.mode})"


def _agreement(question: PosedQuestion) -> str:
    """How many predictions are the labels, where there are labels."""
    found = question.agreement()
    if found is None:
        return ""
    right, known = found
    text = f"{right} of {known} predictions"
    return text if right >= FEWEST * known else f"{text}: are the data scaled as in training?"


def _sizes(question: PosedQuestion) -> tuple[float, float]:
    """Nodes and edges that a target sees, on average over a few."""
    some = torch.arange(min(len(question.index), _SAMPLE))
    if not isinstance(question, NodeQuestion):
        nodes, edges = question.run_sizes(some)
        return float(nodes.double().mean()), float(edges.double().mean())
    engine = question.engine(some)
    owner, column = engine.owner.cpu(), engine.edge_id.cpu()  # of the graph of the user
    ends = question.ends(some, owner, column).cpu()
    pairs = torch.stack([owner.repeat(2), ends.flatten()]).unique(dim=1)  # senders and receivers, the target among them
    alone = len(some) - len(owner.unique())  # targets that no edge reaches
    return (pairs.size(1) + alone) / len(some), len(engine.edge_id) / len(some)


def _pass(question: PosedQuestion, way: str) -> tuple[float, float]:
    """(seconds of one gradient pass for all targets, edges a target), from warm passes over few and over more of them.

    A pass has a cost of its own and one for each target: two passes of different size tell them apart.
    """
    total = len(question.index)
    few, more = (min(total, count) for count in (_SAMPLE, 16 * _SAMPLE if way == "lowered" else 2 * _SAMPLE))
    _timed(question, few)  # the first one loads and compiles
    short, edges = _timed(question, few)
    if more == few:
        return short, edges
    _timed(question, more)
    long, edges = _timed(question, more)
    each = max(long - short, 0.0) / (more - few)
    return short + each * (total - few), edges


def _timed(question: PosedQuestion, count: int) -> tuple[float, float]:
    """Seconds of a gradient pass over the first targets, and their edges on average."""
    some = torch.arange(count)
    engine = question.engine(some)  # made once, however many passes a method takes
    start = time.perf_counter()
    with question.borrowed():
        ones: Tensor = question.target.truth.new_ones(question.num_layers, engine.edge_id.numel()).requires_grad_()
        value = sub_target(question, some).value(engine.output(ones)).sum()
        if value.requires_grad:
            torch.autograd.grad(value, ones, allow_unused=True)
    return time.perf_counter() - start, engine.edge_id.numel() / count


def _passes(name: str, level: str, question: PosedQuestion, edges: float, way: str) -> float:
    """About how many gradient passes a method costs."""
    players = edges * (question.num_layers if level == "layer" else 1)
    one_each = players / 2 if way != "lowered" else 3.0
    known = {"gnn_explainer": 100.0, "integrated_gradients": 50.0, "occlusion": one_each, "eig_search": one_each}
    known |= {"shapley": 25.0 * players, "random": 0.01, "full": 0.05}
    known |= {"deep_lift": 4.0, "degree": 4.0 * players, "subgraphx": 10_000.0}
    return known.get(name, 1.0)


def _megabytes(question: PosedQuestion, edges: float, targets: int | None = None) -> str:
    """The memory of the question and of a block, which are at most the default budget together."""
    block = edges * (targets or len(question.index)) * question.edge_bytes
    found = min(held_bytes(question) + block, DEFAULT_MEMORY) / 2**20
    return f"{found:.0f} MB" if found >= 1 else "under 1 MB"


def _short(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 60 else duration(seconds)
