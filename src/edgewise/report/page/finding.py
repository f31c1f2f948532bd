"""Everything that a page tells, found: scores of every method and level, walks, agreement, and what `check` says."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgewise.algorithms.registry import find_method
from edgewise.errors import EdgewiseError
from edgewise.explaining import explain
from edgewise.metrics.every_pair import Runs, Table
from edgewise.metrics.rows import as_set
from edgewise.progress import progress_bar
from edgewise.trust.report import check
from edgewise.walk.asking import walks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgewise.collection import ExplanationSet
    from edgewise.metrics.compared import Agreement, Key
    from edgewise.metrics.contenders import Contender
    from edgewise.report.page.asking import Asked
    from edgewise.trust.findings import Report
    from edgewise.walk.results import WalkSet

STRONGEST = 10
"""Edges in the overlap of two methods."""


@dataclass(frozen=True)
class Findings:
    """Results, or the sentence that says why there is none."""

    sets: Mapping[tuple[str, str], ExplanationSet]
    """(method, level) → the explanations of all targets."""
    absent: Mapping[tuple[str, str], str]
    """(method, level) → why it has none."""
    walks: tuple[WalkSet, ...] | None
    no_walks: str
    agreements: Mapping[Key, Agreement]
    report: Report | None
    no_report: str


def find(asked: Asked, *, progress: bool) -> Findings:
    """Run everything, all targets at once; what a method itself refuses is noted, unless none is left."""
    steps = len(asked.contenders) * len(asked.levels) + bool(asked.walks) + asked.check
    runs: dict[str, list[Runs]] = {}
    errors: list[EdgewiseError] = []
    with progress_bar(progress, steps, "page", "step") as advance:
        for level in asked.levels:
            runs[level] = []
            for one in asked.contenders:
                runs[level].append(_run(asked, one, level, errors))
                advance(1)
        if len(errors) == len(asked.contenders) * len(asked.levels):
            raise errors[0]
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


def _run(asked: Asked, one: Contender, level: str, errors: list[EdgewiseError]) -> Runs:
    begin = time.perf_counter()
    try:
        find_method(one.method, level)
        found: Any = explain(
            asked.model,
            asked.data,
            asked.index,
            method=one.method,
            level=level,
            seed=asked.seed,
            **asked.options,
            **asked.sizes,
            **one.settings,
        )
        return Runs(one.label, (as_set(found, "a page"),), time.perf_counter() - begin)
    except EdgewiseError as error:
        errors.append(error)
        return Runs(one.label, (), float("nan"), str(error))


def _walks(asked: Asked) -> tuple[tuple[WalkSet, ...] | None, str]:
    if not asked.walks:
        return None, "No walks were asked for."
    memory = {"memory": asked.sizes["memory"]}
    try:
        return tuple(walks(asked.model, asked.data, asked.index, k=asked.walks, **asked.options, **memory)), ""
    except EdgewiseError as error:
        return None, str(error)


def _report(asked: Asked) -> tuple[Report | None, str]:
    if not asked.check:
        return None, "Not asked for."
    try:
        found = check(asked.model, asked.data, asked.index, seed=asked.seed, **asked.options, **asked.sizes)
    except EdgewiseError as error:
        return None, str(error)
    return found, ""


def _agreements(asked: Asked, runs: Mapping[str, list[Runs]]) -> dict[Key, Agreement]:
    found: dict[Key, Agreement] = {}
    for level, part in runs.items():
        if len(part) > 1 and any(one.sets for one in part):
            table = Table(part, level, asked.problem.num_layers, STRONGEST, "magnitude")
            found |= table.agreements(resamples=1, confidence=0.95)  # a page shows means, not intervals
    return found
