"""Graphs: validation, computation graphs, and copies of neighbourhoods side by side.

Start with `computation_graph.py`: which edges can reach which target. `copies.py` builds on it; `inputs.py` checks what users
pass; `stores.py` is the one place that reads PyG's private storage.
"""
