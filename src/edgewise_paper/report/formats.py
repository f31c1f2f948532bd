"""A report as Markdown (`as_markdown`) and as one HTML page (`as_page`).

The page needs nothing from the network; its figures lie beside it. It is the template `templates/report.html.j2` with
autoescape on: no text of the report can act as HTML.
"""

import re
from typing import Any

from edgewise.errors import missing_extra
from edgewise_paper.report.document import Block, Document, FigureBlock, Heading, Items, Paragraph, TableBlock


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

_VERDICTS = {
    "agrees": "agrees",
    "as claimed": "agrees",
    "in our range": "range",
    "differs": "differs",
    "✓": "agrees",
    "≈": "range",
    "✗": "differs",
}


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

    >>> verdict_of("0.900 (0.896) ✓"), verdict_of("in our range"), verdict_of("0.5")
    ('agrees', 'range', '')
    """
    return _VERDICTS.get(cell) or _VERDICTS.get(cell[-1:], "")


def anchor_of(text: str) -> str:
    """The name of a heading in links.

    >>> anchor_of("Negative Evidence, two colours")
    'negative-evidence-two-colours'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
