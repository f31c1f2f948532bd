"""Document: what a report is made of, the tables of compared numbers in it, and how it is written.

A block is data only. `as_markdown` writes the blocks as Markdown, `as_page` as one HTML page: the template
`templates/report.html.j2` with autoescape on, so no text of the report can act as HTML; `kind` tells it which block it has.
The page needs nothing from the network; its figures lie beside it.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from edgewise.errors import missing_extra
from edgewise_paper.comparison import Compared


@dataclass(frozen=True)
class Heading:
    """A title; level 1 is the title of the report."""

    kind: ClassVar[str] = "heading"
    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """A few sentences; what stands between backticks is code, as in Markdown."""

    kind: ClassVar[str] = "paragraph"
    text: str


@dataclass(frozen=True)
class Items:
    """A bulleted list; backticks as in a paragraph."""

    kind: ClassVar[str] = "items"
    texts: Sequence[str]


@dataclass(frozen=True)
class TableBlock:
    """A table with cells of plain text; a `folded` one is opened by the reader, where the format can do that."""

    kind: ClassVar[str] = "table"
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    folded: bool = False


@dataclass(frozen=True)
class FigureBlock:
    """A figure, by the name of its files (`figures/name.png` and `figures/name.svg`)."""

    kind: ClassVar[str] = "figure"
    name: str
    caption: str


Block: TypeAlias = Heading | Paragraph | Items | TableBlock | FigureBlock


@dataclass
class Document:
    """A report: blocks in order."""

    blocks: list[Block] = field(default_factory=list)

    def add(self, *blocks: Block) -> None:
        """Append blocks."""
        self.blocks += blocks


# --- Tables of compared numbers ----------------------------------------------------------------------------------------


def number(value: float, digits: int = 3) -> str:
    """Text of a number; a dash for NaN, powers of ten for what would round to zero.

    >>> number(0.98765), number(float("nan")), number(3.2e-5)
    ('0.988', '–', '3.2e-05')
    """
    if math.isnan(value):
        return "–"
    return f"{value:.1e}" if 0 < abs(value) < 0.5 * 10**-digits else f"{value:.{digits}f}"


def with_spread(one: Compared, digits: int = 3) -> str:
    """Text of mean ± deviation: over the seeds if there are several, else over the targets."""
    spread = one.deviation if math.isnan(one.spread) else one.spread
    return number(one.mean, digits) + ("" if math.isnan(spread) else f" ± {number(spread, digits)}")


def full_table(
    found: Iterable[Compared], caption: str, name: Callable[[Compared], str], *, folded: bool = False
) -> TableBlock:
    """A line for each number: published, ours ± deviation, the range over the seeds, and the difference.

    Args:
        found: The numbers.
        caption: Title of the table.
        name: Text of the first column.
        folded: Whether the reader has to open it.
    """
    columns = ("quantity", "published", "ours ± deviation", "range over seeds", "seeds", "difference")
    rows = []
    for one in found:
        theirs = "–" if one.published is None else _theirs(one)
        span = f"{number(one.low)} … {number(one.high)}" if one.seeds > 1 else ""
        off = "" if math.isnan(one.difference) else f"{one.difference:+.3f}"
        rows.append((name(one), theirs, with_spread(one), span, str(one.seeds), off))
    return TableBlock(columns, rows, caption, folded)


def _theirs(one: Compared) -> str:
    """The published number with its deviation over targets."""
    assert one.published is not None
    spread = one.published.deviation
    return number(one.published.value, 4) + ("" if math.isnan(spread) else f" ± {number(spread, 4)}")


def depth_table(
    found: Sequence[Compared], caption: str, name: Callable[[Compared], str], *, percent: bool = False
) -> TableBlock:
    """A line for each name, a column for each depth: ours ± over the seeds, and the published number in brackets."""
    depths = sorted({one.layers for one in found})
    lines: dict[str, dict[int, Compared]] = {}
    for one in found:
        lines.setdefault(name(one), {})[one.layers] = one
    rows = [[line, *(_cell(cells.get(depth), percent=percent) for depth in depths)] for line, cells in lines.items()]
    return TableBlock(["", *(f"{depth} layer{'s' if depth > 1 else ''}" for depth in depths)], rows, caption)


def _cell(one: Compared | None, *, percent: bool) -> str:
    """One number, ± over the seeds, and the published one in brackets."""
    if one is None:
        return ""
    factor, digits = (100.0, 1) if percent else (1.0, 3)
    spread = "" if math.isnan(one.spread) else f"±{number(one.spread * factor, digits)}"
    theirs = "" if one.published is None else f" ({number(one.published.value * factor, digits)})"
    return f"{number(one.mean * factor, digits)}{spread}{theirs}"


# --- Markdown ---------------------------------------------------------------------------------------------------------


def as_markdown(report: Document) -> str:
    """The report as Markdown."""
    return "\n\n".join(_markdown(block) for block in report.blocks) + "\n"


def _markdown(block: Block) -> str:
    """One block; folded tables are open, which Markdown cannot change."""
    match block:
        case Heading():
            return f"{'#' * block.level} {block.text}"
        case Paragraph():
            return block.text
        case Items():
            return "\n".join(f"- {text}" for text in block.texts)
        case TableBlock():
            return _markdown_table(block)
        case FigureBlock():
            return f"![{block.caption}](figures/{block.name}.png)\n\n*{block.caption}*"


def _markdown_table(block: TableBlock) -> str:
    r"""A table below its caption.

    >>> print(_markdown_table(TableBlock(["a|b", "c"], [["1", "2"]])))
    | a\|b | c |
    | --- | --- |
    | 1 | 2 |
    """
    lines = [block.columns, ["---"] * len(block.columns), *block.rows]
    drawn = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"{block.caption}\n\n{drawn}" if block.caption else drawn


# --- HTML --------------------------------------------------------------------------------------------------------------

_VERDICTS = {"as claimed": "agrees", "differs": "differs", "✓": "agrees", "✗": "differs"}


def as_page(report: Document, title: str) -> str:
    """The report as an HTML page; `title` is the browser's."""
    try:
        import jinja2
    except ImportError as error:
        raise missing_extra("jinja2", "paper", "The report as a page") from error
    loader = jinja2.PackageLoader("edgewise_paper", "report/templates")
    templates = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    templates.filters |= {"prose": _prose, "verdict": verdict_of, "anchor": anchor_of}
    return templates.get_template("report.html.j2").render(blocks=report.blocks, title=title)


def _prose(text: str) -> Any:
    """Escaped text as markup; what stands between backticks becomes code, as in Markdown."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def verdict_of(cell: str) -> str:
    """The style of a table's cell: that of the verdict it is, or of the mark it ends with; empty for others.

    >>> verdict_of("0.900 (0.896) ✓"), verdict_of("differs"), verdict_of("0.5")
    ('agrees', 'differs', '')
    """
    return _VERDICTS.get(cell) or _VERDICTS.get(cell[-1:], "")


def anchor_of(text: str) -> str:
    """The name of a heading in links.

    >>> anchor_of("Negative Evidence, two colours")
    'negative-evidence-two-colours'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
