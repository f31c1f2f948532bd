"""Everything that the page's script reads, as plain data: what all targets share, and a record for each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from edgewise.metrics.pairs import MEASURES
from edgewise.report import colours
from edgewise.report.page.packing import floats, number
from edgewise.report.page.records import Names, Records
from edgewise.report.page.wording import class_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgewise.metrics.compared import Agreement
    from edgewise.report.page.asking import Asked
    from edgewise.report.page.finding import Findings


def contents(asked: Asked, found: Findings, names: Names) -> dict[str, Any]:
    """The data of a page."""
    problem = asked.problem
    labels = [one.label for one in asked.contenders]
    return {
        "task": problem.task,
        "mode": problem.target.mode,
        "of": problem.target.of,
        "layers": problem.num_layers,
        "methods": labels,
        "levels": list(asked.levels),
        "absent": [[*key, reason] for key, reason in found.absent.items()],
        "edges": asked.edges,
        "noWalks": found.no_walks,
        "classes": class_names(names.classes, problem.target),
        "colours": _colours(),
        "agreement": _agreement(found, labels),
        "targets": Records(asked, found, names).every(),
    }


def _colours() -> dict[str, Any]:
    """Those of the pictures."""
    return {
        "supports": colours.SUPPORTS,
        "opposes": colours.OPPOSES,
        "target": colours.TARGET,
        "walks": list(colours.WALKS),
        "thinnest": colours.THINNEST,
        "widest": colours.WIDEST,
    }


def _agreement(found: Findings, labels: Sequence[str]) -> list[dict[str, Any]]:
    """For every level, layer and measure: `[methods, methods]`, the mean over the targets, and that of each target."""

    def cell(a: str, b: str, level: str, layer: int | None, measure: str) -> Agreement:
        first, second = sorted((a, b), key=labels.index)
        return found.agreements[first, second, level, layer, measure]

    records = []
    for level, layer in dict.fromkeys((level, layer) for _, _, level, layer, _ in found.agreements):
        for measure in MEASURES:
            cells = [[cell(a, b, level, layer, measure) for b in labels] for a in labels]
            each = torch.stack([torch.stack([one.value[0] for one in row]) for row in cells])
            mean = [[number(one.mean) for one in row] for row in cells]
            record = {"level": level, "layer": layer, "measure": measure, "mean": mean}
            records.append({**record, "each": floats(each.permute(2, 0, 1))})
    return records
