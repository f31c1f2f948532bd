"""Searches for the most relevant walks; start with `exact.py`."""
