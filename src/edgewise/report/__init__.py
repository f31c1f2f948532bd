"""Explanations for people: pictures of graphs, walks and molecules."""

from edgewise.report.figure import draw
from edgewise.report.molecule import MoleculePicture, molecule
from edgewise.report.walk_lanes import draw_walks

__all__ = ["MoleculePicture", "draw", "draw_walks", "molecule"]
