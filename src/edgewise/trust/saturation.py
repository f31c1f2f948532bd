"""How flat the softmax (or sigmoid) is at the prediction: what reaches GNNExplainer of an edge's gradient."""

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from edgewise.algorithms.gradient import gradients_at_one
from edgewise.algorithms.registry import methods
from edgewise.score import Score
from edgewise.target import Target

SATURATED = 0.99
"""A probability above this leaves less than a hundredth of a logit's gradient."""
SIZE_PENALTY: float = methods()["gnn_explainer"].settings["edge_size"]


@dataclass(frozen=True, eq=False)
class Pull:
    """Edges with a gradient, counted: how the log-probability, which GNNExplainer raises, pulls at them."""

    edges: int = 0
    opposed: int = 0
    """Whose gradient of the log-probability has another sign than that of the explained number."""
    positive: int = 0
    """With a positive gradient of the explained number."""
    weak: int = 0
    """Of these, those whose gradient of the log-probability is positive, and below GNNExplainer's default size penalty."""

    def __add__(self, other: "Pull") -> "Pull":
        return Pull(*(mine + others for mine, others in zip(vars(self).values(), vars(other).values(), strict=True)))


def pull_of(score: Score, gradient: Tensor) -> Pull:
    """Of a score whose input-level gradients at ω = 1 are `gradient` `[M]`; at ω = 1."""
    asked = copy.copy(score)
    asked.target = replace(score.target, of="log_prob")
    pull = gradients_at_one(asked)[0].sum(dim=0)
    counted, positive = gradient != 0, gradient > 0
    weak = positive & (pull > 0) & (pull <= SIZE_PENALTY)
    opposed = counted & (pull.sign() == -gradient.sign())
    return Pull(*(int(part.sum()) for part in (counted, opposed, positive, weak)))


def probability(target: Target) -> Tensor | None:
    """`[T]`: of the explained class; None for a regression, which has none."""
    if target.mode == "regression":
        return None
    return torch.as_tensor(target.number(target.truth, "prob")).double().cpu()
