"""Array names, each with its axis order. Layer 0 reads the features, layer -1 writes the output."""

from typing import TypeAlias

from torch import Tensor

LayerWeight: TypeAlias = Tensor
"""[layer, edge copy]: ω, all ones is the model."""
SelfWeight: TypeAlias = Tensor
"""[layer, node copy]: s, all ones is the model."""
Slots: TypeAlias = Tensor
"""[message]: column of the edge that owns a message, or number of edges + node for a self edge."""
