"""Explanations for people: pictures of graphs, walks and molecules; in `page/` the page.

`scene.py` decides what a picture shows, `layout.py` where, `appearance.py` how things look; `figure.py` and
`layer_picture.py` draw it.
"""

from edgewise.report.figure import draw
from edgewise.report.layer_picture import draw_walks
from edgewise.report.molecule import MoleculePicture, molecule

__all__ = ["MoleculePicture", "draw", "draw_walks", "molecule"]
