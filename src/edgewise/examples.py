"""Tiny models with answers that can be worked out by hand, for documentation and tests."""

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

from edgewise.score import Score


class _Chain(nn.Module):
    """One sum-layer per gain, without bias: x ↦ gain · Σ neighbours (+ root · x, where there are roots)."""

    def __init__(self, gains: list[float], roots: list[float] | None = None) -> None:
        super().__init__()
        rooted = roots is not None
        self.convs = nn.ModuleList(SAGEConv(1, 1, aggr="sum", bias=False, root_weight=rooted) for _ in gains)
        for conv, gain, root in zip(self.convs, gains, roots or gains, strict=True):
            nn.init.constant_(conv.get_parameter("lin_l.weight"), gain)
            if rooted:
                nn.init.constant_(conv.get_parameter("lin_r.weight"), root)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index)
        return x


def path_model(gains: list[float]) -> tuple[nn.Module, Data]:
    """A model that multiplies by one gain per layer, and the path 0 → 1 → … whose first node has feature 1, its last label 1.

    >>> model, data = path_model([2.0, 3.0])
    >>> model(data.x, data.edge_index).view(-1)                  # only node 2 receives the feature in both layers
    tensor([0., 0., 6.], grad_fn=<ViewBackward0>)
    """
    nodes = len(gains) + 1
    x = torch.zeros(nodes, 1)
    x[0] = 1.0
    labels = (torch.arange(nodes) == nodes - 1).long()
    data = Data(x=x, edge_index=torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)]), y=labels)
    return _Chain(gains), data


def triangle_model() -> tuple[nn.Module, Data]:
    """The worked example of `edgewise.walk`: the edges 0 → 1, 1 → 2 and 0 → 2, features 1, 0, 1, and two linear layers.

    Layer 0 makes h_v = 2·Σ x_u + x_v, which is 1, 2, 3; layer 1 makes z_v = 3·Σ h_u − h_v, so z₂ = 3·(1 + 2) − 3 = 6.
    Four walks to node 2 carry it, (0, 1, 2) the most of all: 3 · 2 · 1 = 6.

    >>> model, data = triangle_model()
    >>> model(data.x, data.edge_index).view(-1).tolist()
    [-1.0, 1.0, 6.0]
    """
    x, edge_index = torch.tensor([[1.0], [0.0], [1.0]]), torch.tensor([[0, 1, 0], [1, 2, 2]])
    data = Data(x=x, edge_index=edge_index, y=torch.tensor([0, 1, 1]))
    return _Chain([2.0, 3.0], roots=[1.0, -1.0]), data


def path_score(gains: list[float]) -> Score:
    """The score of the last node of `path_model`: the product of all gains and of the weights along the path.

    >>> path_score(gains=[2.0, 3.0])(torch.ones(2, 2))
    tensor([6.])
    """
    model, data = path_model(gains)
    return Score(model, data, index=len(gains), target=0, mode="regression")
