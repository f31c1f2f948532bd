"""Findings: the studies behind docs/findings/, a command each. `study.py` runs them and keeps what they measured."""
