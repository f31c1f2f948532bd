"""Random piecewise linear models, small enough for slow twins and random enough to have rectifiers that switch."""

import torch
from torch import nn
from torch_geometric.nn import GCN, GCNConv, GINConv, GraphConv, GraphSAGE, SAGEConv, SGConv

import zoo
from zoo import CLASSES, FEATURES, WIDTH


def _network(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, outputs))


def _chain(make_conv, calls, act=torch.relu, **options):
    return lambda: zoo.chain(make_conv, calls, act=act, **options)


def _leaky(x):
    return nn.functional.leaky_relu(x, 0.2)


class Pair(nn.Module):
    """Numbers added to, and maps between, the layers: x + 1, a matrix product, a difference of two values."""

    def __init__(self):
        super().__init__()
        self.first, self.second = SAGEConv(FEATURES, WIDTH), GraphConv(WIDTH, WIDTH)
        self.head = nn.Parameter(torch.empty(WIDTH, CLASSES))

    def forward(self, x, edge_index):
        low = torch.relu(self.first(x, edge_index))
        high = torch.relu(1 + self.second(low, edge_index))
        return (high - low) @ self.head


MODELS = {
    "gcn": _chain(GCNConv, 3),
    "gcn_deep": _chain(GCNConv, 4),
    "leaky": _chain(lambda a, b: SAGEConv(a, b, aggr="mean"), 3, act=_leaky),
    "sage_sum": _chain(lambda a, b: SAGEConv(a, b, aggr="sum", root_weight=False), 2),
    "graph_conv": _chain(GraphConv, 3),
    "gin": _chain(lambda a, b: GINConv(_network(a, b), train_eps=True), 2),
    "sgc": lambda: SGConv(FEATURES, CLASSES, K=3),
    "batch_norm": _chain(GCNConv, 3, norms=[nn.BatchNorm1d(WIDTH), nn.BatchNorm1d(WIDTH)]),
    "jumping": lambda: GCN(FEATURES, WIDTH, 3, CLASSES, jk="cat", act="relu"),
    "residual": lambda: zoo.Residual(lambda: GCNConv(WIDTH, WIDTH), linear=True, after=False, act=torch.relu),
    "basic": lambda: GraphSAGE(FEATURES, WIDTH, 3, CLASSES, dropout=0.5),
    "pair": Pair,
    "binary": lambda: zoo.Chain(GCNConv(FEATURES, WIDTH), GCNConv(WIDTH, 1), act=torch.relu),
}


def build(name: str, seed: int = 0) -> nn.Module:
    """Float64, eval mode, generic weights."""
    with torch.random.fork_rng():
        return zoo.randomise(MODELS[name](), seed)


def loop_model(weight, root):
    """Two sum layers on one node with a loop: z = (W₂ω + R₂)(W₁ω + R₁) x, whose derivative crosses 0."""
    model = zoo.Chain(*[SAGEConv(1, 1, aggr="sum", bias=False) for _ in range(2)], act=lambda x: x).double()
    for conv, w, r in zip(model.convs, weight, root, strict=True):
        conv.lin_l.weight.data.fill_(w)
        conv.lin_r.weight.data.fill_(r)
    return model
