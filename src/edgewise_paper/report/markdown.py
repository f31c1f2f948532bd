"""A report as Markdown."""

from functools import singledispatch

from edgewise_paper.report.document import Block, Document, FigureBlock, Heading, Items, Paragraph, TableBlock


def as_markdown(report: Document) -> str:
    """The whole text."""
    return "\n\n".join(_text(block) for block in report.blocks) + "\n"


@singledispatch
def _text(block: Block) -> str:
    raise TypeError(f"no such block: {block!r}")


@_text.register
def _heading(block: Heading) -> str:
    return f"{'#' * block.level} {block.text}"


@_text.register
def _paragraph(block: Paragraph) -> str:
    return block.text


@_text.register
def _items(block: Items) -> str:
    return "\n".join(f"- {text}" for text in block.texts)


@_text.register
def _table(block: TableBlock) -> str:
    lines = [block.columns, ["---"] * len(block.columns), *block.rows]
    drawn = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"{block.caption}\n\n{drawn}" if block.caption else drawn


@_text.register
def _picture(block: FigureBlock) -> str:
    return f"![{block.caption}](figures/{block.name}.png)\n\n*{block.caption}*"
