"""Explanations for people: pictures of graphs, walks and molecules; in `page/` the page.

`scene.py` decides what a picture shows, `layout.py` where, `figure.py` and `walk_lanes.py` draw it.
"""

from edgewise.report.figure import draw
from edgewise.report.molecule import MoleculePicture, molecule
from edgewise.report.walk_lanes import draw_walks

__all__ = ["MoleculePicture", "draw", "draw_walks", "molecule"]
