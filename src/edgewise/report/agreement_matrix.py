"""A picture of a comparison: every pair of methods, coloured by how much they agree. `comparison.plot()` draws it."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from edgewise.errors import missing_extra
from edgewise.report.colours import OPPOSES, SUPPORTS
from edgewise.results.comparison import title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from edgewise.results.comparison import Comparison

_SIGNED = ("cosine", "spearman")  # −1 to 1; the others 0 to 1
_UNDEFINED = "#e6e6e6"
_CELL, _LABELS = 0.62, 2.1  # inches


def draw_comparison(found: Comparison, measure: str, levels: Sequence[str], layer: int | None) -> Figure:
    """Draw a panel for each level, with the means in the cells; a cell without one is hatched. Needs `edgewise[plot]`.

    Args:
        found: The comparison.
        measure: Which agreement, such as `"cosine"`.
        levels: The panels from left to right.
        layer: One layer of layer level, or `None` for all layers together.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("matplotlib", "plot", "Drawing a comparison") from error

    side = _CELL * len(found.methods)
    figure = Figure(figsize=(_LABELS + (side + 0.3) * len(levels) + 1.2, side + _LABELS), dpi=110, layout="constrained")
    panels = figure.subplots(1, len(levels), squeeze=False, sharey=True)[0]
    for axes, level in zip(panels, levels, strict=True):
        image = _draw_panel(axes, found, measure, level, layer)
        axes.set_title(f"{level} level" if layer is None else f"layer {layer}", fontsize=11)
    figure.colorbar(image, ax=list(panels), shrink=0.8, label="hatched: undefined")
    targets = "1 target" if len(found.index) == 1 else f"{len(found.index)} targets"
    what = f"mean over {targets}" + (f" and {len(found.seeds)} seeds" if len(found.seeds) > 1 else "")
    figure.suptitle(f"{title(measure, found.k, found.by)}: {what}", fontsize=12)
    return figure


def _draw_panel(axes: Axes, found: Comparison, measure: str, level: str, layer: int | None) -> AxesImage:
    """Draw one matrix; the colours go from −1 or 0 to 1."""
    means = found.matrix(measure, level, layer)  # [methods, methods]
    image = axes.imshow(means.numpy(), cmap=_colours(measure), vmin=-1 if measure in _SIGNED else 0, vmax=1)
    for row, numbers in enumerate(means.tolist()):
        for column, mean in enumerate(numbers):
            if isnan(mean):
                _hatch(axes, row, column)
            else:
                colour = "white" if abs(mean) > 0.55 else "black"
                axes.text(column, row, f"{mean:.2f}", ha="center", va="center", fontsize=8, color=colour)
    places = range(len(found.methods))
    axes.set_xticks(places, found.methods, rotation=45, ha="right", rotation_mode="anchor", fontsize=9)
    axes.set_yticks(places, found.methods, fontsize=9)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return image


def _hatch(axes: Axes, row: int, column: int) -> None:
    """Mark a cell as undefined."""
    from matplotlib.patches import Rectangle

    place = (column - 0.5, row - 0.5)
    axes.add_patch(Rectangle(place, 1, 1, facecolor=_UNDEFINED, edgecolor="0.6", hatch="///", linewidth=0))


def _colours(measure: str) -> Colormap:
    """The colours of support and opposition, which the colour-blind can tell apart, with white between them."""
    from matplotlib.colors import LinearSegmentedColormap

    ends = [OPPOSES, "white", SUPPORTS] if measure in _SIGNED else ["white", SUPPORTS]
    return LinearSegmentedColormap.from_list("agreement", ends)
