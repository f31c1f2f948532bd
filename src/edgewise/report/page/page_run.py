"""Everything that a page tells, computed: scores of every method and level, walks, agreement, and what `check` says.

What a method, the walks or `check` refuse is kept as a sentence, which the page shows in the place of the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgewise.api.check import check_question
from edgewise.api.explain import explain_question
from edgewise.api.walks import walks_of_question
from edgewise.errors import EdgewiseError
from edgewise.metrics.pairwise import PairwiseAgreement
from edgewise.metrics.runs import Runs, check_some_ran, run_all
from edgewise.progress import progress_bar
from edgewise.results.score_rows import as_set

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgewise.metrics.runs import Contender, RunOne
    from edgewise.report.page.request import PageAbout
    from edgewise.results.comparison import Agreement, Key
    from edgewise.results.explanation_set import ExplanationSet
    from edgewise.results.walk_set import WalkSet
    from edgewise.trust.report import Report

STRONGEST = 10
"""How many of the strongest edges the overlap of two methods compares."""


@dataclass(frozen=True)
class Findings:
    """Results, or the sentence that says why there is none."""

    sets: Mapping[tuple[str, str], ExplanationSet]
    """(method, level) → the explanations of all targets."""
    absent: Mapping[tuple[str, str], str]
    """(method, level) → why it has none."""
    walks: tuple[WalkSet, ...] | None
    """A set for every target."""
    no_walks: str
    """Why there are none; empty if there are."""
    agreements: Mapping[Key, Agreement]
    """(first, second, level, layer, measure) → how alike two methods are."""
    report: Report | None
    no_report: str
    """Why there is none; empty if there is one."""


def find(asked: PageAbout, *, progress: bool) -> Findings:
    """Run everything, all targets at once; what a method itself refuses is noted, unless every method refuses."""
    steps = len(asked.contenders) * len(asked.levels) + bool(asked.walks) + asked.check
    with progress_bar(progress, steps, "page", "step") as advance:
        runs = {
            level: run_all(asked.contenders, level, (asked.seed,), _runner(asked), advance) for level in asked.levels
        }
        check_some_ran([one for part in runs.values() for one in part])
        found_walks, no_walks = _walks(asked)
        advance(bool(asked.walks))
        report, no_report = _report(asked)
        advance(asked.check)
    every = [(one.label, level, one) for level, part in runs.items() for one in part]
    return Findings(
        {(label, level): one.sets[0] for label, level, one in every if one.sets},
        {(label, level): one.absent for label, level, one in every if one.absent},
        found_walks,
        no_walks,
        _agreements(asked, runs),
        report,
        no_report,
    )


def _runner(asked: PageAbout) -> RunOne:
    """How one method explains all targets of the page at one level."""

    def run(one: Contender, level: str, seed: int) -> ExplanationSet:
        own = {"method": one.method, "level": level, "seed": seed, **one.settings}
        found: Any = explain_question(asked.question, **own, **asked.sizes)
        return as_set(found, "a page")

    return run


def _walks(asked: PageAbout) -> tuple[tuple[WalkSet, ...] | None, str]:
    """The best walks of every target, or why there are none."""
    if not asked.walks:
        return None, "No walks were requested."
    memory = {"memory": asked.sizes["memory"]}
    try:
        found: Any = walks_of_question(asked.question, k=asked.walks, **memory)
        return tuple(found), ""
    except EdgewiseError as error:
        return None, str(error)


def _report(asked: PageAbout) -> tuple[Report | None, str]:
    """What `check` says about these targets, or why it says nothing."""
    if not asked.check:
        return None, "Not requested."
    try:
        found = check_question(asked.question, seed=asked.seed, **asked.sizes)
    except EdgewiseError as error:
        return None, str(error)
    return found, ""


def _agreements(asked: PageAbout, runs: Mapping[str, list[Runs]]) -> dict[Key, Agreement]:
    """How alike every two methods are, at each level; nothing if there is only one method."""
    found: dict[Key, Agreement] = {}
    for level, part in runs.items():
        if len(part) > 1 and any(one.sets for one in part):
            table = PairwiseAgreement(part, level, asked.question.num_layers, STRONGEST, "magnitude")
            found |= table.agreements(resamples=1, confidence=0.95)  # a page shows means, not intervals
    return found
