"""Explanations for people: pictures of graphs, walks and molecules."""

from edgewise.report.figure import draw
from edgewise.report.molecules import MoleculePicture, molecule
from edgewise.report.routes import draw_walks

__all__ = ["MoleculePicture", "draw", "draw_walks", "molecule"]
