"""Graphs: validation, computation graphs, and copies of neighbourhoods side by side."""
