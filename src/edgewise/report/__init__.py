"""Explanations for people: pictures, later tables and pages."""

from edgewise.report.figure import draw
from edgewise.report.routes import draw_walks

__all__ = ["draw", "draw_walks"]
