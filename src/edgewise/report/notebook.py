"""What a notebook shows of a result: a small table and a picture; every text escaped, and never an exception."""

from __future__ import annotations

import base64
import io
import warnings
from html import escape
from typing import TYPE_CHECKING, Any

from edgewise.report.figure import target_of
from edgewise.report.walk_lanes import sentence
from edgewise.results.explanation_set import ExplanationSet
from edgewise.results.walk_set import WalkSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edgewise.results.explanation import Explanation

ROWS = 10


def html_of(found: Explanation | ExplanationSet | WalkSet) -> str:
    """A table and, with matplotlib, a picture; whatever goes wrong, the plain text of the result.

    >>> import torch
    >>> from edgewise import Explanation
    >>> why = Explanation(torch.ones(1), torch.tensor([[0], [1]]), 2, 1, 0, 1.0, method="<b>")
    >>> "<b>" in html_of(why).replace("<b>&lt;b&gt;: node 1, class 0, value 1</b>", "")
    False
    """
    try:
        head, table = _head_and_table(found)
        return f'<div style="font-size:90%"><p><b>{escape(head)}</b></p>{table}{_picture(found)}</div>'
    except Exception:  # a notebook must show something, and print(found) will raise what is wrong
        return f"<pre>{escape(_plain(found))}</pre>"


def _plain(found: Any) -> str:
    try:
        return repr(found)
    except Exception:
        return type(found).__name__


def _head_and_table(found: Explanation | ExplanationSet | WalkSet) -> tuple[str, str]:
    if isinstance(found, WalkSet):
        table = _table(["rank", "score", "walk"], _walk_rows(found), len(found))
        return f"walks: {target_of(found)}. {sentence(found, len(found))}", table
    if isinstance(found, ExplanationSet):
        rows = (
            [why.index, why.target, f"{why.value:.4g}", *_cells(why.top(1, by="magnitude"), why.level)]
            for why in found[:ROWS]
        )
        layer = ["layer"] if found.level == "layer" else []
        return repr(found), _table(
            ["index", "target", "value", "strongest edge", "score", *layer], rows, len(found), noun="targets"
        )
    layer = ["layer"] if found.level == "layer" else []
    best = found.top(ROWS, by="magnitude")
    rows = (_cells([entry], found.level) for entry in best)
    nonzero = int((found.scores != 0).sum())
    return f"{found.method}: {target_of(found)}", _table(["edge", "score", *layer], rows, nonzero, noun="scores")


def _walk_rows(walks: WalkSet) -> Iterable[Sequence[Any]]:
    for rank, walk in enumerate(walks[:ROWS], start=1):
        yield [rank, f"{walk.score:+.4g}", " → ".join(map(str, walk.nodes))]


def _cells(best: Sequence[tuple[Any, ...]], level: str) -> list[Any]:
    """The edge and its score, and at layer level the layer; dashes where every score is zero."""
    if not best:
        return ["–"] * (3 if level == "layer" else 2)
    score, source, receiver, _, *layer = best[0]
    return [f"{source} → {receiver}", f"{score:+.4g}", *layer]


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]], size: int, noun: str = "walks") -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    rest = f"<p>… and {size - ROWS} more {noun}</p>" if size > ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _picture(found: Explanation | ExplanationSet | WalkSet) -> str:
    """Of a set, that of its first target; nothing without matplotlib, or if there is nothing to draw."""
    shown = found[0] if isinstance(found, ExplanationSet) and len(found) else found
    if isinstance(shown, ExplanationSet):
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of glyphs that the font lacks
            file = io.BytesIO()
            shown.plot().savefig(file, format="png", dpi=80)
    except Exception:  # the table is worth showing without it
        return ""
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="{escape(target_of(shown))}" src="data:image/png;base64,{data}">'
