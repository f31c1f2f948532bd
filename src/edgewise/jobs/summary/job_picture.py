"""The picture of one explanation on the page of a job: a small SVG of its strongest edges, in the colours of all pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from html import escape
from typing import TYPE_CHECKING

from edgewise.report.appearance import OUTLINE, TARGET, signed_colour, width_of
from edgewise.report.scene import Spot, flat_picture

if TYPE_CHECKING:
    from edgewise.report.scene import Picture, Step
    from edgewise.results.explanation import Explanation

EDGES = 12
"""So few edges leave room for every number."""
WIDTH, HEIGHT, MARGIN, RADIUS = 460, 320, 26, 14
_SHORT = 5  # letters that fit into a circle

Places = Mapping[Spot, tuple[float, float]]


def picture_svg(why: Explanation, name: Callable[[int], str], short: Callable[[int], str] = str) -> str:
    """The strongest edges around the target.

    Args:
        why: The explanation.
        name: A node's name, which a reader sees when the mouse rests on it, and in the circle if it is short enough.
        short: What is in the circle otherwise.

    >>> from edgewise import explain
    >>> from edgewise.examples import path_model
    >>> picture_svg(explain(*path_model([2.0, 3.0]), 2), str).count("<circle")
    2
    """
    shown = flat_picture(why, EDGES)
    places = _on_paper(shown)
    lines = [_dotted(places[one], places[other]) for one, other in shown.context if one in places and other in places]
    lines += [_arrow(shown, step, places) for step in shown.strongest.steps]
    nodes = [
        _node(place, (name(node), short(node)), is_root=(column, node) in (shown.root, shown.other))
        for (column, node), place in places.items()
    ]
    described = f"{len(shown.strongest.steps)} strongest edges"
    return (
        f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='{escape(described, quote=True)}'>"
        f"{''.join(lines)}{''.join(nodes)}</svg>"
    )


def _on_paper(shown: Picture) -> dict[Spot, tuple[float, float]]:
    """Places in the coordinates of the SVG: the picture fills it, and stays as it is if it has no extent."""
    if not shown.place:
        return {}
    xs, ys = ([place[axis] for place in shown.place.values()] for axis in (0, 1))
    wide, high = max(xs) - min(xs), max(ys) - min(ys)
    scale = min(
        (WIDTH - 2 * MARGIN) / wide if wide else math.inf,
        (HEIGHT - 2 * MARGIN) / high if high else math.inf,
        90.0,
    )
    middle = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
    return {
        spot: (WIDTH / 2 + (x - middle[0]) * scale, HEIGHT / 2 - (y - middle[1]) * scale)
        for spot, (x, y) in shown.place.items()
    }


def _dotted(start: tuple[float, float], end: tuple[float, float]) -> str:
    return f"<path d='M{_at(start)} L{_at(end)}' stroke='#b5b5b5' stroke-dasharray='2 3'/>"


def _arrow(shown: Picture, step: Step, places: Places) -> str:
    """A line with an outline and a head; a loop is a ring around its node."""
    colour = signed_colour(step.score, shown.strongest.largest)
    width = width_of(step.score, shown.strongest.largest)
    start, end = (places[spot] for spot in shown.ends(step))
    tip = f"<title>{step.score:+.3g}</title>".replace("-", "−")
    if start == end:
        ring = f"cx='{end[0]:.1f}' cy='{end[1]:.1f}' r='{RADIUS + 4}' fill='none'"
        return f"<g><circle {ring} stroke='{colour}' stroke-width='{width:.1f}'/>{tip}</g>"
    length = math.dist(start, end)
    across = (end[0] - start[0]) / length, (end[1] - start[1]) / length
    bend = 7.0  # to one side, so that the way back does not lie on it
    side = -across[1] * bend, across[0] * bend
    tail = start[0] + side[0] * 0.4, start[1] + side[1] * 0.4
    point = end[0] - across[0] * (RADIUS + 1) + side[0] * 0.4, end[1] - across[1] * (RADIUS + 1) + side[1] * 0.4
    half = 3 + width / 2
    base = point[0] - across[0] * 2 * half, point[1] - across[1] * 2 * half
    head = [
        point,
        (base[0] - across[1] * half, base[1] + across[0] * half),
        (base[0] + across[1] * half, base[1] - across[0] * half),
    ]
    course = f"d='M{_at(tail)} L{_at(base)}'"
    corners = " ".join(map(_at, head))
    return (
        f"<g><path {course} stroke='{OUTLINE}' stroke-width='{width + 1.2:.1f}'/>"
        f"<path {course} stroke='{colour}' stroke-width='{width:.1f}'/>"
        f"<polygon points='{corners}' fill='{colour}' stroke='{OUTLINE}' stroke-width='.6'/>{tip}</g>"
    )


def _node(place: tuple[float, float], names: tuple[str, str], *, is_root: bool) -> str:
    """A circle, or a square for the target, with as much of its name as there is room for."""
    x, y = place
    name, short = names
    text = next((one for one in names if len(one) <= _SHORT), "…" + short[-3:])
    look = f"fill='{TARGET if is_root else '#f2f2f2'}' stroke='#444' stroke-width='{1.6 if is_root else 0.8}'"
    side = 2 * RADIUS
    shape = (
        f"<rect x='{x - RADIUS:.1f}' y='{y - RADIUS:.1f}' width='{side}' height='{side}' {look}/>"
        if is_root
        else f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{RADIUS}' {look}/>"
    )
    size = 11 if len(text) <= 3 else 9
    label = f"<text x='{x:.1f}' y='{y + 3.5:.1f}' text-anchor='middle' font-size='{size}'>{escape(text)}</text>"
    return f"<g>{shape}{label}<title>{escape(name)}</title></g>"


def _at(place: tuple[float, float]) -> str:
    return f"{place[0]:.1f},{place[1]:.1f}"
