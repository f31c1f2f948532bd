"""DEGREE (Feng et al., ICLR 2022): two streams through the model, what came through an edge and all the rest.

The streams add up to the model's own numbers at every step, so the target stream of the output is the edge's part of the
explained number. The rules are in `program/stream_program.py`.
"""

import torch
from torch import Tensor

from edgewise.algorithms.occlusion import Repeated, players
from edgewise.arrays import occurrence
from edgewise.errors import SettingError
from edgewise.program.domains import interpret
from edgewise.program.stream_program import StreamProgram
from edgewise.score import CopyScores, Score


@torch.no_grad()
def degree(score: Score, level: str) -> CopyScores:
    """The target stream of the explained number when one edge (in one layer) is marked.

    Every edge of a target is a turn of its own; many turns of all targets run side by side.

    >>> from edgewise.examples import path_score
    >>> degree(path_score(gains=[2.0, 3.0]), "input").edge        # z = 6·ω₀·ω₁: all of it comes through both edges
    tensor([6., 6.])
    """
    score.stepwise("degree")
    if score.target.of != "logit":
        raise SettingError(
            f"degree splits a sum in two, and of={score.target.of!r} is no sum. Leave `of` out, or use method='occlusion'."
        )
    inside = players(score, level)  # [G, M]
    turn = _turns(inside, score.owner)
    count = int(turn.max()) + 1 if turn.numel() else 0
    repeated = Repeated(score, max(count, 1))
    if repeated.score.way != "lowered":  # a model that takes one graph at a time
        repeated = Repeated(score, 1)
    found = torch.zeros_like(inside, dtype=score.target.truth.dtype)
    for turns in torch.arange(count, device=turn.device).split(repeated.times) if count else ():
        marked = (turn == turns.view(-1, 1, 1)).to(found.dtype).expand(-1, score.num_layers, -1)  # [turns, L, M]
        value = _target_streams(repeated, marked)  # [turns, targets]
        asked = (turn >= turns[0]) & (turn <= turns[-1])
        found = torch.where(asked, value[(turn - turns[0]).clamp(0, len(turns) - 1), score.owner], found)
    return CopyScores(found if level == "layer" else found[0])


def _turns(inside: Tensor, owner: Tensor) -> Tensor:
    """`[G, M]`: the number of each player among those of its target, −1 for copies that play no part."""
    places = inside.view(-1).nonzero().view(-1)
    turn = torch.full((inside.numel(),), -1, device=inside.device)
    turn[places] = occurrence(owner.repeat(len(inside))[places])
    return turn.view_as(inside)


def _target_streams(repeated: Repeated, marked: Tensor) -> Tensor:
    """`[turns, targets]`: what came through the marked copies `[turns, L, M]` of each turn."""
    score = repeated.score
    engine = score.stepwise("degree")
    spare = repeated.times - len(marked)
    if spare:
        marked = torch.cat([marked, torch.zeros_like(marked[:1]).expand(spare, -1, -1)])
    values = interpret(engine.program.steps, StreamProgram(engine, repeated.weights(marked)), {})
    rows = values[engine.program.output]
    target = torch.zeros_like(rows.total) if rows.target is None else rows.target
    return repeated.rows(score.target.value(target[: engine.num_targets]), len(marked) - spare)
