"""What a notebook shows of a result: a small table and a picture; every text escaped, and never an exception."""

from __future__ import annotations

import base64
import io
import warnings
from html import escape
from typing import TYPE_CHECKING, Any

from edgewise.report.appearance import signed_colour
from edgewise.report.layer_picture import sentence
from edgewise.report.scene import target_of
from edgewise.results.explanation_set import ExplanationSet
from edgewise.results.typed_explanation import TypedExplanation
from edgewise.results.walk_set import WalkSet
from edgewise.text import html_table, typed_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edgewise.results.comparison import Comparison
    from edgewise.results.explanation import Explanation

ROWS = 10
"""Rows of a table: strongest edges, targets or walks."""


def html_of(found: Explanation | ExplanationSet | WalkSet) -> str:
    """A table and, with matplotlib, a picture; if anything goes wrong, the plain text of the result.

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


def comparison_html(found: Comparison) -> str:
    """A table of mean cosines for every level, darker where methods agree; hatched by a dash where undefined."""
    parts = [f"<p><b>{escape(repr(found).removesuffix('; print it for the tables)') + ')')}</b></p>"]
    for level in found.levels:
        means = found.matrix("cosine", level, None).tolist()
        head = "".join(f"<th>{escape(name)}</th>" for name in found.methods)
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>{''.join(map(_agreement_cell, row))}</tr>"
            for name, row in zip(found.methods, means, strict=True)
        )
        parts.append(f"<p>cosine of the scores, {escape(level)} level, mean over the targets</p>")
        parts.append(f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>")
    return f'<div style="font-size:90%">{"".join(parts)}</div>'


def _agreement_cell(mean: float) -> str:
    """A number on the colour of its agreement."""
    if mean != mean:
        return "<td>–</td>"
    ink = "white" if abs(mean) > 0.55 else "black"
    return f"<td style='background:{signed_colour(mean * abs(mean), 1.0)};color:{ink}'>{mean:.2f}</td>"


def _plain(found: Any) -> str:
    """The result's text; its class if even that fails."""
    try:
        return repr(found)
    except Exception:
        return type(found).__name__


def _head_and_table(found: Explanation | ExplanationSet | WalkSet) -> tuple[str, str]:
    """The heading as text, and the table as HTML."""
    if isinstance(found, WalkSet):
        table = _table(["rank", "score", "walk"], _walk_rows(found), len(found), "walks")
        return f"walks: {target_of(found)}. {sentence(found, len(found))}", table
    if isinstance(found, ExplanationSet):
        rows = (
            [_called(why.index), why.target, f"{why.value:.4g}", *_cells(why.top(1, by="magnitude"), why.level)]
            for why in found[:ROWS]
        )
        layer = ["layer"] if found.level == "layer" else []
        return repr(found), _table(
            ["index", "target", "value", "strongest edge", "score", *layer], rows, len(found), "targets"
        )
    layer = ["layer"] if found.level == "layer" else []
    best = found.top(ROWS, by="magnitude")
    rows = (_cells([entry], found.level) for entry in best)
    flat = found.flat if isinstance(found, TypedExplanation) else found
    nonzero = int((flat.scores != 0).sum())
    return f"{found.method}: {target_of(found)}", _table(["edge", "score", *layer], rows, nonzero, "scores")


def _called(index: Any) -> Any:
    """A target in a cell; of a typed graph `paper 3`."""
    return typed_name(*index) if isinstance(index, tuple) and isinstance(index[0], str) else index


def _walk_rows(walks: WalkSet) -> Iterable[Sequence[Any]]:
    """Rank, score and nodes of the first walks."""
    for rank, walk in enumerate(walks[:ROWS], start=1):
        yield [rank, f"{walk.score:+.4g}", " → ".join(map(str, walk.nodes))]


def _cells(best: Sequence[Any], level: str) -> list[Any]:
    """The edge and its score, and at layer level the layer; dashes where every score is zero."""
    if not best:
        return ["–"] * (3 if level == "layer" else 2)
    score, source, receiver, _, *layer = best[0]
    if isinstance(source, tuple):  # of a typed graph
        return [f"{typed_name(*source)} –{best[0].edge_type[1]}→ {typed_name(*receiver)}", f"{score:+.4g}", *layer]
    return [f"{source} → {receiver}", f"{score:+.4g}", *layer]


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]], size: int, noun: str) -> str:
    """A table of the first rows, and a line that counts the rest of `size`."""
    more = size - ROWS
    rest = f"<p>… and {more} more {noun if more > 1 else noun.removesuffix('s')}</p>" if more > 0 else ""
    return html_table(heads, rows) + rest


def _picture(found: Explanation | ExplanationSet | WalkSet) -> str:
    """The picture as an `<img>`, for a set that of its first target; empty without matplotlib, or with nothing to draw."""
    shown = found[0] if isinstance(found, ExplanationSet) and len(found) else found
    if isinstance(shown, ExplanationSet):
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about letters that the font lacks
            file = io.BytesIO()
            shown.plot().savefig(file, format="png", dpi=80)
    except Exception:  # the table is worth showing without it
        return ""
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="{escape(target_of(shown))}" src="data:image/png;base64,{data}">'
