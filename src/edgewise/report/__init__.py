"""Explanations for people: pictures, later tables and pages."""

from edgewise.report.figure import draw

__all__ = ["draw"]
