"""sign_flips(): does an edge's own gradient change its sign while its weight alone goes from 1 to 0? Sampled on some weights.

Not `sign_flips.py`, which would shadow the function `ew.trust.sign_flips`. Proofs for all weights are in `certificate.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.algorithms.gradient import gradients_at_one, weight_gradients
from edgewise.algorithms.occlusion import Repeated, layer_groups, one_per_target, players
from edgewise.algorithms.registry import check_level
from edgewise.contract import checked
from edgewise.question import GraphQuestion, LinkQuestion, PosedQuestion, pose
from edgewise.question.memory import blocks, read_batch_size, read_memory, room
from edgewise.score import Score
from edgewise.text import counted
from edgewise.trust.forward_bounds import Spread
from edgewise.trust.interval_model import follow, spreads
from edgewise.trust.interval_program import NotCertifiable
from edgewise.trust.target_edges import (
    EVERYTHING,
    Draw,
    TargetEdges,
    all_target_edges,
    draw_about,
    proportion,
    proportion_of_each,
    read_edges,
    read_values,
)

WEIGHTS = tuple(round(1 - step / 20, 2) for step in range(21))
"""The weights that are tried by default: 1.0, 0.95, …, 0.0."""


@dataclass(frozen=True, eq=False)
class SignFlips:
    """For every edge that can reach a target: its own gradient at ω = 1, and the range of it while it alone is weakened.

    Entries are ordered by target and column; arrays are `[M]`, at layer level `[L, M]`. Only edges whose gradient at ω = 1 is
    not 0 count in the shares.
    """

    index: Tensor
    owner: Tensor
    """`[M]`: position in `index`."""
    edge_id: Tensor
    """`[M]`: column of `edge_index`."""
    level: str
    values: tuple[float, ...]
    """The tried weights."""
    gradient: Tensor
    """∂z/∂ω_e at ω = 1."""
    lowest: Tensor
    """The least ∂z/∂ω_e over the tried weights."""
    highest: Tensor
    """The greatest ∂z/∂ω_e over the tried weights."""
    chance: float = 1.0
    """The chance with which each edge was asked about; 1 if all were."""

    @property
    def counted(self) -> Tensor:
        """Whether an edge has a gradient at ω = 1, and so counts in the shares."""
        return self.gradient != 0

    @property
    def to_negative(self) -> Tensor:
        """Whether the gradient is positive at ω = 1 and negative for a smaller weight."""
        return (self.gradient > 0) & (self.lowest < 0)

    @property
    def to_positive(self) -> Tensor:
        """Whether the gradient is negative at ω = 1 and positive for a smaller weight."""
        return (self.gradient < 0) & (self.highest > 0)

    @property
    def flipped(self) -> Tensor:
        """Whether the sign changes in either direction."""
        return self.to_negative | self.to_positive

    @property
    def share(self) -> float:
        """Share of the edges with a gradient whose sign changes; NaN if no edge has a gradient."""
        return proportion(self.flipped, self.counted)

    @property
    def share_to_negative(self) -> float:
        """Share of the edges with a gradient that go from positive to negative."""
        return proportion(self.to_negative, self.counted)

    @property
    def share_to_positive(self) -> float:
        """Share of the edges with a gradient that go from negative to positive."""
        return proportion(self.to_positive, self.counted)

    @property
    def share_of_each(self) -> Tensor:
        """`[T]`: `share` for each target; NaN for a target without any gradient."""
        return proportion_of_each(self.flipped, self.counted, TargetEdges(self.index, self.owner, self.edge_id, 1))

    def __repr__(self) -> str:
        shares = f"{self.share:.2%} flip alone, {self.share_to_negative:.2%} + → −, {self.share_to_positive:.2%} − → +"
        edges = counted(int(self.counted.sum()), "edge") + (f" ({self.chance:.2%} of all)" if self.chance < 1 else "")
        return f"SignFlips({self.level} level, {counted(len(self.index), 'target')}, {edges}: {shares})"


@checked
def sign_flips(
    model: nn.Module,
    data: Any,
    index: Any = None,
    *,
    values: Sequence[float] = WEIGHTS,
    level: str = "input",
    target: Any = None,
    task: str = "node",
    mode: str | None = None,
    of: str = "logit",
    output: str | None = None,
    forward: Callable[..., Tensor] | None = None,
    device: Any = None,
    memory: Any = None,
    batch_size: int | None = None,
    edges: int | None = None,
    seed: int = 0,
) -> SignFlips:
    """Edges whose own gradient ∂z/∂ω_e changes its sign while ω_e goes through `values` and all other weights stay 1.

    Proposition 2 of the paper requires that no gradient does. A model that `certify` can follow is run for all edges and
    targets at once; any other model by forward and backward passes, in each of which every target varies one edge.

    Args:
        model: As in `explain`.
        data: As in `explain`.
        index: As in `explain`.
        values: The weights to try, between 0 and 1.
        level: `"input"` varies the weight of an edge in all layers at once, `"layer"` in one layer at a time.
        target: As in `explain`, and so are `task`, `mode`, `of`, `forward`, `device`, `memory` and `batch_size`.
        task: `"node"` or `"graph"`.
        mode: `"multiclass"`, `"binary"`, `"multilabel"`, `"regression"`, or `None` to infer it.
        of: The explained number: `"logit"`, `"log_prob"` or `"prob"`.
        output: What the model returns: `"logit"`, `"log_prob"`, `"prob"` or `"value"`; `None` reads it off the model.
        forward: `lambda model, data: …`, if the model is not called as `model(x, edge_index, …)`.
        device: Where to compute, such as `"cuda"`.
        memory: A ceiling for the memory of the work, such as `"2GB"`; blocks are made to fit.
        batch_size: Targets in a block, instead of `memory`.
        edges: About how many (target, edge) pairs to ask about, a random part; `None` for all of them.
        seed: Random seed of that part.

    >>> import torch; from torch_geometric.data import Data; from torch_geometric.nn import SAGEConv
    >>> conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)
    >>> _ = conv.lin_l.weight.data.fill_(2.0)
    >>> data = Data(x=torch.tensor([[1.0], [-3.0], [0.0]]), edge_index=torch.tensor([[0, 1], [2, 2]]))
    >>> sign_flips(conv, data, index=2, target=1)            # z = 2·ω₀ − 6·ω₁: both gradients are constant
    SignFlips(input level, 1 target, 2 edges: 0.00% flip alone, 0.00% + → −, 0.00% − → +)
    """
    check_level(level)
    weights = read_values(values)
    read_memory(memory)
    size, most = read_batch_size(batch_size), read_edges(edges)
    question = pose(
        model, data, index, target=target, task=task, mode=mode, of=of, output=output, forward=forward, device=device
    )
    budget = room(question, memory)
    with question.borrowed():
        draw = draw_about(question, most, budget, seed)
        return flips_of(question, level, weights, draw, budget, size)


def flip_draw(question: PosedQuestion, edges: int | None, memory: int, seed: int) -> Draw:
    """About which edges to ask: about `edges` of them, and fewer where every edge and weight takes a pass of its own."""
    draw = draw_about(question, edges, memory, seed)
    if edges is not None and _one_by_one(question):
        draw = draw_about(question, max(edges // len(WEIGHTS), 1), memory, seed)
    return draw


def _one_by_one(question: PosedQuestion) -> bool:
    """Whether targets cannot share a pass; known once the model has run for some of them."""
    if question.lowering is not None:
        return False
    return not question.together if isinstance(question, (GraphQuestion, LinkQuestion)) else question.hops is None


def flips_of(
    question: PosedQuestion, level: str, weights: tuple[float, ...], draw: Draw, memory: int, batch_size: int | None
) -> SignFlips:
    """What `sign_flips` returns, for a borrowed question and the edges of a draw."""
    try:
        pairs, ranges = _through_bounds(question, level, weights, draw, memory)
    except NotCertifiable:
        pairs, ranges = sampled_gradients(question, level, weights, memory, batch_size, draw)
    return SignFlips(question.index, pairs.owner, pairs.edge_id, level, weights, *ranges, draw.chance)


# --- Models that interval arithmetic can follow: all edges and targets at once ------------------------------------------


@torch.no_grad()
def _through_bounds(
    question: PosedQuestion, level: str, weights: tuple[float, ...], draw: Draw, memory: int
) -> tuple[TargetEdges, tuple[Tensor, Tensor, Tensor]]:
    """The gradients by interval arithmetic: on a single weight the bounds are the gradient, up to the last digits.

    Returns the pairs (target, edge) `[M]` and, for each (at layer level `[L, M]`), the gradient at ω = 1, the least and the
    greatest one. `seen` counts the weights at which a pair has a gradient: a block does not list gradients of exactly 0, so a
    pair that is seen at 20 of 21 weights has gradient 0 at one of them.
    """
    (part,) = follow(question, memory) if question.task == "node" else (None,)
    if part is None or not part.at_one.plan.is_affine:
        raise NotCertifiable("passes through the model are as quick")
    pairs = all_target_edges(question, memory, draw)
    tried = [1.0, *(weight for weight in weights if weight != 1.0)]
    size = len(pairs) * (1 if level == "input" else question.num_layers)
    at_start, seen = torch.zeros(size, dtype=torch.double), torch.zeros(size, dtype=torch.long)
    lowest, highest = torch.full_like(at_start, torch.inf), torch.full_like(at_start, -torch.inf)
    for spread in spreads(
        part.at_one, level, [(weight, weight) for weight in tried], memory, draw.among(question, part)
    ):
        place, which, slope = _read(spread, question, pairs, len(tried))
        at_start[place[which == 0]] = slope[which == 0]
        lowest.scatter_reduce_(0, place, slope, "amin")
        highest.scatter_reduce_(0, place, slope, "amax")
        seen.index_add_(0, place, torch.ones_like(place))
    never = torch.zeros_like(at_start)  # gradients of exactly 0 are not listed
    lowest = torch.where(seen < len(tried), torch.minimum(lowest, never), lowest)
    highest = torch.where(seen < len(tried), torch.maximum(highest, never), highest)
    shape = (len(pairs),) if level == "input" else (question.num_layers, len(pairs))
    return pairs, (at_start.view(shape), lowest.view(shape), highest.view(shape))


def _read(spread: Spread, question: PosedQuestion, pairs: TargetEdges, tried: int) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of a block, `[n]` each: place among the pairs, number of the tried weight, gradient (0 if not sure)."""
    slopes, slots = spread.slopes, spread.slots
    edge, call = question.columns(slots.edge[slopes.slot]).cpu(), slots.call[slopes.slot].cpu()
    place = pairs.place(slopes.position.cpu(), edge) + call.clamp(min=0) * len(pairs)
    lo, hi = slopes.bounds.lo.cpu(), slopes.bounds.hi.cpu()
    return place, slopes.slot.cpu() % tried, torch.where((lo <= 0) & (hi >= 0), 0.0, (lo + hi) / 2)


# --- Any other model: passes in which every target varies one edge of its own ------------------------------------------


_NOISE = {torch.float64: 1e-12}  # relative to a target's largest gradient; below it a sign means nothing
_COARSE_NOISE = 1e-6


def sampled_gradients(
    question: PosedQuestion,
    level: str,
    weights: tuple[float, ...],
    memory: int,
    batch_size: int | None = None,
    draw: Draw = EVERYTHING,
) -> tuple[TargetEdges, tuple[Tensor, Tensor, Tensor]]:
    """The gradients by passes through the model: at ω = 1, and the least and the greatest over the weights.

    Returns the pairs (target, edge) `[M]` and three tensors `[M]`, at layer level `[L, M]`.
    """
    owner, column, parts = [], [], []
    for positions in blocks(question, memory, batch_size):
        score = Score.of_block(question, positions)
        position = positions[score.owner.cpu()]
        kept = draw.keeps(question, position, score.edge_id.cpu())
        owner.append(position[kept])
        column.append(score.edge_id.cpu()[kept])
        parts.append(_block(score, level, weights, kept.to(score.owner.device)).cpu()[..., kept])
    pairs, order = TargetEdges.of(question.index, torch.cat(owner), torch.cat(column))
    gradient, lowest, highest = torch.cat(parts, dim=-1)[..., order]
    return pairs, (gradient, lowest, highest)


def _block(score: Score, level: str, weights: tuple[float, ...], kept: Tensor) -> Tensor:
    """`[3, M]` or `[3, L, M]`: gradients at 1, least, greatest; right for the copies that are `kept`.

    Two targets with the edges (a, b) and (c): one pass varies a and c at once, since they belong to different targets, the
    next one b. `Repeated` lays several of the tried weights side by side in one pass.
    """
    at_one, _ = gradients_at_one(score)
    groups = layer_groups(score, level)
    found = torch.stack([at_one[group].sum(dim=0) for group in groups])
    found = torch.stack([found, found, found])
    tried = [weight for weight in weights if weight != 1.0]
    repeated = Repeated(score, len(tried))
    for number, (group, inside) in enumerate(zip(groups, players(score, level), strict=True)):
        for places in one_per_target((inside & kept).nonzero().view(-1), score.owner) if tried else ():
            at = _own_gradients(repeated, group, places, tried)
            found[1, number, places] = torch.minimum(found[1, number, places], at.amin(dim=0))
            found[2, number, places] = torch.maximum(found[2, number, places], at.amax(dim=0))
    quiet = _without_noise(found, score)
    return quiet if level == "layer" else quiet[:, 0]


def _own_gradients(repeated: Repeated, group: list[int], places: Tensor, tried: list[float]) -> Tensor:
    """`[weights, places]`: the gradient of each place by its own weight, shared by the layers of the group."""
    found, ones = [], repeated.base.ones()
    for begin in range(0, len(tried), repeated.times):
        part = tried[begin : begin + repeated.times]
        weight = ones.repeat(len(part), 1, 1)
        for layer in group:
            weight[:, layer, places] = ones.new_tensor(part).view(-1, 1)
        gradient, _ = weight_gradients(repeated.score, repeated.weights(weight), None)
        found.append(repeated.single(gradient, len(part))[:, group][:, :, places].sum(dim=1))
    return torch.cat(found)


def _without_noise(found: Tensor, score: Score) -> Tensor:
    """Gradients `[3, groups, M]`, with 0 for those that rounding alone may have made."""
    largest = found.abs().amax(dim=(0, 1))
    scale = largest.new_zeros(score.num_targets).scatter_reduce(0, score.owner, largest, "amax")
    return found.masked_fill(found.abs() <= _NOISE.get(found.dtype, _COARSE_NOISE) * scale[score.owner], 0.0)
