"""GINEConv: messages relu(x_u + e), so edge features count; plus (1 + ε) times the node, then a small network."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GINEConv

from edgewise.model.data_flow import Call
from edgewise.program.hop import Hop
from edgewise.program.layers.affine_convs import inner_network
from edgewise.program.layers.base import Layer


@dataclass(frozen=True, eq=False)
class EdgeReluLayer(Layer):
    """Σ ω relu(x_u + e) + s (1 + ε) x.

    On the path 0 → 1 → 2 with x = (1, 10, 100), edge features (−3, 5) and ε = 0: node 1 receives relu(1 − 3) = 0 and has 10,
    node 2 receives relu(10 + 5) = 15 and has 115.
    """

    knows_messages = True

    edge_features: Tensor
    """`[E, in]`: through the layer's own matrix already, so that they can be added to x."""
    root: Tensor
    """1 + ε."""

    @property
    def numbers_on_edges(self) -> int:
        """Messages, weighted messages and their gradients."""
        return 6 * self.edge_features.size(1)

    def known_messages(self, table: Any, hop: Hop) -> "EdgeReluMessages":
        """relu(x_u + e), and (1 + ε) x."""
        return EdgeReluMessages(self, table)

    def forward(self, table: Any, hop: Hop, weight: Tensor, own: Tensor | None) -> Tensor:
        """Messages one by one, `[edges, in]`: the ReLU is on the edge, so sums cannot be taken first."""
        messages = (table.index_select(0, hop.tail) + self.edge_features.index_select(0, hop.edge_id)).relu()
        received = torch.zeros(hop.num_heads, messages.size(1), dtype=messages.dtype, device=messages.device)
        received = received.index_add(0, hop.head, messages * weight.view(-1, 1))
        rows = hop.own_rows(table) * self.root
        return received + (rows if own is None else rows * own.view(-1, 1))


@dataclass(frozen=True, eq=False)
class EdgeReluMessages:
    """The messages of such a layer at ω = 1 (`known_messages.py`), from what nodes have, `[N, in]`."""

    layer: EdgeReluLayer
    table: Tensor

    def of_edges(self, column: Tensor, sender: Tensor, receiver: Tensor) -> Tensor:
        """What some edges bring, `[n, in]`."""
        return (self.table.index_select(0, sender) + self.layer.edge_features.index_select(0, column)).relu()

    def of_nodes(self, node: Tensor) -> Tensor:
        """The own terms of some nodes, `[n, in]`."""
        return self.table.index_select(0, node) * self.layer.root


def lower_gine(conv: GINEConv, calls: list[Call], data: Data) -> list[Any]:
    """The sum over edges, then the network inside; edge features go through their matrix once, and are put in column order."""
    network = inner_network(conv, calls[0], data)
    features = calls[0].arguments["edge_attr"]
    with torch.no_grad():
        features = features if conv.lin is None else conv.lin(features)
    by_column = features.new_zeros(data.edge_index.size(1), features.size(1))
    features = by_column.index_copy_(0, calls[0].slots, features)
    return [EdgeReluLayer(features, (1 + conv.eps).detach()), network]
