"""Matplotlib's part of a picture: the canvas, dotted context, arrows, nodes, labels, colour bar and legend.

Every function draws one kind of mark on given axes, from a `Picture` (what and where) and `Nodes` (how nodes look).
"""

from __future__ import annotations

import math
from collections import Counter
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewise.errors import missing_extra
from edgewise.report.appearance import OPPOSES, OUTLINE, SUPPORTS, signed_colour, width_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

    from edgewise.report.appearance import Nodes
    from edgewise.report.layout import Position
    from edgewise.report.scene import Picture, Spot, Step

OUTLINE_WIDTH = 0.9  # in points, in all
DASHES = (0, (2.2, 1.1))
MOST_ROWS = 2
"""Rows of a legend for which a figure has room."""


def canvas(shown: Picture, title: str, row_height: float = 0.3) -> tuple[Figure, Axes]:
    """An empty figure, large enough for what it will show."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise missing_extra("matplotlib", "plot", "A picture") from error
    figure = Figure(figsize=_size(shown, row_height), dpi=110, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.06))
    axes = figure.add_subplot()
    axes.axis("off")
    figure.suptitle(title, fontsize=11, parse_math=False)
    if shown.num_layers:
        _name_columns(axes, shown)
    else:
        axes.set_aspect("equal", adjustable="datalim")  # the axes keep their place: a narrow graph is in the middle
        axes.margins(0.1)  # room for loops
    return figure, axes


def _name_columns(axes: Axes, shown: Picture) -> None:
    """Draw a light band for each column, with its name above it; the names of the layers are between the bands."""
    lowest = min((y for _, y in shown.place.values()), default=0.0)
    for column in range(shown.num_layers + 1):
        axes.axvspan(column - 0.1, column + 0.1, color="0.96", zorder=0, linewidth=0)
        name = {0: "features", shown.num_layers: "output"}.get(column, "")
        axes.text(column, 0.75, name, ha="center", va="bottom", fontsize=9, color="0.3")
    for layer in range(shown.num_layers):
        axes.text(layer + 0.5, 0.75, f"layer {layer} →", ha="center", va="bottom", fontsize=9, color="0.3")
    axes.set_xlim(-0.2, shown.num_layers + 0.2)
    axes.set_ylim(lowest - 0.7, 1.2)


def _size(shown: Picture, row_height: float = 0.3) -> tuple[float, float]:
    """Width and height in inches, for a fixed distance between rows, or between the nodes on the fullest ring."""
    if shown.num_layers:
        rows = len({y for _, y in shown.place.values()})
        return max(7.5, 2.2 * shown.num_layers + 2.0), min(max(3.6, row_height * rows + 2.0), 24.0)
    ring = Counter(round(math.hypot(x, y), 6) for x, y in shown.place.values()).most_common(1)[0][1]
    side = min(max(min(1.6 + 1.4 * len(shown.place) ** 0.5, 6.8), ring * 0.3 / math.pi + 2.0), 16.0)
    across, up = (max(spread) - min(spread) + 1.0 for spread in zip(*shown.place.values(), strict=True))
    return max(side + 1.6, 6.0), side * min(max(up / across, 0.45), 1.1) + 0.9


def draw_context(axes: Axes, picture: Picture) -> None:
    """Draw dotted lines: edges without a score, or ways through edges that are too weak to be drawn."""
    for start, end in picture.context:
        (x0, y0), (x1, y1) = picture.place[start], picture.place[end]
        axes.plot([x0, x1], [y0, y1], color="0.7", linewidth=0.9, linestyle=":", zorder=1)


def draw_arrows(
    axes: Axes, picture: Picture, radius: float, dashes: Mapping[int, tuple[float, ...]] | None = None
) -> None:
    """Draw an arrow for every step, the weakest first; `radius` is that of the nodes, in points.

    `dashes` are those of columns whose line is not solid.

    Arrows between the same two nodes are bent by different amounts: `apart` counts the copies of this one so far, and is one
    less if no arrow runs the other way, so that a lone arrow is straight.
    """
    from matplotlib.patches import FancyArrowPatch

    copies: Counter[tuple[Spot, Spot]] = Counter()
    largest = picture.strongest.largest
    ways = [picture.ends(step) for step in picture.strongest.steps]
    thinner = picture.strongest.crowding
    for order, (step, (start, end)) in enumerate(zip(picture.strongest.steps, ways, strict=True)):
        copies[start, end] += 1
        apart = copies[start, end] - ((end, start) not in ways)
        width, colour = thinner * width_of(step.score, largest), signed_colour(step.score, largest)
        course = _course(picture.place[start], picture.place[end], apart, copies[start, end])
        arrow = FancyArrowPatch(
            **course,
            arrowstyle="-|>",
            mutation_scale=6 + 2 * width,
            shrinkA=0 if "path" in course else radius,
            shrinkB=radius + 1,
            color=colour,
            linewidth=width,
            linestyle=_line(picture, step, dashes or {}),
            **_outlined(width),
            zorder=2 + order / 1000,
        )
        axes.add_patch(arrow)


def _line(picture: Picture, step: Step, dashes: Mapping[int, tuple[float, ...]]) -> Any:
    """The style of a step's line: dashed if it stays on its node, or as its edge type says."""
    if step.column is None:
        return DASHES if picture.num_layers else "solid"
    return (0, dashes[step.column]) if dashes.get(step.column) else "solid"


def relation_keys(lines: Mapping[str, tuple[float, ...]]) -> list[tuple[str, Artist]]:
    """(name, sample line) for the legend: the edge types that are drawn, with their dashes."""
    from matplotlib.lines import Line2D

    look: dict[str, Any] = {"color": "0.35", "linewidth": 2.0}
    return [(name, Line2D([], [], linestyle=(0, dash) if dash else "solid", **look)) for name, dash in lines.items()]


def _course(start: Position, end: Position, apart: int, copy: int) -> dict[str, Any]:
    """How an arrow runs, as arguments of `FancyArrowPatch`.

    Bent, so that both directions and parallel edges are seen apart; straight if `apart` is 0; for a self-loop a curve out of
    the node, away from the centre of the picture, larger for each further copy.
    """
    from matplotlib.path import Path

    if start != end:
        return {"posA": start, "posB": end, "connectionstyle": f"arc3,rad={0.16 * apart}"}
    away = np.array(start) / np.hypot(*start) if any(start) else np.array([0.0, 1.0])  # from the centre
    aside = np.array([-away[1], away[0]])
    bulges = [np.array(start) + (0.5 + 0.2 * copy) * (away + side * aside) for side in (0.6, -0.6)]
    corners = np.array([start, *bulges, start])
    return {"path": Path(corners, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])}


def colour_bar(figure: Figure, axes: Axes, largest: float, *, of_value: bool = False) -> None:
    """Draw the scale of `signed_colour`, with numbers, beside the axes; a value is lowered or raised."""
    signs = "− lowers, + raises" if of_value else "− opposes, + supports"
    shrink = min(0.6, 3.6 / figure.get_figheight())  # tall figures have many rows, not many colours
    figure.colorbar(_scale(largest), ax=axes, shrink=shrink, aspect=25, pad=0.02, label=f"score, not linear  ({signs})")


def _scale(largest: float) -> ScalarMappable:
    """The colours of `signed_colour` for matplotlib: its square root is the norm."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import FuncNorm, LinearSegmentedColormap

    norm = FuncNorm((lambda x: np.sign(x) * abs(x) ** 0.5, lambda x: np.sign(x) * x**2), -largest, largest)
    faint = [signed_colour(sign * 1e-9, 1.0) for sign in (-1, 1)]
    colours = [(0.0, OPPOSES), (0.5, faint[0]), (0.5, faint[1]), (1.0, SUPPORTS)]
    return ScalarMappable(norm, LinearSegmentedColormap.from_list("signed", colours))


def score_keys(picture: Picture) -> list[tuple[str, Artist]]:
    """(name, sample line) for the legend: the strongest support, the strongest opposition, the weakest that is drawn."""
    from matplotlib.lines import Line2D

    strongest = picture.strongest
    scores = [step.score for step in strongest.steps]
    samples = {
        "strongest support": max((score for score in scores if score > 0), default=None),
        "strongest opposition": min((score for score in scores if score < 0), default=None),
        "weakest drawn": scores[0] if len(scores) > 2 else None,
    }
    keys: list[tuple[str, Artist]] = []
    for name, score in samples.items():
        if score is not None:
            width = strongest.crowding * width_of(score, strongest.largest)
            colour = signed_colour(score, strongest.largest)
            keys.append((f"{name} {signed(score)}", Line2D([], [], color=colour, linewidth=width, **_outlined(width))))
    if picture.num_layers and any(step.column is None for step in strongest.steps):
        keys.append(("stays on the node (self score)", Line2D([], [], color="0.4", linewidth=2.5, linestyle=DASHES)))
    return keys


def signed(score: float) -> str:
    """A score with its sign, three digits and a minus that is as wide as a plus.

    >>> signed(2.5), signed(-0.00123)
    ('+2.5', '−0.00123')
    """
    return f"{score:+.3g}".replace("-", "−")


def _outlined(width: float) -> dict[str, Any]:
    """A thin grey outline around a line of that width: lines that are nearly white must still be seen."""
    from matplotlib.patheffects import Normal, Stroke

    return {"path_effects": [Stroke(linewidth=width + OUTLINE_WIDTH, foreground=OUTLINE), Normal()]}


def write_legend(figure: Figure, sentence: str, keys: list[tuple[str, Artist]]) -> None:
    """Write the sentence and the keys below the picture, no wider than it.

    Texts from data are set after the legend is made, and as plain text: matplotlib would read `$` as a formula and hide
    labels that begin with an underscore.
    """
    widest = max((len(name) for name, _ in keys), default=1)
    columns = max(1, min(4, int(figure.get_figwidth() / (0.068 * widest + 0.7))))
    more_rows = max(0, math.ceil(len(keys) / columns) - MOST_ROWS)
    figure.set_figheight(figure.get_figheight() + 0.19 * more_rows)  # a long legend must not take the picture's room
    room = int(figure.get_figwidth() / 0.078)
    sentence = "\n".join(line for part in sentence.split("\n") for line in wrap(part, room))
    for _, artist in keys:
        artist.set_label("·")  # matplotlib hides labels that begin with an underscore
    legend = figure.legend(
        handles=[artist for _, artist in keys],
        loc="outside lower center",
        ncols=columns,
        title=sentence,
        title_fontsize=9,
        fontsize=8.5,
        frameon=False,
    )
    legend.get_title().set(parse_math=False, multialignment="center")
    for text, (name, _) in zip(legend.get_texts(), keys, strict=True):
        text.set_parse_math(False)
        text.set_text(name)


def put_nodes(axes: Axes, shown: Picture, nodes: Nodes) -> None:
    """Draw nodes with their labels; in an unrolled picture long labels are written once, at the left of their row."""
    draw_nodes(axes, shown, nodes)
    if shown.num_layers:
        rows = {node: y for (_, node), (_, y) in shown.place.items()}
        for node, y in rows.items():
            if label := nodes.outside(node):
                axes.text(-0.16, y, label, fontsize=7.5, ha="right", va="center", parse_math=False)
        return
    outside = {spot: nodes.outside(spot[1]) or "" for spot in shown.place}
    if longest := max(map(len, outside.values()), default=0):
        share = min((0.064 * longest + 0.25) / (_size(shown)[1] - 1.4), 0.35)  # of the axes, for the labels at one side
        axes.margins(share / (1 - 2 * share))
    outside_labels(axes, shown, {spot: label for spot, label in outside.items() if label}, nodes.radius)


def draw_nodes(axes: Axes, picture: Picture, nodes: Nodes) -> None:
    """Draw circles, and the explained node or both ends of a link as larger squares, with numbers or short labels inside."""
    area = (2 * nodes.radius) ** 2
    for spot, (x, y) in picture.place.items():
        is_root = spot in (picture.root, picture.other)
        axes.scatter(
            [x],
            [y],
            s=1.5 * area if is_root else area,
            marker="s" if is_root else "o",
            facecolor=nodes.colour(spot[1], is_root=is_root),
            edgecolor="black" if is_root else "0.4",
            linewidth=2.2 if is_root else 1.0,
            zorder=4,
            gid=f"node-{spot[0]}-{spot[1]}",
        )
        axes.text(
            x, y, nodes.inside(spot[1]), fontsize=6.8, ha="center", va="center_baseline", zorder=5, parse_math=False
        )


def outside_labels(axes: Axes, picture: Picture, labels: Mapping[Spot, str], radius: float) -> None:
    """Write long labels beside their nodes, turned so that they point away from the middle of the picture."""
    from matplotlib.patheffects import Normal, Stroke

    middle = picture.place[picture.root] if picture.root else np.mean(list(picture.place.values()), axis=0)
    for spot, label in labels.items():
        x, y = picture.place[spot]
        angle = float(np.degrees(np.arctan2(y - middle[1], x - middle[0])))
        to_left = abs(angle) > 90
        turn = np.radians(angle) if spot != picture.root else np.radians(-60)
        axes.annotate(
            label,
            (x, y),
            xytext=(1.6 * radius * np.cos(turn), 1.6 * radius * np.sin(turn)),
            textcoords="offset points",
            rotation=0 if spot == picture.root else (angle + 180 if to_left else angle),
            rotation_mode="anchor",
            ha="right" if to_left and spot != picture.root else "left",
            va="center",
            fontsize=7.5,
            parse_math=False,
            path_effects=[Stroke(linewidth=2.5, foreground="white"), Normal()],
            zorder=6,
        )
