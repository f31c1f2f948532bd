"""Comparisons as text."""

from collections import Counter
from typing import TYPE_CHECKING

from edgewise.metrics.measured import columns
from edgewise.metrics.pairs import MEASURES

if TYPE_CHECKING:
    from edgewise.metrics.compared import Comparison

_RANKED = {"support": "most supporting", "opposition": "most opposing", "magnitude": "strongest"}


def title(measure: str, k: int, by: str) -> str:
    """A measure in words."""
    return {
        "cosine": "cosine",
        "spearman": "Spearman's rank correlation",
        "overlap": f"overlap of the {k} {_RANKED[by]} edges",
        "sign": "sign agreement (of edges to which either gives a sign)",
    }[measure]


def comparison_text(found: "Comparison") -> str:
    """What ran, and a table for every level and measure."""
    seeds = f"{len(found.seeds)} seed{'s' if len(found.seeds) > 1 else ''}"
    lines = [
        f"{len(found.methods)} methods, {len(found.index)} targets, {seeds}: mean±deviation over targets and seeds"
    ]
    for level in found.levels:
        lines += ["", f"== {level} level ==", _running(found, level)]
        lines += [f"\n{agreement_table(found, measure, level, None)}" for measure in MEASURES]
    if "layer" in found.levels and found.num_layers > 1:
        lines += ["", f"one layer of {found.num_layers}: table('cosine', 'layer', layer=0)"]
    return "\n".join(lines)


def _running(found: "Comparison", level: str) -> str:
    rows = [("method", "seconds", "zero vectors", "note")]
    for run in found.running:
        if run.level == level:
            ran = ("-", "-") if run.absent else (f"{run.seconds:.2f}", str(run.zero))
            rows.append((run.method, *ran, f"did not run: {run.absent}" if run.absent else ""))
    return columns(rows)


def agreement_table(found: "Comparison", measure: str, level: str, layer: int | None) -> str:
    """The lower half of the matrix, and why numbers are missing."""
    where = f"{level} level" if layer is None else f"layer {layer}"
    rows = [("", "", *(str(number + 1) for number in range(len(found.methods))))]
    missing: Counter[str] = Counter()
    for row, first in enumerate(found.methods):
        cells = []
        for second in found.methods[: row + 1]:
            one = found.pair(first, second, measure, level, layer)
            cells.append(_cell(one.mean, one.deviation))
            missing |= Counter(one.reasons)
        rows.append((str(row + 1), first, *cells, *[""] * (len(found.methods) - row - 1)))
    lines = [f"{title(measure, found.k, found.by)}, {where}", columns(rows)]
    lines += [f"undefined: {count} ({reason})" for reason, count in missing.items()]
    return "\n".join(lines)


def _cell(mean: float, deviation: float) -> str:
    return "-" if mean != mean else f"{mean:.2f}±{deviation:.2f}"
