"""The answer on top of a page: what the model says, what made it so, what would change it, and whether to believe it.

`Answers` tries what the model says without each of the strongest edges of every target; `of` turns that into sentences with
the names of nodes. The edges that are tried come from a method; what is told about them is the model's own word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgewise.api.counterfactual import counterfactual_of_question
from edgewise.errors import EdgewiseError
from edgewise.metrics.runs import YARDSTICKS
from edgewise.report.page.page_trust import trust_lines, trust_word
from edgewise.report.page.silence import EVERY, Group, certainty, outputs_without

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from edgewise.report.page.answer_words import Wording
    from edgewise.report.page.page_run import Findings, PageAbout
    from edgewise.report.page.top_edges import Kept
    from edgewise.results.counterfactual_set import Counterfactual

TRIED = 16
"""Edges of each target that the model is asked to do without: the strongest ones."""
REASONS, AGAINST = 3, 2
LISTED = 8
"""Edges of a set that are named one below the other."""
BUDGET = 1000
"""Sets of edges that are tried or bounded for each target in the search for the smallest change."""
LEAST = 0.05
"""An edge is no reason if it weighs less than this share of the strongest one."""


@dataclass(frozen=True)
class Trial:
    """What the model says without some edges."""

    columns: Group
    drop: float
    """How much less certain it is of the explained class (log-odds); of a regression, how much smaller the value is."""
    row: Tensor
    """`[width]`: its output."""


class Answers:
    """Trials for all targets of a page, and their words."""

    def __init__(
        self, asked: PageAbout, found: Findings, kept: Sequence[Kept], units: Sequence[Mapping[int, Group]]
    ) -> None:
        self._asked, self._found, self._question = asked, found, asked.question
        self.ranked_by, level = _ranking(asked, found)
        method = [one.label for one in asked.contenders].index(self.ranked_by)
        groups = [
            _strongest(one.edges.item, one.edges.scores[level][method].sum(dim=0), unit)
            for one, unit in zip(kept, units, strict=True)
        ]
        self._single = self._tried(groups)
        ahead = [[trial for trial in trials if trial.drop > 0] for trials in self._single]
        together = [
            [
                *(tuple(c for trial in trials[:count] for c in trial.columns) for count in range(2, len(trials) + 1)),
                *((EVERY,) if trials else ()),
            ]
            for trials in ahead
        ]
        self._together = self._tried(together, in_order=True)
        self._flips = smallest_changes(asked, undirected=any(units))

    def _tried(self, groups: Sequence[Sequence[Group]], *, in_order: bool = False) -> list[list[Trial]]:
        """The trials of every target, those that take most certainty first unless their order means something."""
        target = self._question.target
        try:
            outputs = outputs_without(self._question, groups, self._asked.sizes)
        except EdgewiseError:  # a model that cannot be run with other weights has told its own reasons elsewhere
            return [[] for _ in groups]
        found = []
        for position, (some, rows) in enumerate(zip(groups, outputs, strict=True)):
            column, truth = int(target.column[position]), target.truth[position : position + 1].detach().cpu().double()
            drops = (certainty(truth, target.mode, column) - certainty(rows, target.mode, column)).tolist()
            trials = [Trial(*one) for one in zip(some, drops, rows, strict=True) if bool(one[2].isfinite().all())]
            found.append(trials if in_order else sorted(trials, key=lambda trial: -trial.drop))
        return found

    def of(self, position: int, words: Wording, describe: Callable[[Group], dict[str, Any]]) -> dict[str, Any]:
        """The answer for one target, as texts; `describe(columns)` gives names and attributes of edges."""
        trials = self._single[position]
        largest = max((abs(trial.drop) for trial in trials), default=0.0)
        weighty = [trial for trial in trials if abs(trial.drop) >= LEAST * largest and trial.drop != 0]
        forth = [trial for trial in weighty if trial.drop > 0][:REASONS]
        back = [trial for trial in reversed(weighty) if trial.drop < 0][:AGAINST]
        together = self._together[position]
        text, groups = what_would_change(self._flips[position], trials, together, words, describe)
        lines = trust_lines(self._asked, self._found, position, words, any_edges=bool(trials))
        return {
            "verdict": words.verdict(),
            "explained": words.explained(),
            "reasons": [self._reason(trial, words, describe) for trial in forth],
            "allOfThem": _without_all(forth, together, words),
            "against": [self._reason(trial, words, describe) for trial in back],
            "none": "" if forth or back else words.nothing(any_edges=bool(trials)),
            "change": {"text": text, **_listed(groups, describe)},
            "trust": {"word": trust_word(lines), "lines": lines},
        }

    def _reason(self, trial: Trial, words: Wording, describe: Callable[[Group], dict[str, Any]]) -> dict[str, Any]:
        return {**describe(trial.columns), "without": words.without(trial.row), "flips": words.flips(trial.row)}


def smallest_changes(asked: PageAbout, *, undirected: bool) -> Sequence[Counterfactual | None]:
    """For each target the smallest set of edges without which another class is predicted; None where that is not asked.

    A value has no class, and a class that the model does not predict cannot be left: then trials tell what changes.
    """
    question, target = asked.question, asked.question.target
    nothing: list[None] = [None] * len(asked.index)
    if target.mode == "regression" or asked.question.asked.target is not None:
        return nothing
    try:
        found: Any = counterfactual_of_question(question, undirected=undirected, budget=BUDGET)
    except EdgewiseError:
        return nothing
    return list(found)


def what_would_change(
    flip: Counterfactual | None,
    single: Sequence[Trial],
    together: Sequence[Trial],
    words: Wording,
    describe: Callable[[Group], dict[str, Any]],
) -> tuple[str, Sequence[Group]]:
    """A sentence about what would change the answer, and the edges (or bonds) it speaks of.

    It is exact for what it names. That nothing smaller would do is said where it is proven (`ew.counterfactual`).
    """
    if flip is not None and (flip.status != "open" or flip.flips_to is not None):
        groups = [tuple(_column(flip, edge) for edge in unit) for unit in flip.units]
        return words.smallest(flip, [describe(group)["name"] for group in groups]), groups
    if not single:
        return words.no_change(0), ()
    if words.is_value:
        widest = max(single, key=lambda trial: abs(trial.drop))
        return words.one_changes(describe(widest.columns)["name"], widest.row), [widest.columns]
    for trial in single:
        if words.flips(trial.row):
            return words.one_changes(describe(trial.columns)["name"], trial.row), [trial.columns]
    for trial in together:
        if words.flips(trial.row):
            groups = _first(single, trial.columns)
            return words.some_change(len(groups), trial.row), groups
    return words.no_change(len(single), together[-1].row if together else None), ()


def _without_all(forth: Sequence[Trial], together: Sequence[Trial], words: Wording) -> str:
    """What the model says without all reasons at once, where that is more than each of them says alone."""
    columns = tuple(column for trial in forth for column in trial.columns)
    known = next((trial for trial in together if trial.columns == columns), None)
    if len(forth) < 2 or known is None or any(words.flips(trial.row) for trial in forth):
        return ""
    told = words.without(known.row, len(forth))
    return told[0].upper() + told[1:] + "."


def _first(single: Sequence[Trial], columns: Group) -> list[Group]:
    """The edges (or bonds) whose columns make up a set of the first ones; none for all edges of the target."""
    groups: list[Group] = []
    for trial in single:
        if columns == EVERY or sum(map(len, groups)) == len(columns):
            break
        groups.append(trial.columns)
    return groups


def _listed(groups: Sequence[Group], describe: Callable[[Group], dict[str, Any]]) -> dict[str, Any]:
    """The columns of a set of edges; if there are several, each with its name, and how many more there are."""
    named = [describe(group) for group in groups[:LISTED]] if len(groups) > 1 else []
    return {
        "columns": [column for group in groups for column in group],
        "edges": named,
        "more": max(0, len(groups) - LISTED) if named else 0,
    }


def _column(flip: Counterfactual, edge: Any) -> int:
    """An edge of a set as a column of the graph; of a typed graph it is (edge type, column)."""
    return int(edge) if flip.types is None else int(flip.types.edge_range(edge[0])[edge[1]])


def _ranking(asked: PageAbout, found: Findings) -> tuple[str, str]:
    """(method, level) whose strongest edges are tried: occlusion if it ran, else the first that looks at the model."""
    ran = dict(reversed(list(found.sets)))
    name = {one.label: one.method.name for one in asked.contenders}
    order = sorted(ran, key=lambda label: (name[label] in YARDSTICKS, name[label] != "occlusion"))
    return order[0], ran[order[0]]


def _strongest(item: Tensor, score: Tensor, unit: Mapping[int, Group]) -> list[Group]:
    """The strongest groups of columns by the magnitude of their summed scores, never one of zero."""
    total: dict[Group, float] = {}
    for column, value in zip(item.tolist(), score.nan_to_num(0.0, 0.0, 0.0).tolist(), strict=True):
        group = unit.get(column, (column,))
        total[group] = total.get(group, 0.0) + value
    return sorted((group for group in total if total[group]), key=lambda group: -abs(total[group]))[:TRIED]
