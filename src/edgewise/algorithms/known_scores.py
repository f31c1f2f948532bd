"""Scores that `explain` gave before, laid on the edge copies of a `Score`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.collection import ExplanationSet
from edgewise.errors import InputError
from edgewise.explanation import Explanation
from edgewise.problem import Problem
from edgewise.score import Score


@dataclass(frozen=True, eq=False)
class KnownScores:
    """Scores that are not zero: of which target, in which column."""

    index: Tensor
    target: Tensor
    settings: Mapping[str, Any]
    graphs: tuple[tuple[Tensor, int], ...]
    row: Tensor
    column: Tensor
    score: Tensor

    def check_graphs(self, problem: Problem) -> None:
        """Refuse another graph than the explained one."""
        for position, (edge_index, _) in enumerate(self.graphs):
            if not torch.equal(problem.source_edge_index(position).cpu(), edge_index.cpu()):
                raise InputError(
                    "data is not the explained graph: its edge_index differs. Pass the data of explain(...)."
                )

    def of_copies(self, score: Score) -> Tensor:
        """`[M]`: the score of each edge copy, 0 where there is none."""
        width = max(edge_index.size(1) for edge_index, _ in self.graphs) + 1
        known, order = (self.row * width + self.column).sort()
        wanted = score.positions[score.owner.cpu()] * width + score.edge_id.cpu()
        place = torch.searchsorted(known, wanted).clamp(max=max(len(known) - 1, 0))
        values = self.score[order]
        if len(known) == 0:
            return values.new_zeros(len(wanted))
        return torch.where(known[place] == wanted, values[place], 0.0)


def read_scores(found: Any) -> KnownScores:
    """Of one explanation or of a set, at input level; anything else is refused."""
    if not isinstance(found, (Explanation, ExplanationSet)):
        raise InputError(f"found is {type(found).__name__}; needed is what ew.explain(...) gave.")
    if found.level != "input":
        raise InputError(
            f"found is of level {found.level!r}; a subgraph needs one score per edge: explain with level='input'."
        )
    if isinstance(found, Explanation):
        column = found.scores.nonzero().view(-1).cpu()
        index, target = torch.tensor([found.index]), torch.tensor([found.target])
        graphs = ((found.edge_index, found.num_nodes),)
        return KnownScores(
            index, target, found.settings, graphs, torch.zeros_like(column), column, found.scores.cpu()[column]
        )
    if found.edges is None:
        raise InputError("random scores are drawn on demand and make no subgraph; explain with another method.")
    entries = found.edges
    return KnownScores(
        found.index, found.target, found.settings, found.graphs, entries.rows(), entries.place, entries.score
    )
