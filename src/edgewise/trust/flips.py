"""Sign flips by sampling: does an edge's own gradient change its sign while its weight goes from 1 to 0?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.algorithms.gradient import gradients_at_one, weight_gradients
from edgewise.algorithms.occlusion import Repeated, layer_groups, one_per_target, players
from edgewise.algorithms.registry import check_level
from edgewise.errors import SettingError
from edgewise.question import Question, pose
from edgewise.question.memory import blocks, read_batch_size, read_memory
from edgewise.score import Score
from edgewise.trust.certificate import follow, spreads
from edgewise.trust.forward_bounds import Spread
from edgewise.trust.interval_program import NotCertifiable
from edgewise.trust.target_edges import (
    EVERYTHING,
    Draw,
    Questions,
    all_questions,
    draw_about,
    read_edges,
    share,
    share_of_each,
)

# --- Gradients at many weights of one edge at a time, by passes through any model: every target varies an edge of its own ---


_NOISE = {torch.float64: 1e-12}  # of a target's largest gradient; below it a sign says nothing
_COARSE_NOISE = 1e-6


def sampled_gradients(
    question: Question,
    level: str,
    weights: tuple[float, ...],
    memory: int,
    batch_size: int | None = None,
    draw: Draw = EVERYTHING,
) -> tuple[Questions, tuple[Tensor, Tensor, Tensor]]:
    """∂z/∂ω_e at ω = 1, and its least and greatest value over the weights."""
    owner, column, parts = [], [], []
    for positions in blocks(question, memory, batch_size):
        score = Score.of_block(question, positions)
        position = positions[score.owner.cpu()]
        kept = draw.keeps(question, position, score.edge_id.cpu())
        owner.append(position[kept])
        column.append(score.edge_id.cpu()[kept])
        parts.append(_block(score, level, weights, kept.to(score.owner.device)).cpu()[..., kept])
    questions, order = Questions.of(question.index, torch.cat(owner), torch.cat(column))
    gradient, lowest, highest = torch.cat(parts, dim=-1)[..., order]
    return questions, (gradient, lowest, highest)


def _block(score: Score, level: str, weights: tuple[float, ...], kept: Tensor) -> Tensor:
    """`[3, M]` or `[3, L, M]`: at 1, least, greatest; right for the copies that are `kept`."""
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
    """Numbers that rounding alone may have made are set to 0."""
    largest = found.abs().amax(dim=(0, 1))
    scale = largest.new_zeros(score.num_targets).scatter_reduce(0, score.owner, largest, "amax")
    return found.masked_fill(found.abs() <= _NOISE.get(found.dtype, _COARSE_NOISE) * scale[score.owner], 0.0)


# --- The whole ---------------------------------------------------------------------------------------------------------


WEIGHTS = tuple(round(1 - step / 20, 2) for step in range(21))
"""1.0, 0.95, …, 0.0."""


@dataclass(frozen=True, eq=False)
class SignFlips:
    """For every edge that can reach a target: its own gradient at ω = 1, and the range of it over the tried weights.

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
    highest: Tensor
    chance: float = 1.0
    """Each edge was asked about with this chance; 1: all were."""

    @property
    def counted(self) -> Tensor:
        """Edges with a gradient."""
        return self.gradient != 0

    @property
    def to_negative(self) -> Tensor:
        """Positive at ω = 1, negative for a smaller weight."""
        return (self.gradient > 0) & (self.lowest < 0)

    @property
    def to_positive(self) -> Tensor:
        """Negative at ω = 1, positive for a smaller weight."""
        return (self.gradient < 0) & (self.highest > 0)

    @property
    def flipped(self) -> Tensor:
        """Either."""
        return self.to_negative | self.to_positive

    @property
    def share(self) -> float:
        """Share of the edges with a gradient whose sign changes; NaN if there is none."""
        return share(self.flipped, self.counted)

    @property
    def share_to_negative(self) -> float:
        """Of the same edges, those that go from positive to negative."""
        return share(self.to_negative, self.counted)

    @property
    def share_to_positive(self) -> float:
        """Of the same edges, those that go from negative to positive."""
        return share(self.to_positive, self.counted)

    @property
    def share_of_each(self) -> Tensor:
        """`share` for each target, `[T]`."""
        return share_of_each(self.flipped, self.counted, Questions(self.index, self.owner, self.edge_id, 1))

    def __repr__(self) -> str:
        shares = f"{self.share:.2%} flip, {self.share_to_negative:.2%} + → −, {self.share_to_positive:.2%} − → +"
        edges = f"{int(self.counted.sum())} edges" + (f" ({self.chance:.2%} of all)" if self.chance < 1 else "")
        return f"SignFlips({self.level} level, {len(self.index)} targets, {edges}: {shares})"


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
    forward: Callable[..., Tensor] | None = None,
    device: Any = None,
    memory: Any = None,
    batch_size: int | None = None,
    edges: int | None = None,
    seed: int = 0,
) -> SignFlips:
    """Edges whose own gradient ∂z/∂ω_e changes its sign while ω_e goes through `values` and all other weights stay 1.

    That no gradient does is the condition of Proposition 2 of the paper. At layer level the weight of an edge in one layer is
    varied. A model that `certify` can follow is run for all edges and targets at once; any other by forward and backward
    passes, in each of which every target varies an edge of its own. `edges` asks about a random part of the edges only, about
    so many (target, edge) pairs, drawn from `seed`.

    >>> import torch; from torch_geometric.data import Data; from torch_geometric.nn import SAGEConv
    >>> conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)
    >>> _ = conv.lin_l.weight.data.fill_(2.0)
    >>> data = Data(x=torch.tensor([[1.0], [-3.0], [0.0]]), edge_index=torch.tensor([[0, 1], [2, 2]]))
    >>> sign_flips(conv, data, index=2, target=1)            # z = 2·ω₀ − 6·ω₁: both gradients are constant
    SignFlips(input level, 1 targets, 2 edges: 0.00% flip, 0.00% + → −, 0.00% − → +)
    """
    check_level(level)
    weights = _read_values(values)
    budget, size, most = read_memory(memory), read_batch_size(batch_size), read_edges(edges)
    question = pose(model, data, index, target=target, task=task, mode=mode, of=of, forward=forward, device=device)
    with question.borrowed():
        draw = draw_about(question, most, budget, seed)
        return flips_of(question, level, weights, draw, budget, size)


def flips_of(
    question: Question, level: str, weights: tuple[float, ...], draw: Draw, memory: int, batch_size: int | None
) -> SignFlips:
    """The same for a (borrowed) question, about the edges of a draw."""
    try:
        questions, ranges = _through_bounds(question, level, weights, draw, memory)
    except NotCertifiable:
        questions, ranges = sampled_gradients(question, level, weights, memory, batch_size, draw)
    return SignFlips(question.index, questions.owner, questions.edge_id, level, weights, *ranges, draw.chance)


def _read_values(values: Any) -> tuple[float, ...]:
    try:
        weights = tuple(float(value) for value in values)
    except (TypeError, ValueError) as error:
        raise SettingError(f"values is {values!r}; needed are weights such as [1.0, 0.5, 0.0].") from error
    if not weights or not all(0 <= weight <= 1 for weight in weights):
        raise SettingError(f"values is {values!r}; needed are weights between 0 and 1, such as [1.0, 0.5, 0.0].")
    return weights


@torch.no_grad()
def _through_bounds(
    question: Question, level: str, weights: tuple[float, ...], draw: Draw, memory: int
) -> tuple[Questions, tuple[Tensor, Tensor, Tensor]]:
    """Interval arithmetic on single weights gives the gradients themselves, up to the last digits."""
    at_one = follow(question)
    questions = all_questions(question, memory, draw)
    tried = [1.0, *(weight for weight in weights if weight != 1.0)]
    size = len(questions) * (1 if level == "input" else question.num_layers)
    at_start, seen = torch.zeros(size, dtype=torch.double), torch.zeros(size, dtype=torch.long)
    lowest, highest = torch.full_like(at_start, torch.inf), torch.full_like(at_start, -torch.inf)
    for spread in spreads(at_one, level, [(weight, weight) for weight in tried], memory, draw.columns(question)):
        place, which, slope = _read(spread, questions, len(tried))
        at_start[place[which == 0]] = slope[which == 0]
        lowest.scatter_reduce_(0, place, slope, "amin")
        highest.scatter_reduce_(0, place, slope, "amax")
        seen.index_add_(0, place, torch.ones_like(place))
    never = torch.zeros_like(at_start)  # a gradient of exactly 0 is not written down
    lowest = torch.where(seen < len(tried), torch.minimum(lowest, never), lowest)
    highest = torch.where(seen < len(tried), torch.maximum(highest, never), highest)
    shape = (len(questions),) if level == "input" else (question.num_layers, len(questions))
    return questions, (at_start.view(shape), lowest.view(shape), highest.view(shape))


def _read(spread: Spread, questions: Questions, tried: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of a block: the question, which of the tried weights, and the gradient; one whose sign is not sure is 0."""
    slopes, slots = spread.slopes, spread.slots
    edge, call = (part[slopes.slot].cpu() for part in (slots.edge, slots.call))
    place = questions.place(slopes.position.cpu(), edge) + call.clamp(min=0) * len(questions)
    lo, hi = slopes.bounds.lo.cpu(), slopes.bounds.hi.cpu()
    return place, slopes.slot.cpu() % tried, torch.where((lo <= 0) & (hi >= 0), 0.0, (lo + hi) / 2)
