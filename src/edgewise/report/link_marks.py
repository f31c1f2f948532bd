"""What a picture of a link has besides: the dashed line between its two ends, and its place in the legend."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from edgewise.report.scene import Picture

PAIR = (0, (4.0, 3.0))
"""The line between the two ends of an explained link."""


def draw_pair(axes: Axes, picture: Picture) -> None:
    """Draw the pair that is asked about, behind everything else; an unrolled picture has no room for it."""
    if picture.other is None or picture.root is None or picture.num_layers:
        return
    (x0, y0), (x1, y1) = picture.place[picture.root], picture.place[picture.other]
    axes.plot([x0, x1], [y0, y1], color="black", linewidth=1.6, linestyle=PAIR, zorder=1, gid="pair")


def pair_keys(picture: Picture) -> list[tuple[str, Artist]]:
    """(name, sample) for the legend: the dashed line between the ends of a link."""
    from matplotlib.lines import Line2D

    if picture.other is None or picture.num_layers:
        return []
    return [("the pair", Line2D([], [], color="black", linewidth=1.6, linestyle=PAIR))]
