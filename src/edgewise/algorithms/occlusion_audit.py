"""Is occlusion what the model loses? For a few messages of a few targets the model itself is run without them.

Differences and compiled loops find the loss of a message in another way than a pass of the model does, and may be wrong where
values are right. So the strongest message of each audited target and a few others get the weight 0 in the model, with hooks,
on copies of the targets' neighbourhoods side by side: one pass for all of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.engines import CopiesEngine
from edgewise.errors import ModelError
from edgewise.graph.copies import Copies
from edgewise.model.weighted_model import WeightedModel
from edgewise.question import PosedQuestion, sub_target
from edgewise.question.audit_sample import audited_positions
from edgewise.question.gradient_audit import are_true
from edgewise.question.memory import target_bytes
from edgewise.results.explanation_set import ExplanationSet

_ODD, _RING = 2_654_435_761, 2**31
"""A column is drawn by its number times an odd one: the same in any order of targets, and as cheap as can be."""
_MESSAGES = 6
"""Of all audited targets together: of each the strongest one, and at least one that is drawn at random."""
OFF = 1e-3
"""By which share of the strongest loss of a target a loss may be off."""
UNITS = 64
"""In the last place of the explained number: a loss is a difference of two."""
_BYTES = 2**28
"""Of a pass over all copies; where they need more, they are run one after another."""


@dataclass
class _Run:
    """A copy of a target, and what is silenced there."""

    position: int
    layers: list[int]
    """None of them: the model as it is."""
    draw: int
    """−1: the column is known; else it is drawn with this number."""
    column: int = -1
    value: float = 0.0


def occlusion_problem(question: PosedQuestion, found: ExplanationSet) -> str:
    """Why occlusions cannot be relied on; empty if they can, or if that could not be decided. Looked at once for a level."""
    if found.edges is None or not question.first_look("occlusion", found.level):
        return ""
    some = audited_positions(question)
    try:
        with question.borrowed(), torch.no_grad():
            runs = _runs(question, found, some)
            true = _run(question, runs)
    except ModelError as reason:  # the model itself is not run here, or not on copies
        question.audit.undecided.append(f"occlusion: {reason}")
        return ""
    if not true:
        question.audit.undecided.append("occlusion: copies of the targets do not give their numbers")
        return ""
    error = max(_errors(found, runs), default=0.0)
    if error <= OFF:
        question.audit.note("occlusion", error, len(some))
        return ""
    return (
        f"Occlusion as Edgewise finds it is not what this model loses without a message (off by {error:.1%}), although its "
        f"values are right. Please report the model; ew.Score runs it as it is."
    )


def _runs(question: PosedQuestion, found: ExplanationSet, some: Tensor) -> list[_Run]:
    """For each target: the model as it is (a graph alone is no copy), without its strongest message, and without others."""
    entries, runs = found.edges, []
    assert entries is not None
    every = list(range(question.num_layers))
    is_shared = question.in_one_graph or len(question.index) > 1  # a single graph takes a pass for each
    for position in some.tolist():
        if is_shared:
            runs.append(_Run(position, [], -1))
        begin, end = (int(part) for part in entries.start[position : position + 2])
        width = found.graph(position)[0].size(1)
        if end > begin:
            place = int(entries.place[begin:end][entries.score[begin:end].abs().argmax()])
            runs.append(_Run(position, [place // width] if found.level == "layer" else every, -1, place % width))
        for draw in range(max(_MESSAGES // len(some) - 1, 1) if is_shared else 1):
            layer = (int(question.keys(torch.tensor([position]))) + draw) % question.num_layers
            runs.append(_Run(position, [layer] if found.level == "layer" else every, draw))
    return runs


def _run(question: PosedQuestion, runs: list[_Run]) -> bool:
    """Fill in values and columns; False if a copy does not give its target's number."""
    model = WeightedModel(question.call, question.layers, question.trace)
    for part, copies in _copies(question, runs):
        engine = CopiesEngine(model, copies)
        columns = question.columns(engine.edge_id)
        weight = question.target.truth.new_ones(question.num_layers, len(columns))
        for number, run in enumerate(part):
            mine = (engine.owner == number).nonzero().view(-1)
            if run.draw >= 0 and len(mine):
                drawn = (columns[mine] + 1) * (_ODD + 2 * run.draw) % _RING
                run.column = int(columns[mine[drawn.argmin()]])
            silent = mine[columns[mine] == run.column]
            for layer in run.layers:
                weight[layer, silent] = 0
        positions = torch.tensor([run.position for run in part])
        values = sub_target(question, positions).value(engine.output(weight))
        for run, value in zip(part, values.tolist(), strict=True):
            run.value = value
        plain = torch.tensor([not run.layers for run in part])
        if bool(plain.any()) and not are_true(
            values[plain.to(values.device)], question, positions[plain], as_asked=True
        ):
            return False
    return True


def _copies(question: PosedQuestion, runs: list[_Run]) -> Iterator[tuple[list[_Run], Copies]]:
    """The graphs to run, and which runs each of them holds a copy for."""
    positions = torch.tensor([run.position for run in runs])
    size = sum(int(part.sum()) for part in question.sizes(positions))
    few = (
        size * question.edge_bytes * (len(runs) if question.in_one_graph else 1) <= _BYTES
    )  # even if they see everything
    together = few or float(target_bytes(question, positions).sum()) <= _BYTES
    for part in [runs] if together else [[run] for run in runs]:
        graphs = question.plain_copies(torch.tensor([run.position for run in part]))
        if len(graphs) == 1:
            yield part, graphs[0]
        else:
            yield from (([run], copies) for run, copies in zip(part, graphs, strict=True))


def _errors(found: ExplanationSet, runs: list[_Run]) -> Iterator[float]:
    """How far each loss is off, as a share of the strongest loss of its target; no more than is allowed if by rounding."""
    whole = {run.position: float(found.value[run.position]) for run in runs}
    whole |= {run.position: run.value for run in runs if not run.layers}
    for run in runs:
        score = _score(found, run) if run.layers and run.column >= 0 else None
        if score is None:
            continue
        value = whole[run.position]
        loss, size = value - run.value, _strongest(found, run.position)
        rounding = UNITS * torch.finfo(found.value.dtype).eps * max(abs(value), abs(run.value), size)
        off, size = abs(loss - score), max(size, abs(loss))
        error = off / size if size > 0 else 0.0
        yield min(error, OFF) if off <= rounding else error


def _strongest(found: ExplanationSet, position: int) -> float:
    assert found.edges is not None
    begin, end = (int(part) for part in found.edges.start[position : position + 2])
    return float(found.edges.score[begin:end].abs().max()) if end > begin else 0.0


def _score(found: ExplanationSet, run: _Run) -> float | None:
    """The score that was found; None where only the strongest were kept, and this is none of them."""
    assert found.edges is not None
    begin, end = (int(part) for part in found.edges.start[run.position : run.position + 2])
    layer = run.layers[0] if found.level == "layer" else 0
    place = layer * found.graph(run.position)[0].size(1) + run.column
    at = (found.edges.place[begin:end] == place).nonzero().view(-1)
    if len(at):
        return float(found.edges.score[begin:end][at].sum())
    return 0.0 if found.settings.get("top") is None else None
