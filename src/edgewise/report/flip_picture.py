"""The picture of a counterfactual: the edges that go, around the explained node, with the answer in words below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgewise.report import matplotlib_marks
from edgewise.report.appearance import Nodes
from edgewise.report.link_marks import draw_pair, pair_keys
from edgewise.report.matplotlib_marks import canvas, put_nodes
from edgewise.report.scene import flat_picture, task_of
from edgewise.report.typed_look import typed_nodes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

    from edgewise.results.counterfactual_set import Counterfactual

GONE = "#c0392b"
_DASHES, _WIDTH = (2.2, 1.6), 2.2
_MOST = 60
"""Edges that are drawn."""


def draw_counterfactual(
    found: Counterfactual,
    words: str,
    *,
    labels: Any = None,
    classes: Any = None,
    marked: Mapping[str, Any] | None = None,
    title: str = "",
) -> Figure:
    """Draw the edges that have to go, dashed; `found.plot()` calls it. Needs `edgewise[plot]`.

    >>> from edgewise.examples import path_model
    >>> import edgewise as ew
    >>> found = ew.counterfactual(*path_model(gains=[2.0, 3.0]), 2, mode="regression", threshold=1.0)
    >>> draw_counterfactual(found, found.sentence()).get_suptitle()
    'the fewest edges that flip node 2 (proven)'
    """
    flat = found.as_explanation()
    shown = flat_picture(flat, _MOST)
    if found.types is None:
        nodes = Nodes.read(shown.nodes, flat.num_nodes, labels, classes, marked)
    else:
        nodes = typed_nodes(shown.nodes, found.types, labels, marked, classes)
    figure, axes = canvas(shown, title or _title(found))
    matplotlib_marks.draw_context(axes, shown)
    draw_pair(axes, shown)
    dashes = {step.column: _DASHES for step in shown.strongest.steps if step.column is not None}
    before = set(axes.patches)
    matplotlib_marks.draw_arrows(axes, shown, nodes.radius, dashes)
    for arrow in set(axes.patches) - before:
        arrow.set(color=GONE, linewidth=_WIDTH, path_effects=[], mutation_scale=14)
    put_nodes(axes, shown, nodes)
    keys = nodes.keys(
        shown.root and shown.root[1], {"link": "ends of the link"}.get(task_of(found.settings), "explained node")
    )
    keys += pair_keys(shown)
    if shown.strongest.steps:
        keys.append(_gone_key())
    matplotlib_marks.write_legend(figure, words, keys)
    return figure


def _gone_key() -> tuple[str, Any]:
    from matplotlib.lines import Line2D

    return "goes", Line2D([], [], color=GONE, linewidth=2.5, linestyle=(0, _DASHES))


def _title(found: Counterfactual) -> str:
    """What is shown, and how far it is proven."""
    named = f"{task_of(found.settings)} {found.index}"
    if found.types is not None:
        named = " ".join(map(str, found.index))
    what = {"proven": "the fewest edges that flip", "none": "no edges flip"}.get(found.status, "edges that flip")
    return f"{what} {named} ({found.certainty})"
