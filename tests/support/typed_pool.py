"""Small typed graphs that are classified as a whole, and a model that pools all their nodes."""

import torch
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import GraphConv, HeteroConv, global_add_pool

BINDS, BOUND, NEAR = ("drug", "binds", "gene"), ("gene", "bound_by", "drug"), ("gene", "near", "gene")
KINDS = [BINDS, BOUND, NEAR]
WIDTHS = {"drug": 3, "gene": 2, "note": 1}


def graph(seed, drugs=4, genes=5, edges=7):
    draw = torch.Generator().manual_seed(seed)
    data = HeteroData()
    for name, count in (("drug", drugs), ("gene", genes), ("note", 0)):
        data[name].x = torch.randn(count, WIDTHS[name], generator=draw, dtype=torch.float64)
    counts = {"drug": drugs, "gene": genes}
    for kind in KINDS:
        ends = [torch.randint(counts[end], (edges,), generator=draw) for end in (kind[0], kind[2])]
        data[kind].edge_index = torch.stack(ends)
    data[NEAR].edge_index[:, 1] = data[NEAR].edge_index[:, 0]  # parallel
    data.y = torch.tensor([seed % 2])
    return data


class Pooled(nn.Module):
    """Two layers by edge type, the sum of all nodes, two classes."""

    def __init__(self):
        super().__init__()
        self.one = HeteroConv({kind: GraphConv((WIDTHS[kind[0]], WIDTHS[kind[2]]), 6) for kind in KINDS})
        self.two = HeteroConv({kind: GraphConv((6, 6), 6) for kind in KINDS})
        self.head = nn.Linear(6, 2)

    def forward(self, x_dict, edge_index_dict, batch_dict, weights=None):
        for layer, convs in enumerate((self.one, self.two)):
            given = {} if weights is None else {"edge_weight_dict": {kind: w[layer] for kind, w in weights.items()}}
            x_dict = {name: x.tanh() for name, x in convs(x_dict, edge_index_dict, **given).items()}
        size = max((int(batch.max()) + 1 for batch in batch_dict.values() if len(batch)), default=1)
        return self.head(sum(global_add_pool(x, batch_dict[name], size) for name, x in x_dict.items()))
