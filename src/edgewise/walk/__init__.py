"""Walks: which source, through whom, in which layer."""
