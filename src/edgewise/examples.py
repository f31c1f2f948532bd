"""Tiny models with answers that can be worked out by hand, for documentation and tests."""

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

from edgewise.score import Score


class _Chain(nn.Module):
    """One sum-layer per gain, without bias and root: x ↦ gain · Σ neighbours."""

    def __init__(self, gains: list[float]) -> None:
        super().__init__()
        self.convs = nn.ModuleList(SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False) for _ in gains)
        for conv, gain in zip(self.convs, gains, strict=True):
            nn.init.constant_(conv.get_parameter("lin_l.weight"), gain)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index)
        return x


def path_model(gains: list[float]) -> tuple[nn.Module, Data]:
    """A model that multiplies by a gain a layer, and the path 0 → 1 → … whose first node has feature 1."""
    nodes = len(gains) + 1
    x = torch.zeros(nodes, 1)
    x[0] = 1.0
    data = Data(x=x, edge_index=torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)]))
    return _Chain(gains), data


def path_score(gains: list[float]) -> Score:
    """The score of the last node of the path 0 → 1 → … , whose first node has feature 1: the product of gains and weights.

    >>> path_score(gains=[2.0, 3.0])(torch.ones(2, 2))
    tensor([6.])
    """
    model, data = path_model(gains)
    return Score(model, data, index=len(gains), target=0, mode="regression")
