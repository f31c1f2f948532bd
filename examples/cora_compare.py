"""Cora: which methods say the same about a trained GCN?

The data set lies (or PyG downloads it) in $EDGEWISE_DATA, else in the folder data: PyG writes what it has read beside it.
"""

import os

import torch
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import GCN

import edgewise as ew

data = Planetoid(os.environ.get("EDGEWISE_DATA", "data"), "Cora")[0]
torch.manual_seed(0)
model = GCN(data.num_features, 16, num_layers=2, out_channels=7, dropout=0.5)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for _ in range(40):
    optimizer.zero_grad()
    output = model(data.x, data.edge_index)
    torch.nn.functional.cross_entropy(output[data.train_mask], data.y[data.train_mask]).backward()
    optimizer.step()

some = data.test_mask.nonzero().view(-1)[:10]
found = ew.compare(model, data, some, methods=["gradient", "positive_gradient", "occlusion", "gnn_explainer"])
print(found.table("cosine", "layer"))
print(f"gradient and occlusion: {found.pair('gradient', 'occlusion', level='layer')}")
