"""Every (target, edge) of some computation graphs, in one order: by target, then by column."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise import random_numbers
from edgewise.errors import SettingError
from edgewise.question import Question
from edgewise.question.memory import blocks
from edgewise.score import Score


@dataclass(frozen=True, eq=False)
class Questions:
    """`owner` is a position in `index`, `edge_id` a column of that target's graph."""

    index: Tensor
    owner: Tensor
    edge_id: Tensor
    width: int

    def __len__(self) -> int:
        return len(self.owner)

    def place(self, position: Tensor, edge: Tensor) -> Tensor:
        """Where some (target, edge) stand; they must be there."""
        return torch.searchsorted(self.owner * self.width + self.edge_id, position * self.width + edge)

    @staticmethod
    def of(index: Tensor, owner: Tensor, edge_id: Tensor) -> tuple["Questions", Tensor]:
        """In order, and the order itself."""
        width = int(edge_id.max()) + 1 if len(edge_id) else 1
        order = (owner * width + edge_id).argsort()
        return Questions(index, owner[order], edge_id[order], width), order


@dataclass(frozen=True)
class Draw:
    """Which edges are asked about: each has the same chance, whatever the targets, the blocks and their order."""

    chance: float = 1.0
    seed: int = 0

    def keeps(self, question: Question, position: Tensor, column: Tensor) -> Tensor:
        """Whether some (target, edge) are asked about; targets in one graph share its edges."""
        if self.chance >= 1:
            return torch.ones_like(column, dtype=torch.bool)
        graph = (
            torch.zeros_like(position) if question.task == "node" else question.index[position.cpu()].to(column.device)
        )
        return random_numbers.uniform(self.seed, torch.full_like(graph, _SALT), graph, column) < self.chance

    def columns(self, question: Question) -> Callable[[Tensor], Tensor]:
        """The same for the columns of the one graph of a node task."""
        return lambda column: self.keeps(question, torch.zeros_like(column), question.columns(column))


_SALT = 20_250_803  # so that the draw has nothing to do with the scores of `random`
EVERYTHING = Draw()


def read_edges(edges: Any) -> int | None:
    """How many (target, edge) pairs to ask about, checked; None: all."""
    if edges is not None and (not isinstance(edges, int) or isinstance(edges, bool) or edges < 1):
        raise SettingError(f"edges is {edges!r}; needed is a whole number of at least 1, or None for all edges.")
    return edges


def draw_about(question: Question, edges: int | None, memory: int, seed: int) -> Draw:
    """A draw of about so many (target, edge) pairs; everything if there are no more."""
    if edges is None:
        return EVERYTHING
    pairs = sum(Score.of_block(question, positions).owner.numel() for positions in blocks(question, memory, None))
    return Draw(min(1.0, edges / max(pairs, 1)), seed)


def all_questions(question: Question, memory: int, draw: Draw = EVERYTHING) -> Questions:
    """The edges that can reach each target, or those of a draw."""
    owner, column = [], []
    for positions in blocks(question, memory, None):
        score = Score.of_block(question, positions)
        position, edge = positions[score.owner.cpu()], score.edge_id.cpu()
        kept = draw.keeps(question, position, edge)
        owner.append(position[kept])
        column.append(edge[kept])
    return Questions.of(question.index, torch.cat(owner), torch.cat(column))[0]


def share(hits: Tensor, counted: Tensor) -> float:
    """How many of those that count are hits; NaN if none counts."""
    return float((hits & counted).sum() / counted.sum()) if bool(counted.any()) else float("nan")


def share_of_each(hits: Tensor, counted: Tensor, questions: Questions) -> Tensor:
    """The same for each target, `[T]`; layers are counted together."""
    nobody = torch.zeros(len(questions.index), dtype=torch.double)
    sums = []
    for part in (hits & counted, counted):
        number = (part if part.dim() == 1 else part.sum(dim=0)).double()
        sums.append(nobody.index_add(0, questions.owner, number))
    return sums[0] / torch.where(sums[1] > 0, sums[1], torch.nan)
