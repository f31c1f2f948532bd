"""A report as one HTML page that needs nothing from the network; figures lie beside it."""

import re
from functools import singledispatch
from html import escape

from edgewise_paper.report.document import Block, Document, FigureBlock, Heading, Items, Paragraph, TableBlock

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2em auto; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 0.5em 0 1.5em; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #ddd; padding: 3px 10px; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
code { background: #f3f3f3; padding: 0 0.25em; border-radius: 3px; }
th { border-bottom: 2px solid #888; }
caption, summary { text-align: left; font-weight: 600; padding: 0.4em 0; }
summary { cursor: pointer; }
figure { margin: 1.5em 0; overflow-x: auto; } figure img { max-width: 100%; } figcaption { color: #555; }
.agrees { color: #1a7f37; } .range { color: #8a6100; } .differs { color: #b42318; }
"""
_CLASSES = {
    "agrees": "agrees",
    "in our range": "range",
    "differs": "differs",
    "✓": "agrees",
    "≈": "range",
    "✗": "differs",
}


def as_page(report: Document, title: str) -> str:
    """The whole page; every text is escaped."""
    body = "\n".join(_html(block) for block in report.blocks)
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


@singledispatch
def _html(block: Block) -> str:
    raise TypeError(f"no such block: {block!r}")


@_html.register
def _heading(block: Heading) -> str:
    return f"<h{block.level}>{escape(block.text)}</h{block.level}>"


@_html.register
def _paragraph(block: Paragraph) -> str:
    return f"<p>{_prose(block.text)}</p>"


@_html.register
def _items(block: Items) -> str:
    return "<ul>" + "".join(f"<li>{_prose(text)}</li>" for text in block.texts) + "</ul>"


def _prose(text: str) -> str:
    """Escaped; what stands between backticks becomes code, as in Markdown."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


@_html.register
def _table(block: TableBlock) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in block.columns)
    body = "\n".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in block.rows)
    caption = f"<caption>{escape(block.caption)}</caption>" if block.caption and not block.folded else ""
    table = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
    return f"<details><summary>{escape(block.caption)}</summary>{table}</details>" if block.folded else table


def _cell(text: str) -> str:
    name = _CLASSES.get(text) or _CLASSES.get(text[-1:])
    return f'<td class="{name}">{escape(text)}</td>' if name else f"<td>{escape(text)}</td>"


@_html.register
def _picture(block: FigureBlock) -> str:
    name, caption = escape(block.name), escape(block.caption)
    return (
        f'<figure><a href="figures/{name}.svg"><img src="figures/{name}.png" alt="{caption}"></a>'
        f"<figcaption>{caption}</figcaption></figure>"
    )
