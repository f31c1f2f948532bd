"""Molecules of MUTAG: train a classifier, and write a page about three of its predictions.

The data set lies (or PyG downloads it) in $EDGEWISE_DATA, else in the folder data: PyG writes what it has read beside it.
"""

import os

import torch
from torch_geometric.data import Batch
from torch_geometric.datasets import TUDataset
from torch_geometric.nn import GraphConv, global_add_pool

import edgewise as ew


class Classifier(torch.nn.Module):
    """Three layers, a sum over the atoms, two classes; class 1 is mutagenic."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList([GraphConv(7, 32), GraphConv(32, 32), GraphConv(32, 32)])
        self.head = torch.nn.Linear(32, 2)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor | None = None) -> torch.Tensor:
        """A row of logits for each molecule."""
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.head(global_add_pool(x, batch))


molecules = list(TUDataset(os.environ.get("EDGEWISE_DATA", "data"), "MUTAG"))
torch.manual_seed(0)
model, every = Classifier(), Batch.from_data_list(molecules)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(60):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(every.x, every.edge_index, every.batch), every.y)
    loss.backward()
    optimizer.step()

page = ew.write_page(
    "mutag.html", model, molecules, [0, 1, 2], task="graph", class_names=["not mutagenic", "mutagenic"], title="MUTAG"
)
print(f"loss {loss:.3f}; written: {page}")
