"""Explanation methods: one file an idea, and one table of them all (`registry.py`)."""
