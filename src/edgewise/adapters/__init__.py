"""Bridges to PyTorch Geometric: our methods in its `Explainer`, its explainers in ours, and `heal` for models it touched."""
