"""The colours and widths of every picture and page: signed scores around white, groups of nodes, walks side by side.

All of them can be told apart by the colour-blind: purple and orange are the ends of PuOr, the groups are light enough for black
text, the walks follow Okabe and Ito.
"""

from __future__ import annotations

SUPPORTS, OPPOSES, WHITE = "#542788", "#b35806", "#ffffff"
OUTLINE = "#9a9a9a"
"""Around every signed line: a score near zero is nearly white and must still be seen."""
TARGET = "#ffd92f"
GROUPS = ("#44bb99", "#77aadd", "#ffaabb", "#bbcc33", "#99ddff", "#eedd88", "#aaaa00", "#dddddd")
WALKS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a7a00")
THINNEST, WIDEST = 1.0, 5.0  # in points


def signed_colour(score: float, largest: float) -> str:
    """`#rrggbb`: white at zero, purple at `largest`, orange at `-largest`; by the square root, so that weak signs are seen.

    >>> signed_colour(2.0, 2.0), signed_colour(0.0, 2.0), signed_colour(-2.0, 2.0)
    ('#542788', '#ffffff', '#b35806')
    """
    amount = min(abs(score) / largest, 1.0) ** 0.5 if largest > 0 else 0.0
    end = SUPPORTS if score > 0 else OPPOSES
    mixed = (round((1 - amount) * 255 + amount * part) for part in rgb(end))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def rgb(colour: str) -> tuple[int, int, int]:
    """The three numbers, 0 to 255, of `#rrggbb`.

    >>> rgb("#542788")
    (84, 39, 136)
    """
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def width_of(score: float, largest: float) -> float:
    """The width of a line, in points, by magnitude.

    >>> width_of(-2.0, 2.0), width_of(0.0, 2.0)
    (5.0, 1.0)
    """
    return THINNEST + (WIDEST - THINNEST) * (min(abs(score) / largest, 1.0) if largest > 0 else 0.0)
