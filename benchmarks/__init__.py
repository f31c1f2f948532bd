"""Edgewise beside its peers: `python -m benchmarks`."""
