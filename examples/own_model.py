"""Your own model, explained in ten lines."""

import torch
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import edgewise as ew


class Net(torch.nn.Module):
    """Whatever you trained: here two layers with random weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(8, 16), SAGEConv(16, 3)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """A row of logits for each node."""
        return self.second(self.first(x, edge_index).relu(), edge_index)


torch.manual_seed(0)
model, data = Net(), Data(x=torch.randn(50, 8), edge_index=torch.randint(50, (2, 200)))

why = ew.explain(model, data, index=7)
for score, source, receiver, _ in why.top(3, by="magnitude"):
    print(f"{source} → {receiver} {'supports' if score > 0 else 'opposes'} class {why.target}: {score:+.3f}")
print(ew.walks(model, data, index=7, k=3))
