"""Are scores of features what the model loses? For a few targets the model itself is run without, on copies side by side.

Occlusion is compared feature by feature. Gradients are 0 almost everywhere behind a step (sign, round, x > 0): there integrated
gradients do not add up to what the features bring, and all products are 0 although the features bring something.
"""

import torch
from torch import Tensor

from edgewise.algorithms.feature_copies import plain_features, with_features
from edgewise.algorithms.feature_methods import FEATURE_METHODS, FeatureEngine, FeatureMethod, feature_rows
from edgewise.algorithms.occlusion_audit import OFF, UNITS
from edgewise.errors import ModelError
from edgewise.question import PosedQuestion, sub_target
from edgewise.question.audit_sample import audited_positions
from edgewise.question.feature_audit import brought_by_features
from edgewise.question.gradient_audit import are_true
from edgewise.results.entries import Entries
from edgewise.results.feature_factors import FeatureFactors, FeatureRows, stored_row

_GAP = 1e-2
"""By which share of what the features bring integrated gradients may be off, before more steps are tried."""
_MORE = 4
"""How many times as many: if the way is crossed by kinks alone, the sum is then closer."""
_FEWEST = 16
"""Of a method that takes none."""
STEP_SENTENCE = (
    "The features go through a step or a flat part on the way to the number (sign, round, floor, a comparison, a norm of 0): "
    "gradients are zero there, so that these scores miss {missed}. Use method='occlusion', which takes no gradient."
)


def feature_losses_hold(question: PosedQuestion, rows: Entries, width: int) -> bool:
    """Whether losses are what the model loses, as far as could be decided; looked at once.

    `rows` are the losses of each target, at the places node · width + feature.
    """
    if not question.first_look("feature_occlusion", ""):
        return True
    some = audited_positions(question)
    chosen = [run for position in some.tolist() for run in _chosen(rows, position)]
    runs = [(position, -1, 0.0) for position in some.tolist()] + chosen
    try:
        with question.borrowed(), torch.no_grad():
            values = _without(question, runs, width)
    except ModelError as reason:  # the model itself is not run here, or not on copies
        values = None
        question.audit.undecided.append(f"occlusion of features: {reason}")
    if values is None or not are_true(values[: len(some)], question, some, as_asked=True):
        return True
    whole = dict(zip(some.tolist(), values.tolist(), strict=False))
    error = 0.0
    for (position, _, score), value in zip(chosen, values[len(some) :].tolist(), strict=True):
        loss, size = whole[position] - value, _largest(rows, position)
        rounding = UNITS * torch.finfo(values.dtype).eps * max(abs(value), abs(whole[position]), size)
        if abs(loss - score) > rounding:
            error = max(error, abs(loss - score) / max(size, abs(loss)))
    if error <= OFF:
        question.audit.note("feature_occlusion", error, len(some))
    return error <= OFF


def missed_by_gradients(
    question: PosedQuestion,
    engine: FeatureEngine,
    method: FeatureMethod,
    steps: int,
    found: list[FeatureRows | None] | None,
) -> str:
    """What scores by gradients miss of what the features bring, in words; empty where that is an error of the rule.

    `found` are all scores of all targets, of node features and of edge attributes; None: they have to be found for a few.
    """
    some, adds_up = audited_positions(question), method.name == "integrated_gradients"
    places = some.tolist() if found is not None else range(len(some))
    for of_edges, rows in enumerate(found or feature_rows(engine, method, some, None, {"steps": steps})):
        sums = [] if rows is None else [_sum(rows, place) for place in places]
        kept = [place for place, (_, size) in enumerate(sums) if adds_up or size == 0]
        brought = brought_by_features(question, some[kept], of_edges=bool(of_edges)) if kept else None
        for place, change in zip(kept, [] if brought is None else brought.tolist(), strict=brought is not None):
            total, size = sums[place]
            gap = abs(total - change)
            is_far = gap > _GAP * max(abs(change), size, _least(question))
            if is_far and _stays(engine, some[place : place + 1], steps, of_edges, change, gap):
                return f"{gap:.3g} of the {change:.3g} that {'edge attributes' if of_edges else 'features'} bring to it"
    return ""


def _stays(engine: FeatureEngine, position: Tensor, steps: int, kind: int, change: float, gap: float) -> bool:
    """Whether integrated gradients with more steps are about as far off."""
    way = FEATURE_METHODS["integrated_gradients"]
    rows = feature_rows(engine, way, position, None, {"steps": _MORE * max(steps, _FEWEST) + 1})[kind]
    return rows is not None and abs(_sum(rows, 0)[0] - change) > gap / 2


def _least(question: PosedQuestion) -> float:
    """A change that is no rounding."""
    return 1e-4 * float(question.target.value(question.target.truth).abs().max())


def _sum(rows: FeatureRows, place: int) -> tuple[float, float]:
    if isinstance(rows, FeatureFactors):
        score = stored_row(rows, place)[1]
    else:
        score = rows.score[int(rows.start[place]) : int(rows.start[place + 1])]
    return float(score.double().sum()), float(score.abs().double().sum())


def _chosen(rows: Entries, position: int) -> list[tuple[int, int, float]]:
    """The strongest loss of a target and one in the middle: position, place and score."""
    begin, end = (int(part) for part in rows.start[position : position + 2])
    places, scores = rows.place[begin:end], rows.score[begin:end]
    if not len(places):
        return []
    return [(position, int(places[at]), float(scores[at])) for at in (int(scores.abs().argmax()), len(places) // 2)]


def _largest(rows: Entries, position: int) -> float:
    begin, end = (int(part) for part in rows.start[position : position + 2])
    return float(rows.score[begin:end].abs().max()) if end > begin else 0.0


def _without(question: PosedQuestion, runs: list[tuple[int, int, float]], width: int) -> Tensor | None:
    """`[runs]`: the explained numbers without a feature each (−1: with all); None if copies cannot stand side by side."""
    positions = torch.tensor([position for position, _, _ in runs])
    graphs = question.plain_copies(positions)
    if len(graphs) != 1:
        return None
    (copies,) = graphs
    node, owner = copies.nodes
    node, x = question.nodes(node), copies.data.x.clone()
    for number, (_, place, _) in enumerate(runs):
        if place >= 0:
            at = ((owner == number) & (node == place // width)).nonzero().view(-1)
            plain_features(x)[at, place % width] = 0.0
    return sub_target(question, positions).value(question.call(with_features(copies.data, x))[copies.rows])
