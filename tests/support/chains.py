"""Chains of different layers, and graphs for them."""

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, SAGEConv, SGConv

CONVS = {
    "gcn": lambda width, out: GCNConv(width, out),
    "sage": lambda width, out: SAGEConv(width, out),
    "sum": lambda width, out: SAGEConv(width, out, aggr="sum", root_weight=False),
    "graph": lambda width, out: GraphConv(width, out, bias=False),
    "gin": lambda width, out: GINConv(nn.Identity() if width == out else nn.Linear(width, out)),
    "gat": lambda width, out: GATConv(width, out),
    "sgc": lambda width, out: SGConv(width, out, K=2),
}


class MixedChain(nn.Module):
    """Two or three layers with something between them."""

    def __init__(self, names, between, *, residual=False):
        super().__init__()
        widths = [5, *[4] * (len(names) - 1), 3]
        self.convs = nn.ModuleList(CONVS[n](widths[i], widths[i + 1]) for i, n in enumerate(names))
        self.between, self.residual = between, residual

    def forward(self, x, edge_index):
        for number, conv in enumerate(self.convs):
            h = conv(x, edge_index)
            x = h if number == len(self.convs) - 1 else self.between(h) + (x if self.residual and number else 0)
        return x


def chain_data(seed, nodes=8, edges=20):
    torch.manual_seed(seed)
    return Data(x=torch.randn(nodes, 5, dtype=torch.float64), edge_index=torch.randint(0, nodes, (2, edges)))
