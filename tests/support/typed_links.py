"""Models of links of typed graphs, and an oracle: the score of one pair by the user's own model on the user's own graph."""

import copy

import torch
from torch import nn
from torch_geometric.nn import HANConv, HGTConv, SAGEConv

from typed_zoo import CLASSES, HIDDEN, KINDS, RATES, WIDTHS, Stacked, mixed, ones, typed_graph, weighted_value

PAIRS = [(0, 1), (3, 2), (8, 6), (7, 0), (0, 1)]
"""Pairs of a user and a movie: `pairs_of` puts links in front of them; (8, 6) are two isolated nodes."""


class Dot(nn.Module):
    """A dot product of rows of two types."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def encode(self, x_dict, edge_index_dict):
        return self.inner(x_dict, edge_index_dict)

    def decode(self, z_dict, edge_label_index):
        return (z_dict["user"][edge_label_index[0]] * z_dict["movie"][edge_label_index[1]]).sum(dim=-1)


class Perceptron(Dot):
    """An MLP of both ends, in one forward."""

    def __init__(self, inner, width=CLASSES):
        super().__init__(inner)
        self.score = nn.Sequential(nn.Linear(2 * width, 5), nn.ReLU(), nn.Linear(5, 1))

    def forward(self, x_dict, edge_index_dict, edge_label_index):
        z = self.encode(x_dict, edge_index_dict)
        return self.score(torch.cat([z["user"][edge_label_index[0]], z["movie"][edge_label_index[1]]], dim=-1))


class DistMult(nn.Module):
    """A weighted product; its forward takes the data, with the pairs in it."""

    def __init__(self, inner, width=CLASSES):
        super().__init__()
        self.inner, self.relation = inner, nn.Parameter(torch.ones(width))

    def forward(self, data):
        z, pairs = self.inner(data.x_dict, data.edge_index_dict), data[RATES].edge_label_index
        return (z["user"][pairs[0]] * self.relation * z["movie"][pairs[1]]).sum(dim=-1)


class Grouped(nn.Module):
    """HGT or HAN with rows of every type."""

    def __init__(self, conv):
        super().__init__()
        meta = (list(WIDTHS), KINDS)
        self.one, self.two = conv(WIDTHS, HIDDEN, meta, heads=2), conv(HIDDEN, HIDDEN, meta, heads=2)

    def forward(self, x_dict, edge_index_dict):
        return self.two({name: x.relu() for name, x in self.one(x_dict, edge_index_dict).items()}, edge_index_dict)


MODELS = {
    "sage, dot": lambda: Dot(Stacked(lambda kind, widths: SAGEConv(widths, HIDDEN))),
    "sage max, mlp": lambda: Perceptron(Stacked(lambda kind, widths: SAGEConv(widths, HIDDEN, aggr="max"))),
    "mixed, distmult": lambda: DistMult(Stacked(mixed)),
    "hgt, mlp": lambda: Perceptron(Grouped(HGTConv), HIDDEN),
    "han, dot": lambda: Dot(Grouped(HANConv)),
}
NOT_LOCAL = {"han, dot"}


def typed_linker(name, seed=0):
    """A model in float64 with random biases, and its graph."""
    torch.manual_seed(seed)
    model, data = MODELS[name]().double().eval(), typed_graph(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() <= 1 or bool((parameter == 0).all()):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model, data


def pairs_of(data):
    """Some links, one of them with a parallel column, and pairs without a link."""
    return [*map(tuple, data[RATES].edge_index[:, [0, 4, 9]].t().tolist()), *PAIRS]


class _Scored(nn.Module):
    """A model as a function of the graph alone, for one pair."""

    def __init__(self, model, pair):
        super().__init__()
        self.model, self.pairs = model, torch.tensor(pair).view(2, 1)

    def forward(self, x_dict, edge_index_dict):
        if isinstance(self.model, Perceptron):
            return self.model(x_dict, edge_index_dict, self.pairs).view(1, 1)
        z = self.model.inner(x_dict, edge_index_dict)
        relation = self.model.relation if isinstance(self.model, DistMult) else 1.0
        return (z["user"][self.pairs[0]] * relation * z["movie"][self.pairs[1]]).sum().view(1, 1)


class SlowTypedPair:
    """The score of one pair as a function of ω, `weights[kind]` `[2, E_kind]` in the columns of the user's graph."""

    def __init__(self, model, data, pair, *, without_itself=False):
        u, v = pair
        self.scored, self.data, self.kept = _Scored(model, pair), copy.copy(data), {}
        for kind in KINDS:
            source, receiver = data[kind].edge_index
            gone = (source == u) & (receiver == v) & (kind == RATES)
            back = (source == v) & (receiver == u) & ((kind[0], kind[2]) == ("movie", "user"))
            self.kept[kind] = ~(gone | back) if without_itself else torch.ones_like(gone)
            self.data[kind].edge_index = data[kind].edge_index[:, self.kept[kind]]

    def __call__(self, weights):
        weights = {kind: weight[:, self.kept[kind]] for kind, weight in weights.items()}
        return weighted_value(self.scored, self.data, weights, "", 0, 0)

    def gradient(self):
        """The value, and ∂/∂ω by edge type."""
        weights = {kind: weight.requires_grad_() for kind, weight in ones().items()}
        value = self(weights)
        found = torch.autograd.grad(value, list(weights.values()), allow_unused=True)
        return float(value.detach()), {
            kind: torch.zeros_like(weight) if gradient is None else gradient
            for (kind, weight), gradient in zip(weights.items(), found, strict=True)
        }
