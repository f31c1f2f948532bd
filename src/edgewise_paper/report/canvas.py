"""Figures as PNG and SVG files."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise.errors import missing_extra
from edgewise.files import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {
    "gnn_explainer": "#d95f02",
    "gradient": "#1b9e77",
    "occlusion": "#7570b3",
    "random": "#999999",
    "full": "#66a61e",
    "positive_gradient": "#e7298a",
    "all": "#333333",
    "to_negative": "#d95f02",
    "to_positive": "#1b9e77",
}
NAMES = {
    "gnn_explainer": "GNNExplainer",
    "gradient": "Grad",
    "occlusion": "Occlusion",
    "random": "Random",
    "full": "Full",
    "positive_gradient": "Positive Grad",
    "all": "all",
    "to_negative": "positive → negative",
    "to_positive": "negative → positive",
}


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure that belongs to no window."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("matplotlib", "plot", "The report's figures") from error
    return Figure(figsize=(width, height), dpi=130, layout="constrained")


def save(figure: "Figure", folder: Path, name: str) -> None:
    """`name.png` and `name.svg`, the same bytes every time."""
    folder.mkdir(parents=True, exist_ok=True)
    about: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None}}
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "edgewise"}):
        for ending, metadata in about.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=ending, metadata=metadata, bbox_inches="tight", pad_inches=0.12)
            content = buffer.getvalue()
            write_whole(folder / f"{name}.{ending}", lambda file, content=content: file.write(content))  # type: ignore[misc]
