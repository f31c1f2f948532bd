"""Array names, each with its axis order. Layer 0 reads the features, layer -1 writes the output.

An edge copy belongs to one target: a column of the graph appears once for every target that it can reach (`graph/copies.py`).
"""

from typing import TypeAlias

from torch import Tensor

LayerWeight: TypeAlias = Tensor
"""[layer, edge copy]: ω, all ones is the model."""
SelfWeight: TypeAlias = Tensor
"""[layer, node copy]: s, the weight of a node's own term (self-loop, root weight, residual); all ones is the model."""
Slots: TypeAlias = Tensor
"""[message]: column of the edge that owns a message, or number of edges + node for a self edge.

On the path 0 → 1 → 2 a layer that adds self-loops sends five messages, with the slots (0, 1, 2, 3, 4): the two edges, then
2 + node.
"""
