"""Tables of the page of a job: cells and numbers as texts."""

from collections.abc import Sequence
from html import escape


def share_cells(count: int, total: int) -> tuple[str, str]:
    """A count, and its share of all.

    >>> share_cells(1200, 4800)
    ('1,200', '25.0%')
    """
    return f"{count:,}", f"{count / total:.1%}"


def lines_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    head = "".join(f"<th{' class=number' if at else ''}>{escape(name)}</th>" for at, name in enumerate(heads))
    body = "".join(
        "<tr>"
        + "".join(f"<td{' class=number' if at else ''}>{escape(cell)}</td>" for at, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f"<table class='lines'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def short_number(value: float) -> str:
    """Three digits, with a minus sign as in print.

    >>> short_number(-0.12345)
    '−0.123'
    """
    return f"{value:.3g}".replace("-", "−")
