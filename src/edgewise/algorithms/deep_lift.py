"""DeepLIFT (Shrikumar et al., ICML 2017) with the rescale rule; the reference is the model without edges, ω = 0.

The program is interpreted once in both runs (`program/lift_program.py`); multipliers then flow back to every ω. The sum of
all scores is z(1) − z(0): what edges make of the explained number, own terms of nodes staying on.
"""

import torch
from torch import Tensor

from edgewise.errors import ModelError
from edgewise.program.domains import interpret
from edgewise.program.lift_program import LiftProgram, explained_number
from edgewise.score import CopyScores, Score, at_level


def deep_lift(score: Score, level: str) -> CopyScores:
    """The contribution of each ω, from 0 to 1, to z(1) − z(0); an edge's score at input level is its sum over the layers.

    >>> from edgewise.examples import path_score
    >>> deep_lift(path_score(gains=[2.0, 3.0]), "input").edge     # z = 6·ω₀·ω₁: the two factors share the 6
    tensor([3., 3.])
    """
    engine = score.stepwise("deep_lift")
    target = score.target
    with torch.enable_grad():
        weight = score.ones().requires_grad_()
        values = interpret(engine.program.steps, LiftProgram(engine, weight), {})
        rows = values[engine.program.output]
        if not rows.moves:
            return at_level(torch.zeros_like(weight), None, level)
        rows = type(rows)(rows.actual[: engine.num_targets], rows.reference[: engine.num_targets])
        value = explained_number(rows, target.column, target.mode, target.of)
        (found,) = torch.autograd.grad(value.sum(), weight)
    _check_sum(score, found)
    return at_level(found, None, level)


@torch.no_grad()
def _check_sum(score: Score, found: Tensor) -> None:
    """Refuse contributions that do not sum to z(1) − z(0): a number that overflowed, say."""
    total = found.sum(dim=0)
    summed = total.new_zeros(score.num_targets).index_add_(0, score.owner, total)
    size = total.new_zeros(score.num_targets).index_add_(0, score.owner, found.abs().sum(dim=0))
    full, empty = score(score.ones()), score(torch.zeros_like(score.ones()))
    share = 1e-9 if total.dtype == torch.float64 else 1e-3
    if bool(((summed - (full - empty)).abs() > share * (1 + size + full.abs() + empty.abs())).any()):
        raise ModelError(
            "The contributions of deep_lift do not sum to z(1) − z(0) here: numbers overflow or cancel. Use "
            "model.double() and data.x.double(), or method='integrated_gradients'."
        )
