"""Infection: mean cosines between all pairs of methods, published ones beside ours."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgewise.experiments.comparing import Compared
from edgewise.experiments.reporting.drawing import NAMES, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("positive_gradient", "gnn_explainer", "gradient", "occlusion", "random", "full")


def matrices(found: Sequence[Compared], layers: Sequence[int]) -> "Figure":
    """A column for each layer (0: the input level); ours above, published below."""
    figure = new_figure(3.1 * len(layers) + 1.0, 6.4)
    panels = figure.subplots(2, len(layers), squeeze=False)
    image = None
    for j, layer in enumerate(layers):
        here = [one for one in found if one.layer == layer]
        for i, (title, matrix) in enumerate((("ours", _ours(here)), ("published", _theirs(here)))):
            where = "input level" if layer == 0 else f"layer {layer}"
            image = _panel(panels[i, j], matrix, f"{title}, {where}", names=j == 0)
    if image is not None:
        figure.colorbar(image, ax=panels, shrink=0.6, label="mean cosine")
    return figure


def _filled(pairs: dict[tuple[str, str], float]) -> np.ndarray:
    matrix = np.eye(len(METHODS))
    for (one, other), value in pairs.items():
        i, j = METHODS.index(one), METHODS.index(other)
        matrix[i, j] = matrix[j, i] = value
    return matrix


def _ours(found: list[Compared]) -> np.ndarray:
    return _filled({(one.reference, one.method): one.mean for one in found})


def _theirs(found: list[Compared]) -> np.ndarray:
    return _filled({(one.reference, one.method): one.published.value for one in found if one.published})


def _panel(axes: Any, matrix: np.ndarray, title: str, *, names: bool) -> Any:
    image = axes.imshow(matrix, vmin=0, vmax=1, cmap="viridis")
    axes.set_title(title, fontsize=9)
    labels = [NAMES[method] for method in METHODS]
    axes.set_xticks(range(len(labels)), labels, rotation=60, ha="right", fontsize=7)
    axes.set_yticks(range(len(labels)), labels if names else [""] * len(labels), fontsize=7)
    for i, j in np.ndindex(matrix.shape):
        axes.text(
            j,
            i,
            f"{matrix[i, j]:.2f}",
            ha="center",
            va="center",
            fontsize=6.5,
            color="w" if matrix[i, j] < 0.6 else "k",
        )
    return image
