"""Rows as text, as Markdown and as JSON; the README's section of figures."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import floor, sizes
from benchmarks.deviation import TOLERANCE
from benchmarks.jobs import Job
from benchmarks.scaling import MANY
from benchmarks.timing import Case, Measurement

HEAD = ("job", "peer", "ratio", "min–max", "at least", "dream", "ours, s", "peer, s", "sample", "deviation", "way")
BEGIN, END = "<!-- figures: written by `python -m benchmarks --write-readme` -->", "<!-- end of figures -->"
NOTICED = 0.2  # share of a peer's time in the system that the table must name
Row = Mapping[str, Any]


def row_of(job: Job, case: Case, found: Measurement, date: str) -> dict[str, Any]:
    ours, peer = median(found.ours), median(found.peer)
    return {
        "title": job.title,
        "peer": case.peer.name,
        "ratio": found.ratio,
        "ratios": found.ratios,
        "at_least": job.at_least,
        "dream": job.dream,
        "our_seconds": ours,
        "peer_seconds": peer,
        "peer_seconds_per_unit": peer / case.peer.total,
        "peer_system_share": median(found.peer_system_shares),
        "our_sample": [found.our_units, len(case.ours.pool), case.ours.unit],
        "peer_sample": [found.peer_units, len(case.peer.pool), case.peer.unit],
        "deviation": found.deviation.worst,
        "compared_targets": found.deviation.compared,
        "targets_apart": found.deviation.apart,
        "way": found.way,
        "date": date,
    }


def cells(name: str, row: Row) -> tuple[str, ...]:
    if "error" in row:
        return (f"{name}: {row['error']}", *[""] * (len(HEAD) - 1))
    return (
        row["title"],
        row["peer"],
        f"{_number(row['ratio'])}× {_verdict(row)} {_without_system(row)}".strip(),
        f"{_number(min(row['ratios']))}–{_number(max(row['ratios']))}",
        _wanted(row["at_least"]),
        _wanted(row["dream"]),
        _seconds(row["our_seconds"]) + _mark(row["our_sample"]),
        _seconds(row["peer_seconds"]) + _mark(row["peer_sample"]),
        _sample(row),
        _deviation(row),
        row["way"],
    )


def text_table(rows: Mapping[str, Row]) -> str:
    table = [HEAD, *(cells(name, row) for name, row in rows.items())]
    full = [line for line in table if any(line[1:])]
    widths = [max(len(line[i]) for line in full) for i in range(len(HEAD))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in table)


def markdown_table(rows: Mapping[str, Row]) -> str:
    table = [HEAD, ("---",) * len(HEAD), *(cells(name, row) for name, row in rows.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in table)


def markdown(results: Mapping[str, Any], folder: Path) -> str:
    """The section of figures; `folder` may hold the plot and the GPU's figures."""
    machine = ", ".join(f"{key} {value}" for key, value in results["machine"].items())
    parts = [f"Machine: {machine}.", markdown_table(results["rows"]), NOTES]
    if "scaling" in results:
        parts.append(scaling_sentence(results["scaling"]))
    if (folder / "scaling.png").exists():
        parts.append("![Cost against the size of the computation graphs](scaling.png)")
    if "sizes" in results:
        parts.append("Cost by size (`python -m benchmarks.sizes`; `python -m benchmarks --only sizes --write-readme`):")
        parts += [sizes.table(results["sizes"]["exponents"]), "![Cost by size, one thing at a time](sizes.png)"]
    if "floor" in results:
        parts.append(
            f"Against the floor by arithmetic (`python -m benchmarks.floor`): what a method must add and multiply, at the "
            f"{results['floor']['rate'] / 1e9:.0f}·10⁹ operations a second of this core in a matrix product."
        )
        parts.append(floor.markdown(results["floor"]["rows"]))
    if "large" in results:
        parts.append(f"Large graph: {results['large']['sentence']}.")
    if (folder / "walks.json").exists():
        walks = json.loads((folder / "walks.json").read_text(encoding="utf-8"))
        parts.append(f"Walks (`python -m benchmarks.walks`, {walks['device']}, {walks['date']}):")
        parts.append("\n".join(f"- {row['sentence']}" for row in walks["rows"]))
    if (folder / "gpu.json").exists():
        gpu = json.loads((folder / "gpu.json").read_text(encoding="utf-8"))
        parts.append(f"GPU ({gpu['device']}, torch {gpu['torch']}, {gpu['date']}):")
        parts.append("\n".join(f"- {row['sentence']}" for row in gpu["rows"]))
    return "\n\n".join(parts)


NOTES = (
    "`*`: a sample, extrapolated by the number of units. `↓`: below what we want at least; `✓`: reached; `★`: the dream. "
    "Deviation: the largest one of the compared targets (their number in brackets), relative to the target's largest score; "
    f"`!` with the number of targets that are above {TOLERANCE:g}."
)


def scaling_sentence(scaling: Mapping[str, Any]) -> str:
    points = scaling["points"]
    large = [p for p in points if p["size"] >= MANY] or points
    rates = [p["seconds"] / p["size"] * 1e9 for p in large]
    return (
        f"Scaling: graphs of {min(p['edges'] for p in points):,} to {max(p['edges'] for p in points):,} edges; where the "
        f"computation graphs have {MANY:,} edges or more together, cost grows as their size to the power of "
        f"{scaling['exponent']:.2f}, {min(rates):.0f} to {max(rates):.0f} ns an edge."
    )


def write_readme(path: Path, section: str) -> None:
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    path.write_text(f"{before}{BEGIN}\n\n{section}\n\n{END}{after}", encoding="utf-8")


def merge(path: Path, new: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    """What the file holds, with the rows of this run in place of the old ones; each row has its date."""
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    rows = {**old.get("rows", {}), **new["rows"]}
    return {**old, **new, "rows": {name: rows[name] for name in order if name in rows}}


def save(path: Path, results: Mapping[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    part.rename(path)


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _wanted(value: float | None) -> str:
    return "" if value is None else f"{_number(value)}×"


def _verdict(row: Row) -> str:
    if row["at_least"] is None:
        return ""
    return "★" if row["ratio"] >= row["dream"] else "✓" if row["ratio"] >= row["at_least"] else "↓"


def _without_system(row: Row) -> str:
    share = row["peer_system_share"]
    return f"({_number(row['ratio'] * (1 - share))}× without system time)" if share > NOTICED else ""


def _seconds(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _mark(sample: Sequence[Any]) -> str:
    return "*" if sample[0] < sample[1] else ""


def _sample(row: Row) -> str:
    named = []
    for whose in ("our", "peer"):
        done, of, unit = row[f"{whose}_sample"]
        if done < of:
            named.append(f"{'peer' if whose == 'peer' else 'ours'}: {done} of {of} {unit}")
    return "; ".join(named)


def _deviation(row: Row) -> str:
    worst, compared = f"{row['deviation']:.0e}", f"of {row['compared_targets']}"
    return f"{worst} ! ({row['targets_apart']} {compared})" if row["targets_apart"] else f"{worst} ({compared})"
