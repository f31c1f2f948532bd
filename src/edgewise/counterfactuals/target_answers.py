"""How the model is run without some edges, for the targets of a question: by the lowered program where that can be bounded."""

import torch
from torch import Tensor

from edgewise.counterfactuals.edge_units import EdgeUnits
from edgewise.counterfactuals.set_answers import LoweredAnswers, RemovedAnswers, SetAnswers, SilencedAnswers
from edgewise.counterfactuals.set_program import SharedProgram
from edgewise.question import PosedQuestion
from edgewise.trust.interval_program import NotCertifiable


class TargetAnswers:
    """The targets of one question, one after the other."""

    def __init__(self, question: PosedQuestion, by: str, *, undirected: bool) -> None:
        self.question, self._by, self._undirected = question, by, undirected
        self._shared: SharedProgram | None = None
        if by == "weight" and question.task == "node" and question.lowering is not None:
            try:
                self._shared = SharedProgram(question.lowering.program, question.lowering.in_edges.num_nodes)
            except NotCertifiable:
                self._shared = None

    def of(self, position: int) -> SetAnswers:
        """Those of one target."""
        question = self.question
        if self._by == "removal":
            return RemovedAnswers(question, position, undirected=self._undirected)
        if self._shared is None or question.lowering is None:
            return SilencedAnswers(question, position, undirected=self._undirected)
        place = torch.tensor([position])
        levels = question.lowering.engine(question.places(place)).levels
        columns = question.columns(levels.edge_id)
        each = columns.unique()
        ends = question.ends(place, torch.zeros_like(each), each)
        units = EdgeUnits.of(each, ends, undirected=self._undirected)
        return LoweredAnswers(self._shared.around(levels, columns, units), units)


def unit_scores(answers: SetAnswers, scores: Tensor) -> Tensor:
    """`[U]`: scores of columns `[E]` as scores of units: both directions of an edge are added up."""
    found = torch.zeros(answers.num_units, dtype=torch.double)
    return found.index_add_(0, answers.units.unit, scores.detach().cpu().double()[answers.units.column])
