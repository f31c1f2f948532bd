"""Random networks of the kind that the paper's statements are about."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import edgewise as ew
from edgewise.datasets.seeding import seeded


class Network(nn.Module):
    """Sum-aggregated layers as in the paper, with one logit."""

    def __init__(self, widths: list[int], *, relu: bool, bias: bool = False, root: bool = False) -> None:
        super().__init__()
        pairs = pairwise(widths)
        self.convs = nn.ModuleList(SAGEConv(*pair, aggr="sum", bias=bias, root_weight=root) for pair in pairs)
        self.act = nn.ReLU() if relu else nn.Identity()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """`[nodes, 1]`."""
        for conv in list(self.convs)[:-1]:
            x = self.act(conv(x, edge_index))
        found: Tensor = self.convs[-1](x, edge_index)
        return found

    def weights(self) -> list[Tensor]:
        """W of each layer."""
        return [conv.get_parameter("lin_l.weight").detach() for conv in self.convs]


def draw(seed: int, layers: int, width: int = 4, nodes: int = 8, **settings: Any) -> tuple[Network, Data]:
    """A random network and a random graph without loops, in float64; every node has a sender."""
    with seeded(seed):
        model = Network([3, *[width] * (layers - 1), 1], relu=settings.pop("relu", False), **settings).double()
        dense = torch.rand(nodes, nodes) < 0.35
        dense |= torch.eye(nodes, dtype=torch.bool).roll(1, 0)
        dense.fill_diagonal_(False)
        data = Data(x=torch.randn(nodes, 3, dtype=torch.double), edge_index=dense.nonzero().t().contiguous())
    return model.eval(), data


def explain(model: Network, data: Data, method: str, level: str = "layer") -> Tensor:
    """Scores of class 1, of all nodes: `[N, E]` or `[N, L, E]`, with self scores behind."""
    found = ew.explain(model, data, method=method, level=level, target=1)
    assert isinstance(found, ew.ExplanationSet)
    return torch.stack(
        [torch.cat([w.scores, w.scores[..., :0] if w.self_scores is None else w.self_scores], -1) for w in found]
    )


@torch.no_grad()
def logits(model: Network, data: Data, edge_index: Tensor | None = None) -> Tensor:
    """`[N]`."""
    return model(data.x, data.edge_index if edge_index is None else edge_index).view(-1)
