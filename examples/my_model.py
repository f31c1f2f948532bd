"""A model of your own, its trained weights and its graph, ready for the command line.

Run this file once: it trains for a second and writes weights.pt and graph.npz. Then one command makes the page:

    edgewise explain --model my_model:Net --weights weights.pt --data graph.npz --index test --page why.html
"""

import numpy as np
import torch
from torch_geometric.nn import GCNConv


class Net(torch.nn.Module):
    """Two layers of graph convolution."""

    def __init__(self, features: int = 4, hidden: int = 16, classes: int = 2) -> None:
        super().__init__()
        self.first, self.second = GCNConv(features, hidden), GCNConv(hidden, classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """A row of logits for each node."""
        return self.second(self.first(x, edge_index).relu(), edge_index)


def main() -> None:
    torch.manual_seed(0)
    nodes, edges = 60, 240
    x, edge_index = torch.randn(nodes, 4), torch.randint(nodes, (2, edges))
    received = torch.zeros(nodes).index_add_(0, edge_index[1], x[edge_index[0], 0])
    y = (received > 0).long()  # the class of a node is what its neighbours say
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(200):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x, edge_index)[:50], y[:50])
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), "weights.pt")
    test = np.arange(nodes) >= 50
    np.savez("graph.npz", x=x.numpy(), edge_index=edge_index.numpy(), y=y.numpy(), test_mask=test)
    print(f"loss {loss:.3f}; written: weights.pt, graph.npz")


if __name__ == "__main__":
    main()
