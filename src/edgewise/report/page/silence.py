"""What the model itself says without some edges: the facts under the headline of a page.

An edge is silenced in all layers (ω = 0); degrees and attention stay what they were. `outputs_without` asks for all targets
at once, one pass for each rank: the first group of every target, then the second one of each, and so on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from edgewise.question.memory import blocks, read_batch_size, read_memory
from edgewise.score import Score

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from edgewise.question import PosedQuestion
    from edgewise.question.target import Target

Group = tuple[int, ...]
"""Columns of `edge_index` that are silenced together: an edge, or both directions of a bond."""
EVERY: Group = (-1,)
"""All edges of the target."""


@torch.no_grad()
def outputs_without(
    question: PosedQuestion, groups: Sequence[Sequence[Group]], sizes: Mapping[str, Any]
) -> list[Tensor]:
    """For each target `[groups, width]`: the model's output without each of its groups of columns.

    Args:
        question: The targets.
        groups: For each target, the groups to try.
        sizes: `memory` and `batch_size`, as `explain` takes them.
    """
    truth = question.target.truth
    found: list[list[Tensor]] = [[] for _ in groups]
    for positions in blocks(question, read_memory(sizes["memory"]), read_batch_size(sizes["batch_size"])):
        score, listed = Score.of_block(question, positions), positions.tolist()
        stride = int(score.edge_id.max()) + 1 if len(score.edge_id) else 1
        copies = score.owner * stride + score.edge_id  # [M]
        for rank in range(max(len(groups[position]) for position in listed)):
            asked = [
                owner * stride + column
                for owner, position in enumerate(listed)
                for column in (groups[position][rank] if rank < len(groups[position]) else ())
                if 0 <= column < stride
            ]
            bare = [o for o, p in enumerate(listed) if rank < len(groups[p]) and groups[p][rank] == EVERY]
            asked_for = torch.tensor(asked, dtype=torch.long, device=copies.device)
            alone = torch.tensor(bare, dtype=torch.long, device=copies.device)
            weight = score.ones()
            weight[:, torch.isin(copies, asked_for) | torch.isin(score.owner, alone)] = 0.0
            rows = score.output(weight).detach().cpu().double()
            for owner, position in enumerate(listed):
                if rank < len(groups[position]):
                    found[position].append(rows[owner])
    return [torch.stack(rows) if rows else torch.zeros(0, truth.size(1), dtype=torch.double) for rows in found]


def certainty(rows: Tensor, mode: str, column: int) -> Tensor:
    """`[rows]`: the log-odds of a class, which tell 99 % from 99.9 %; of a regression the value.

    >>> certainty(torch.tensor([[2.0, 0.0], [0.0, 0.0]]), "multiclass", 0)
    tensor([2., 0.])
    """
    if mode == "binary":
        return rows[:, 0] if column == 1 else -rows[:, 0]
    own = rows[:, column]
    if mode in ("multilabel", "regression") or rows.size(1) == 1:
        return own
    others = torch.cat([rows[:, :column], rows[:, column + 1 :]], dim=1)
    return own - others.logsumexp(dim=1)


def chances(rows: Tensor, mode: str) -> Tensor | None:
    """`[rows, classes]`: the probabilities that outputs mean; a regression has none.

    >>> chances(torch.tensor([[0.0]]), "binary")
    tensor([[0.5000, 0.5000]])
    """
    if mode == "regression":
        return None
    if mode == "binary":
        return torch.cat([-rows, rows], dim=1).sigmoid()
    return rows.sigmoid() if mode == "multilabel" else rows.softmax(dim=1)


def said(rows: Tensor, target: Target, column: int) -> list[int]:
    """The class that each row says; of several labels 1 or 0, whether the explained one is among them."""
    if target.mode == "binary":
        return [int(value) for value in rows[:, 0] > 0]
    if target.mode == "multilabel":
        return [int(value) for value in rows[:, column] > 0]
    return rows.argmax(dim=1).tolist()
