"""The (target, edge) pairs that `check`, `sign_flips` and `certify` ask about: all of them, or a random draw.

`TargetEdges` lists pairs in one order, by target and then by column; `Draw` says which edges are in a random part.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise import random_numbers
from edgewise.arguments import whole_number
from edgewise.errors import SettingError
from edgewise.question import PosedQuestion
from edgewise.question.memory import blocks
from edgewise.score import Score

if TYPE_CHECKING:
    from edgewise.trust.interval_model import Followed


@dataclass(frozen=True, eq=False)
class TargetEdges:
    """Pairs (target, edge), ordered by target and column.

    >>> pairs, order = TargetEdges.of(torch.tensor([7, 9]), torch.tensor([1, 0, 1]), torch.tensor([2, 1, 0]))
    >>> pairs.owner, pairs.edge_id, order                        # target 7 with edge 1; target 9 with edges 0 and 2
    (tensor([0, 1, 1]), tensor([1, 0, 2]), tensor([1, 2, 0]))
    >>> pairs.place(torch.tensor([1]), torch.tensor([2]))
    tensor([2])
    """

    index: Tensor
    """`[T]`: the explained nodes or graphs."""
    owner: Tensor
    """`[M]`: the target of each pair, a position in `index`."""
    edge_id: Tensor
    """`[M]`: the column of each pair in that target's graph."""
    width: int
    """One more than the largest column: (target, column) becomes the key target · width + column."""

    def __len__(self) -> int:
        return len(self.owner)

    def place(self, position: Tensor, edge: Tensor) -> Tensor:
        """`[n]`: the places of n pairs (target, edge) in the list; they must be in it."""
        listed, asked = self.owner * self.width + self.edge_id, position * self.width + edge
        place = torch.searchsorted(listed, asked)
        assert torch.equal(listed[place.clamp(max=max(len(listed) - 1, 0))], asked), "a pair that is not in the list"
        return place

    @staticmethod
    def of(index: Tensor, owner: Tensor, edge_id: Tensor) -> tuple["TargetEdges", Tensor]:
        """The pairs in order, and the order itself `[M]`."""
        width = int(edge_id.max()) + 1 if len(edge_id) else 1
        order = (owner * width + edge_id).argsort()
        return TargetEdges(index, owner[order], edge_id[order], width), order


@dataclass(frozen=True)
class Draw:
    """Which edges are asked about: each with the same chance, whatever the targets, the blocks and their order."""

    chance: float = 1.0
    """Between 0 and 1; 1 asks about all edges."""
    seed: int = 0

    def keeps(self, question: PosedQuestion, position: Tensor, column: Tensor) -> Tensor:
        """`[n]`: whether n pairs (target, edge) are asked about; targets in one graph share its edges."""
        if self.chance >= 1:
            return torch.ones_like(column, dtype=torch.bool)
        graph = (
            torch.zeros_like(position) if question.in_one_graph else question.index[position.cpu()].to(column.device)
        )
        return random_numbers.uniform(self.seed, torch.full_like(graph, _SALT), graph, column) < self.chance

    def among(self, question: PosedQuestion, part: "Followed") -> Callable[[Tensor], Tensor]:
        """A function: columns of the graph that is run ↦ whether they are asked about."""

        def kept(column: Tensor) -> Tensor:
            position = torch.zeros_like(column)
            if not question.in_one_graph:
                at_one = part.at_one
                position = part.position(at_one.owner[at_one.graph.receiver[column]]).to(column.device)
            return self.keeps(question, position, part.columns(column))

        return kept


_SALT = 20_250_803  # so that the draw has nothing to do with the scores of `random`
MOST_PAIRS = 2000
"""About how many (target, edge) pairs are asked about, unless the user says otherwise."""
EVERYTHING = Draw()
"""The draw that asks about every edge."""


def read_edges(edges: Any) -> int | None:
    """About how many (target, edge) pairs to ask about, checked; None for all of them."""
    found: int | None = whole_number("edges", edges, at_least=1, or_none="for all edges")
    return found


def read_values(values: Any) -> tuple[float, ...]:
    """The weights to try, checked."""
    refusal = SettingError(
        f"`values` must be weights between 0 and 1, at least one, got {values!r}. Use values=[1.0, 0.5, 0.0], for example."
    )
    try:
        weights = tuple(float(value) for value in values)
    except (TypeError, ValueError) as error:
        raise refusal from error
    if not weights or not all(0 <= weight <= 1 for weight in weights):
        raise refusal
    return weights


def draw_about(question: PosedQuestion, edges: int | None, memory: int, seed: int) -> Draw:
    """A draw of about `edges` (target, edge) pairs; everything if there are no more than that."""
    if edges is None:
        return EVERYTHING
    pairs = sum(Score.of_block(question, positions).owner.numel() for positions in blocks(question, memory, None))
    return Draw(min(1.0, edges / max(pairs, 1)), seed)


def all_target_edges(question: PosedQuestion, memory: int, draw: Draw = EVERYTHING) -> TargetEdges:
    """The pairs of every target and the edges that can reach it, or those of a draw."""
    owner, column = [], []
    for positions in blocks(question, memory, None):
        score = Score.of_block(question, positions)
        position, edge = positions[score.owner.cpu()], score.edge_id.cpu()
        kept = draw.keeps(question, position, edge)
        owner.append(position[kept])
        column.append(edge[kept])
    return TargetEdges.of(question.index, torch.cat(owner), torch.cat(column))[0]


def proportion(hits: Tensor, counted: Tensor) -> float:
    """The share of hits among the entries that count; NaN if none counts.

    >>> proportion(torch.tensor([True, False, True]), torch.tensor([True, True, False]))
    0.5
    """
    return float((hits & counted).sum() / counted.sum()) if bool(counted.any()) else float("nan")


def proportion_of_each(hits: Tensor, counted: Tensor, pairs: TargetEdges) -> Tensor:
    """`[T]`: the share of hits among the entries that count, for each target; `hits` are `[M]` or `[L, M]`."""
    none = torch.zeros(len(pairs.index), dtype=torch.double)
    sums = []
    for part in (hits & counted, counted):
        number = (part if part.dim() == 1 else part.sum(dim=0)).double()
        sums.append(none.index_add(0, pairs.owner, number))
    return sums[0] / torch.where(sums[1] > 0, sums[1], torch.nan)
