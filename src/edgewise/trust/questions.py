"""Every (target, edge) of some computation graphs, in one order: by target, then by column."""

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.blocks import blocks
from edgewise.problem import Problem
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


def all_questions(problem: Problem, memory: int) -> Questions:
    """The edges that can reach each target."""
    owner, column = [], []
    for positions in blocks(problem, memory, None):
        score = Score.of_block(problem, positions)
        owner.append(positions[score.owner.cpu()])
        column.append(score.edge_id.cpu())
    return Questions.of(problem.index, torch.cat(owner), torch.cat(column))[0]


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
