"""Numbers and tables as text, as HTML and as JSON: the one place for each of them.

Nothing here needs torch or numpy, so the command line's help can import it.
"""

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def duration(seconds: float) -> str:
    """A time span in words.

    >>> duration(4000), duration(75), duration(3.4)
    ('1 h 06 min', '1 min 15 s', '3 s')
    """
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 60} min {whole % 60:02d} s" if whole >= 60 else f"{whole} s"


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the singular or the plural.

    >>> counted(1, "walk"), counted(2, "walk"), counted(0, "target")
    ('1 walk', '2 walks', '0 targets')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as lines, each column as wide as its widest cell.

    >>> print(columns([("method", "seconds"), ("gradient", "0.1")]))
    method    seconds
    gradient  0.1
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def html_table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table with one head row; every text is escaped, so that a label of the user's cannot act as HTML.

    >>> html_table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def for_json(value: Any) -> Any:
    """The same value with None for NaN and infinities, which JSON does not know; inside dicts and lists too.

    >>> for_json({"a": [1.0, float("nan")], "b": "text"})
    {'a': [1.0, None], 'b': 'text'}
    """
    if isinstance(value, dict):
        return {name: for_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [for_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
