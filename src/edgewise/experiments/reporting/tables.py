"""Tables of compared numbers."""

import math
from collections.abc import Callable, Iterable, Sequence

from edgewise.experiments.comparing import AGREES, DIFFERS, IN_RANGE, Compared
from edgewise.experiments.reporting.content import Table

MARKS = {AGREES: "✓", IN_RANGE: "≈", DIFFERS: "✗", "": ""}
MARKS_EXPLAINED = (
    "✓ agrees, ≈ inside our range over the seeds (or what chance explains), ✗ differs; published numbers in brackets."
)


def number(value: float, digits: int = 3) -> str:
    """Text of a number; a dash for NaN.

    >>> number(0.98765), number(float("nan")), number(3.2e-5)
    ('0.988', '–', '3.2e-05')
    """
    if math.isnan(value):
        return "–"
    return f"{value:.1e}" if 0 < abs(value) < 0.5 * 10**-digits else f"{value:.{digits}f}"


def with_spread(one: Compared, digits: int = 3) -> str:
    """Mean ± deviation: over the seeds if there are several, else over the targets."""
    spread = one.deviation if math.isnan(one.spread) else one.spread
    return number(one.mean, digits) + ("" if math.isnan(spread) else f" ± {number(spread, digits)}")


def full_table(
    found: Iterable[Compared], caption: str, name: Callable[[Compared], str], *, folded: bool = False
) -> Table:
    """Published, ours ± deviation, the range over the seeds, difference and verdict."""
    columns = ("quantity", "published", "ours ± deviation", "range over seeds", "seeds", "difference", "verdict")
    rows = []
    for one in found:
        theirs = "–" if one.published is None else _theirs(one)
        span = f"{number(one.low)} … {number(one.high)}" if one.seeds > 1 else ""
        off = "" if math.isnan(one.difference) else f"{one.difference:+.3f}"
        rows.append((name(one), theirs, with_spread(one), span, str(one.seeds), off, one.verdict))
    return Table(columns, rows, caption, folded)


def _theirs(one: Compared) -> str:
    assert one.published is not None
    spread = one.published.deviation
    return number(one.published.value, 4) + ("" if math.isnan(spread) else f" ± {number(spread, 4)}")


def depth_table(
    found: Sequence[Compared], caption: str, name: Callable[[Compared], str], *, percent: bool = False
) -> Table:
    """A line for each name, a column for each depth: ours, the published number in brackets, a mark."""
    depths = sorted({one.layers for one in found})
    lines: dict[str, dict[int, Compared]] = {}
    for one in found:
        lines.setdefault(name(one), {})[one.layers] = one
    rows = [[line, *(_cell(cells.get(depth), percent=percent) for depth in depths)] for line, cells in lines.items()]
    return Table(["", *(f"{depth} layer{'s' if depth > 1 else ''}" for depth in depths)], rows, caption)


def _cell(one: Compared | None, *, percent: bool) -> str:
    if one is None:
        return ""
    factor, digits = (100.0, 1) if percent else (1.0, 3)
    spread = "" if math.isnan(one.spread) else f"±{number(one.spread * factor, digits)}"
    theirs = "" if one.published is None else f" ({number(one.published.value * factor, digits)})"
    return f"{number(one.mean * factor, digits)}{spread}{theirs} {MARKS[one.verdict]}".strip()


def share(found: Iterable[Compared]) -> tuple[int, int]:
    """How many of the compared numbers agree or are in our range, of how many."""
    verdicts = [one.verdict for one in found if one.verdict]
    return sum(verdict != DIFFERS for verdict in verdicts), len(verdicts)
