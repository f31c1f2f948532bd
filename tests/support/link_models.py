"""Models of links, graphs for them, and a slow twin: the score of one pair on the whole graph as a function of ω and s."""

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

from oracles import Twin
from zoo import mlp, randomise

FEATURES, WIDTH = 3, 4
CONVS = {
    "gcn": GCNConv,
    "sage": SAGEConv,
    "gat": GATConv,
    "gin": lambda inputs, outputs: GINConv(mlp(inputs, outputs), train_eps=True),
}


class Encoder(nn.Module):
    """Two layers with a ReLU between them."""

    def __init__(self, conv):
        super().__init__()
        self.first, self.second = CONVS[conv](FEATURES, WIDTH), CONVS[conv](WIDTH, WIDTH)

    def encode(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Dot(Encoder):
    def decode(self, z, edge_label_index):
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)


class Perceptron(Encoder):
    """An MLP of both ends, in one forward."""

    def __init__(self, conv):
        super().__init__(conv)
        self.score = mlp(2 * WIDTH, 1)

    def forward(self, x, edge_index, edge_label_index):
        z = self.encode(x, edge_index)
        return self.score(torch.cat([z[edge_label_index[0]], z[edge_label_index[1]]], dim=-1))


class DistMult(Encoder):
    """A weighted dot product, which ends with a sigmoid."""

    def __init__(self, conv):
        super().__init__(conv)
        self.relation = nn.Parameter(torch.ones(WIDTH))

    def decode(self, z, edge_label_index):
        return (z[edge_label_index[0]] * self.relation * z[edge_label_index[1]]).sum(dim=-1).sigmoid()


class Jumping(Dot):
    """The decoder reads both layers: it cannot be cut behind the last one."""

    def encode(self, x, edge_index):
        first = self.first(x, edge_index).relu()
        return torch.cat([first, self.second(first, edge_index)], dim=-1)


class Centred(Dot):
    """Not local: the mean over all nodes is subtracted."""

    def encode(self, x, edge_index):
        z = super().encode(x, edge_index)
        return z - z.mean(dim=0, keepdim=True)


class Marked(Perceptron):
    """The encoder sees which pair is asked about (a labelling trick), so that pairs cannot share a pass."""

    def forward(self, x, edge_index, edge_label_index):
        mark = torch.zeros(len(x), 1, dtype=x.dtype).index_fill(0, edge_label_index.reshape(-1), 0.5)
        return super().forward(x + mark, edge_index, edge_label_index)


MODELS = {
    "gcn, dot": lambda: Dot("gcn"),
    "gat, dot": lambda: Dot("gat"),
    "sage, mlp": lambda: Perceptron("sage"),
    "gin, mlp": lambda: Perceptron("gin"),
    "gcn, distmult": lambda: DistMult("gcn"),
    "sage, jumping": lambda: Jumping("sage"),
}
PAIRS = [(0, 1), (1, 0), (4, 4), (2, 6), (8, 9), (9, 3), (0, 1)]
"""A link with parallel columns, its reverse, a self pair, no link, two isolated nodes, two components, and one twice."""


def make_model(name, seed=0):
    return randomise(MODELS[name](), seed)


def link_graph(seed=0):
    """Ten nodes, of which 8 and 9 are isolated; parallel columns 0 → 1, both ways, and a loop on 4."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, 8, (2, 14), generator=generator)
    drawn = drawn[:, drawn[0] != drawn[1]]
    given = torch.tensor([[0, 1, 0, 4, 2, 1], [1, 0, 1, 4, 1, 5]])
    x = torch.randn(10, FEATURES, generator=generator, dtype=torch.float64)
    return Data(x=x, edge_index=torch.cat([given, drawn], dim=1))


def logits(model, data, pairs):
    """Scores of pairs `[2, T]`, before a sigmoid if there is one."""
    if isinstance(model, DistMult):
        z = model.encode(data.x, data.edge_index)
        return (z[pairs[0]] * model.relation * z[pairs[1]]).sum(dim=-1)
    if isinstance(model, Perceptron):
        return model(data.x, data.edge_index, pairs).view(-1)
    return model.decode(model.encode(data.x, data.edge_index), pairs)


class SlowPair:
    """The score of one pair as a function of ω `[L, E]` and s `[L, N]`, in the columns of the whole graph."""

    def __init__(self, model, data, pair, *, without_itself=False):
        u, v = pair
        source, receiver = data.edge_index
        itself = ((source == u) & (receiver == v)) | ((source == v) & (receiver == u))
        self.kept = ~itself if without_itself else torch.ones_like(itself)
        graph = Data(x=data.x, edge_index=data.edge_index[:, self.kept])
        self.twin = Twin(model, graph, lambda own, given: logits(own, given, torch.tensor([[u], [v]])))
        self.sizes = (self.twin.layers, data.edge_index.size(1)), (self.twin.layers, data.num_nodes)

    def ones(self):
        return tuple(torch.ones(size, dtype=torch.float64) for size in self.sizes)

    def __call__(self, weight, own=None):
        return self.twin(weight[:, self.kept], own).view(())
