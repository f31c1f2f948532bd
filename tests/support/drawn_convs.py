"""Convolutions of users' own for drawn models: subclasses of PyG's, and messages by hand inside `propagate`."""

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, MessagePassing, SAGEConv
from torch_geometric.utils import softmax


class OwnGAT(GATConv):
    """Attention that does what its base does."""


class OwnSAGE(SAGEConv):
    """A root and a mean, and a residual of its own."""

    def forward(self, x, edge_index):
        return super().forward(x, edge_index).tanh()


class OwnGCN(GCNConv):
    """The messages of its base, halved."""

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        return 0.5 * x_j * edge_weight.view(-1, 1)


class Gated(MessagePassing):
    """Messages between both ends, times a gate."""

    def __init__(self, inputs: int, outputs: int, aggr: str = "add"):
        super().__init__(aggr=aggr)
        self.lin, self.gate, self.root = (
            nn.Linear(inputs, outputs),
            nn.Linear(2 * inputs, 1),
            nn.Linear(inputs, outputs),
        )

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x) + self.root(x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return self.gate(torch.cat([x_i, x_j], dim=-1)).sigmoid() * self.lin(x_j)


class ByEdge(MessagePassing):
    """Messages that read the attributes of their edge."""

    def __init__(self, inputs: int, outputs: int, edge_dim: int):
        super().__init__(aggr="mean")
        self.lin, self.edge = nn.Linear(inputs, outputs), nn.Linear(edge_dim, outputs)

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        return (self.lin(x_j) + self.edge(edge_attr)).relu()


class Attended(MessagePassing):
    """Attention by hand."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(aggr="add")
        self.lin, self.key = nn.Linear(inputs, outputs), nn.Linear(2 * inputs, 1)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor, index: Tensor, size_i: int) -> Tensor:
        weight = softmax(self.key(torch.cat([x_i, x_j], dim=-1)).tanh(), index, num_nodes=size_i)
        return weight * self.lin(x_j)


class StoppedForSome(SAGEConv):
    """No gradient reaches the layer at nodes whose first feature is positive."""

    def forward(self, x, edge_index):
        out = super().forward(x, edge_index)
        return torch.where(x[:, :1] > 0, out.detach(), out)
