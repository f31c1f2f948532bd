"""Is occlusion of features what the model loses? For a few of them the model itself is run without, on copies side by side."""

import torch
from torch import Tensor

from edgewise.algorithms.feature_copies import plain_features, with_features
from edgewise.algorithms.occlusion_audit import OFF, UNITS
from edgewise.errors import ModelError
from edgewise.question import PosedQuestion, sub_target
from edgewise.question.audit_sample import audited_positions
from edgewise.question.gradient_audit import are_true
from edgewise.results.entries import Entries


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
