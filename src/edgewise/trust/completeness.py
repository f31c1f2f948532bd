"""What the explained number is made of, call by call: edges, own terms, constants; and whether parts simply add up.

`Balance` is about the explained number. `Pull`, at the end, is about the softmax above it: how much of an edge's gradient
reaches the log-probability that GNNExplainer raises.
"""

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from edgewise import random_numbers
from edgewise.algorithms.gradient import gradients_at_one
from edgewise.algorithms.registry import methods
from edgewise.question.target import Target
from edgewise.score import Score, has_own_terms

_HALF = 0.5


@dataclass(frozen=True, eq=False)
class Balance:
    """Sums for every target and call, `[T, L]`; NaN where a call's own term cannot be separated.

    z = edges + own + constant + rest, where `rest` is what no first-order sum explains.
    """

    value: Tensor
    """`[T]`: the explained number z."""
    edges: Tensor
    """Σ ∂z/∂ω over the edges of the call."""
    own: Tensor
    """Σ ∂z/∂s over its own terms."""
    constant: Tensor
    """z with the call silenced, ω = s = 0: what biases after it, and skips around it, give alone."""
    fall: Tensor
    """`[T, L, draws]`: what z loses without a random half of the call's edges."""
    promised: Tensor
    """`[T, L, draws]`: what the gradients predict for that loss, their sum over that half."""

    @property
    def gap(self) -> Tensor:
        """`[T, L]`: how far the sum over edges and own terms is from z."""
        return (self.edges + self.own - self.value.view(-1, 1)).abs()

    @property
    def rest(self) -> Tensor:
        """`[T, L]`: what no first-order sum explains, z − edges − own − constant."""
        return self.value.view(-1, 1) - self.edges - self.own - self.constant

    def share(self, part: Tensor) -> Tensor:
        """`[L]`: a part of the explained number, over all targets: a mean of shares that weighs each target by |z|."""
        weight = self.value.abs().sum()
        return (part * self.value.sign().view(-1, 1)).sum(dim=0) / torch.where(weight > 0, weight, torch.nan)

    def unevenness(self) -> Tensor:
        """`[L]`: Σ |fall − promised| / Σ |fall|, 0 if and only if halves of the edges add up; NaN if nothing falls."""
        miss, fall = ((part.abs()).sum(dim=(0, 2)) for part in (self.fall - self.promised, self.fall))
        return miss / torch.where(fall > 0, fall, torch.nan)

    @staticmethod
    def joined(parts: list["Balance"]) -> "Balance":
        """The balance of all targets, from blocks of them."""
        names = ("value", "edges", "own", "constant", "fall", "promised")
        return Balance(*(torch.cat([getattr(part, name) for part in parts]) for name in names))


@torch.no_grad()
def balance_of(score: Score, edge: Tensor, own: Tensor | None, draws: int, seed: int) -> Balance:
    """The balance of the targets of a score, whose gradients at ω = s = 1 are `edge` `[L, M]` and `own` `[L, S]`.

    Path 0 → 1 → 2 with gains 2 and 3: z = 6 ω₀ ω₁, and in each call the one edge that matters carries all of it.

    >>> from edgewise.examples import path_score
    >>> score = path_score(gains=[2.0, 3.0])
    >>> found = balance_of(score, gradients_at_one(score)[0], None, draws=1, seed=0)
    >>> found.edges, found.rest
    (tensor([[6., 6.]], dtype=torch.float64), tensor([[0., 0.]], dtype=torch.float64))
    """
    ones, value = score.ones(), score(score.ones())
    falls, promises = [], []
    for draw in range(draws):
        gone = _halves(score, draw, seed)
        promises.append(_sums(torch.where(gone, edge, 0.0), score.owner, score.num_targets))
        falls.append(torch.stack([value - score(_silenced(ones, l, gone[l])) for l in range(score.num_layers)], dim=1))
    missing = torch.tensor([not separable for separable in score.separable], device=value.device)
    if own is None:
        own = edge.new_zeros(score.num_layers, len(score.self_owner))
    own_sums = _sums(own, score.self_owner, score.num_targets).masked_fill(missing, torch.nan)
    parts = (
        value,
        _sums(edge, score.owner, score.num_targets),
        own_sums,
        _constants(score).masked_fill(missing, torch.nan),
    )
    return Balance(*(part.double().cpu() for part in (*parts, torch.stack(falls, dim=2), torch.stack(promises, dim=2))))


def _sums(values: Tensor, owner: Tensor, targets: int) -> Tensor:
    """`[T, L]`: sums of values `[L, copies]` by the target that owns each copy."""
    return values.new_zeros(targets, len(values)).index_add_(0, owner, values.t())


def _silenced(ones: Tensor, layer: int, gone: Tensor | slice) -> Tensor:
    """Weights `[L, copies]` of 1, with 0 for some copies in one layer."""
    weight = ones.clone()
    weight[layer, gone] = 0
    return weight


def _constants(score: Score) -> Tensor:
    """`[T, L]`: z without any message or own term of a call."""
    everyone = slice(None)
    own = score.self_ones() if has_own_terms(score) else None
    found = [
        score(_silenced(score.ones(), layer, everyone), None if own is None else _silenced(own, layer, everyone))
        for layer in range(score.num_layers)
    ]
    return torch.stack(found, dim=1)


def _halves(score: Score, draw: int, seed: int) -> Tensor:
    """`[L, M]`: a random half of the edges of each call, the same for a target whatever its block."""
    layer = torch.arange(score.num_layers, device=score.owner.device).view(-1, 1)
    index = score.key.to(score.owner.device)[score.owner]
    number = torch.tensor(draw, device=score.owner.device)
    return random_numbers.uniform(seed, number, layer, index, score.edge_id) < _HALF


# --- How flat the softmax (or sigmoid) is at the prediction: how much of an edge's gradient reaches GNNExplainer -------


SATURATED = 0.99
"""A probability above this leaves less than a hundredth of a logit's gradient."""
SIZE_PENALTY: float = methods()["gnn_explainer"].settings["edge_size"]
"""What GNNExplainer's objective pays for each edge, by default."""


@dataclass(frozen=True, eq=False)
class Pull:
    """Counts of edges by how the log-probability, which GNNExplainer raises, pulls at them."""

    edges: int = 0
    """Edges with a gradient of the explained number."""
    opposed: int = 0
    """Edges whose gradient of the log-probability has another sign than that of the explained number."""
    positive: int = 0
    """Edges with a positive gradient of the explained number."""
    weak: int = 0
    """Positive edges whose gradient of the log-probability is positive, but below GNNExplainer's default size penalty."""

    def __add__(self, other: "Pull") -> "Pull":
        return Pull(*(mine + others for mine, others in zip(vars(self).values(), vars(other).values(), strict=True)))


def pull_of(score: Score, gradient: Tensor) -> Pull:
    """The counts at ω = 1 for a score whose input-level gradients there are `gradient` `[M]`."""
    asked = copy.copy(score)
    asked.target = replace(score.target, of="log_prob")
    pull = gradients_at_one(asked)[0].sum(dim=0)
    counted, positive = gradient != 0, gradient > 0
    weak = positive & (pull > 0) & (pull <= SIZE_PENALTY)
    opposed = counted & (pull.sign() == -gradient.sign())
    return Pull(*(int(part.sum()) for part in (counted, opposed, positive, weak)))


def probability(target: Target) -> Tensor | None:
    """`[T]`: the probability of the explained class; None for a regression."""
    if target.mode == "regression":
        return None
    return torch.as_tensor(target.number(target.truth, "prob")).double().cpu()
