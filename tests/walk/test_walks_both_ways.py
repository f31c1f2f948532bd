"""Walks of models whose messages run along edges and against them: every walk by a product of autograd Jacobians."""

from itertools import pairwise, product

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import DirGNNConv, GATConv, GCNConv, GraphConv, SAGEConv, global_add_pool

import edgewise as ew
from checks import assert_close
from walk_checks import assert_alive, assert_walks, crowded
from walk_oracles import twin


class Net(nn.Module):
    """Layers on what `ways` makes of the edges, a function in between; a graph task pools at the end."""

    def __init__(self, make, ways=lambda edges, layer: edges, depth=2, between=torch.relu):
        super().__init__()
        widths = [4, *[5] * (depth - 1), 3]
        self.layers = nn.ModuleList(make(*pair) for pair in pairwise(widths))
        self.ways, self.between = ways, between

    def calls(self, data):
        def call(layer, state):
            out = self.layers[layer](state, self.ways(data.edge_index, layer))
            return out if layer + 1 == len(self.layers) else self.between(out)

        return [lambda state, layer=layer: call(layer, state) for layer in range(len(self.layers))]

    def forward(self, x, edge_index, batch=None):
        for call in self.calls(Data(edge_index=edge_index)):
            x = call(x)
        return x if batch is None else global_add_pool(x, batch)


def both(edges, layer):
    return torch.cat([edges, edges.flip(0)], dim=1)


MODELS = {
    "dir sage": lambda: Net(lambda a, b: DirGNNConv(SAGEConv(a, b), alpha=0.3), depth=3),
    "dir gcn": lambda: Net(lambda a, b: DirGNNConv(GCNConv(a, b)), between=torch.tanh),
    "dir gat": lambda: Net(lambda a, b: DirGNNConv(GATConv(a, b, heads=2, concat=False))),
    "symmetrised": lambda: Net(GraphConv, both),
    "symmetrised gcn": lambda: Net(GCNConv, both),
    "there and back": lambda: Net(SAGEConv, lambda edges, layer: edges.flip(0) if layer else edges),
    "always back": lambda: Net(SAGEConv, lambda edges, layer: edges.flip(0)),
}


def problem(name, seed=0):
    torch.manual_seed(seed)
    data = crowded(nodes=6, edges=9, seed=seed + 3)
    data = Data(x=torch.randn(6, 4).double(), edge_index=data.edge_index)
    model = MODELS[name]().double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() <= 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model, data


@pytest.mark.parametrize("name", MODELS)
def test_walks_are_products_of_jacobians(name):
    model, data = problem(name)
    target = model(data.x, data.edge_index).argmax(dim=1)
    slow = twin(model.calls(data), lambda rows: rows.gather(1, target.view(-1, 1)).view(-1), data.x)
    assert_walks(model, data, assert_alive(slow.walks()), ks=(7,))


@pytest.mark.parametrize("name", ["dir sage", "symmetrised"])
def test_walks_of_graphs_are_products_of_jacobians(name):
    model, data = problem(name, 1)
    target = int(model(data.x, data.edge_index, torch.zeros(6, dtype=torch.long)).argmax())
    slow = twin(model.calls(data), lambda rows: rows.sum(dim=0)[target].view(1), data.x)
    assert_walks(model, [data, data], slow.walks() * 2, ks=(7,), task="graph")


def bias_free(name):
    model, data = problem(name)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith("bias"):
                parameter.zero_()
    return model, data


@pytest.mark.parametrize("name", ["dir sage", "symmetrised", "there and back"])
def test_walks_through_an_edge_in_either_direction_sum_to_its_gradient(name):
    """Bias-free and piecewise linear: the sum over all walks through a column is its layer gradient."""
    model, data = bias_free(name)
    for level in ("layer", "input"):
        true = ew.explain(model, data, level=level)
        found = ew.explain(model, data, method="lrp", rule="lrp-epsilon", epsilon=0.0, level=level)
        for one, other in zip(found, true, strict=True):
            assert_close(one.scores, other.scores, 1e-10)
            assert bool((other.scores != 0).any())


@pytest.mark.parametrize("name", ["dir sage", "there and back"])
def test_a_step_counts_for_the_columns_that_can_carry_it_in_its_layer(name):
    model, data = problem(name)
    every = ew.walks(model, data, k=10_000, sign="magnitude", search="exhaustive")
    walks = max(every, key=len)
    ways = {"dir sage": [(0, 1), (1, 0)]}.get(name)
    scores = torch.zeros(walks.num_layers, data.edge_index.size(1), dtype=torch.double)
    total = torch.zeros(data.edge_index.size(1), dtype=torch.double)
    for walk in walks:
        once = {}
        for layer, (u, v) in enumerate(pairwise(walk.nodes)):
            orders = ways or [(0, 1) if layer == 0 else (1, 0)]
            taken = {c for a, b in orders for c, e in enumerate(data.edge_index.t().tolist()) if (e[a], e[b]) == (u, v)}
            for column in taken:
                scores[layer, column] += walk.score / len(taken)
                once[column] = max(once.get(column, 0), 1 / len(taken))
        for column, share in once.items():
            total[column] += walk.score * share
    assert_close(walks.edge_scores("layer"), scores, 1e-12)
    assert_close(walks.edge_scores(), total, 1e-12)
    assert bool((total != 0).any())


class Line(nn.Module):
    """Two linear layers of width one."""

    def __init__(self):
        super().__init__()
        inner = SAGEConv(1, 1, aggr="sum", bias=False)
        self.layers = nn.ModuleList(DirGNNConv(inner, alpha=0.25) for _ in range(2))
        for layer in self.layers:
            layer.lin.bias.data.zero_()
        self.double().eval()

    def forward(self, x, edge_index):
        return self.layers[1](self.layers[0](x, edge_index), edge_index)

    def steps(self, layer, columns):
        """(sender, receiver, column, factor) of every step: on a column forwards, backwards, or a stay."""
        layer = self.layers[layer]
        weights = (layer.conv_in.lin_l.weight, layer.conv_out.lin_l.weight, layer.lin.weight)
        there, back, stay = (share * weight.item() for share, weight in zip((0.75, 0.25, 1.0), weights, strict=True))
        found = [(v, v, None, stay) for v in range(3)]
        for column, (u, v) in enumerate(columns):
            found += [(u, v, column, there), (v, u, column, back)]
        return found


def test_goat_counts_an_edge_that_is_walked_there_and_back_once():
    torch.manual_seed(0)
    columns = [(0, 1), (1, 2), (2, 2)]
    data = Data(x=torch.rand(3, 1).double() + 0.5, edge_index=torch.tensor(columns).t())
    model = Line()
    true = torch.zeros(3, dtype=torch.double)
    for (u, v, first, a), (w, z, second, b) in product(model.steps(0, columns), model.steps(1, columns)):
        used = {first, second} - {None} if v == w and z == 2 else set()
        for column in used:
            true[column] += float(data.x[u]) * a * b / (4 + len(used))
    why = ew.explain(model, data, 2, method="goat_walks", mode="regression")
    assert_close(why.scores, true, 1e-12)
