"""What the model says about one target without some units: any model, by weighting messages or by removing edges.

`SetAnswers` judges sets of units. Its subclasses run the model: `LoweredAnswers` a lowered program (`set_program.py`), which
can also be bounded; `SilencedAnswers` any model with ω = 0; `RemovedAnswers` any model on graphs without the edges.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.counterfactuals.allowance import Allowance
from edgewise.counterfactuals.edge_units import EdgeUnits
from edgewise.counterfactuals.goal import Goal
from edgewise.counterfactuals.rounding_bound import RoundingBound, margin_errors
from edgewise.counterfactuals.set_program import SetProgram, sets_at_once
from edgewise.metrics.intervene import Removal
from edgewise.question import PosedQuestion
from edgewise.score import Score

_TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5}
"""By which share of the largest output two ways of computing it may differ, for models that are run as they are."""
_NUMBERS = 2**21
"""Edge copies in one pass of a model that is run as it is, times the bytes of a message."""


@dataclass(frozen=True, eq=False)
class Judged:
    """What was found out about some sets."""

    verdict: Tensor
    """`[sets]`: 1 changed, −1 not changed, 0 hidden by rounding."""
    score: Tensor
    """`[sets]`: the smaller the nearer to a change, or the further beyond it."""

    def best(self) -> int | None:
        """The changed set with the smallest score; None if there is none."""
        if not bool((self.verdict == 1).any()):
            return None
        return int(torch.where(self.verdict == 1, self.score, torch.inf).argmin())


class SetAnswers(ABC):
    """One target with its units: outputs without any of them."""

    units: EdgeUnits
    rounding = "tolerance"
    """What `slack` is: a proven bound, or a share of the largest output."""
    tolerance: float | None = None
    """That share; None where rounding errors are bounded."""

    @property
    def num_units(self) -> int:
        """How many there are."""
        return self.units.count

    @abstractmethod
    def outputs(self, silenced: Tensor) -> Tensor:
        """The target's output for each set, bool `[sets, U]` to `[sets, columns]`; sets fit one pass."""

    @property
    @abstractmethod
    def at_once(self) -> int:
        """How many sets fit one pass."""

    @abstractmethod
    def slack(self, goal: Goal) -> Tensor:
        """`[J]`: how far a margin may be from its true value."""

    def judge(self, sets: Tensor, goal: Goal, allowance: Allowance) -> Judged:
        """Run the model for all sets, bool `[sets, U]`, in passes that fit."""
        slack, verdicts, scores = self.slack(goal), [], []
        for part in sets.split(self.at_once):
            allowance.spend(len(part))
            margins = goal.margins(self.outputs(part))
            verdict = goal.verdict(margins, slack)
            hidden = (verdict == 0).nonzero().view(-1)
            if len(hidden):
                verdict[hidden] = self._second_look(part[hidden], margins[hidden], goal)
            verdicts.append(verdict)
            scores.append(goal.score(margins))
        return Judged(torch.cat(verdicts), torch.cat(scores))

    def _second_look(self, sets: Tensor, margins: Tensor, goal: Goal) -> Tensor:
        """Verdicts on sets whose margins are near 0: a margin of exactly 0 is a tie."""
        return goal.verdict(torch.where(margins == 0, torch.inf, margins), self.slack(goal))


class LoweredAnswers(SetAnswers):
    """A lowered program; rounding errors are bounded."""

    rounding = "bound"

    def __init__(self, program: SetProgram, units: EdgeUnits) -> None:
        self.program, self.units = program, units
        self.bound = RoundingBound.of(program)

    def outputs(self, silenced: Tensor) -> Tensor:
        """One pass of the program."""
        return self.program.outputs(silenced)

    @property
    def at_once(self) -> int:
        """As many as the tables of a pass allow."""
        return sets_at_once(self.program)

    def slack(self, goal: Goal) -> Tensor:
        """The proven bound."""
        return self.bound.of_margins(goal)

    def _second_look(self, sets: Tensor, margins: Tensor, goal: Goal) -> Tensor:
        """By the errors of these very sets."""
        return goal.verdict(*margin_errors(self.program, sets, goal))


class _RunAnswers(SetAnswers):
    """A model that is run on copies of the target's graph, one for each set; the last pass is filled up."""

    def __init__(self, question: PosedQuestion, position: int, *, undirected: bool) -> None:
        self._question, self._position = question, torch.tensor([position])
        self._columns = columns = self._columns_of(self._position).unique()
        ends = question.ends(self._position, torch.zeros_like(columns), columns)
        self.units = EdgeUnits.of(columns, ends, undirected=undirected)
        truth = question.target.truth[position]
        self.tolerance = _TOLERANCE.get(truth.dtype, _TOLERANCE[torch.float32])
        self._scale = float(truth.abs().max()) * self.tolerance
        each = max(len(columns), 1) * max(question.edge_bytes // 8, 1)
        self._at_once = max(1, min(1024, _NUMBERS // each))
        self._runs: dict[int, Score | Removal] = {}

    def outputs(self, silenced: Tensor) -> Tensor:
        """One pass of the model, on copies side by side."""
        sets = len(silenced)
        size = min(1 << (sets - 1).bit_length(), max(self._at_once, 1))  # copies are kept, but not of every size
        if sets < size:
            silenced = torch.cat([silenced, silenced.new_zeros(size - sets, silenced.size(1))])
        if size not in self._runs:
            self._runs[size] = self._make(self._position.repeat(size))
        with torch.no_grad():
            return self._answers(self._runs[size], silenced)[:sets].double().cpu()

    def _columns_of(self, positions: Tensor) -> Tensor:
        """The columns that can matter, of copies of the target."""
        return self._make(positions).edge_id.cpu()

    @abstractmethod
    def _make(self, positions: Tensor) -> Score | Removal:
        """Copies of the target's graph, to be run."""

    @abstractmethod
    def _answers(self, run: Score | Removal, silenced: Tensor) -> Tensor:
        """Their outputs."""

    @property
    def at_once(self) -> int:
        """As many as the copies of a pass allow."""
        return self._at_once

    def slack(self, goal: Goal) -> Tensor:
        """A share of the largest output, the same for all margins."""
        return torch.full((len(goal.offset),), self._scale, dtype=torch.double)


class SilencedAnswers(_RunAnswers):
    """Any model, with ω = 0 on the messages of silenced units in every layer."""

    def _make(self, positions: Tensor) -> Score:
        return Score.of_block(self._question, positions)

    def _answers(self, run: Score | Removal, silenced: Tensor) -> Tensor:
        assert isinstance(run, Score)
        unit = self.units.unit_of(run.edge_id)
        ones = run.ones()
        off = silenced[run.owner.cpu(), unit].to(ones.device)
        return run.output(torch.where(off, 0.0, ones))


class RemovedAnswers(_RunAnswers):
    """Any model, on graphs that do not have the columns of silenced units: degrees and attention change with them."""

    def _make(self, positions: Tensor) -> Removal:
        return Removal(self._question, positions)

    def _answers(self, run: Score | Removal, silenced: Tensor) -> Tensor:
        assert isinstance(run, Removal)
        return run.output(~silenced[run.owner, self.units.unit_of(run.edge_id)])
