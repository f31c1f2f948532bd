"""Small typed graphs and models of them, and every walk of a model by a product of autograd Jacobians."""

import pytest
import torch
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import GATConv, GCNConv, GraphConv, HeteroConv, SAGEConv

import edgewise as ew

A, B = "a", "b"
WIDTHS, COUNTS = {A: 2, B: 3}, {A: 4, B: 3}
AB, BA, AA, AGAIN = KINDS = [(A, "to", B), (B, "to", A), (A, "to", A), (A, "again", B)]


def typed_data(seed=0):
    generator = torch.Generator().manual_seed(seed)
    data = HeteroData()
    for name in WIDTHS:
        data[name].x = torch.randn(COUNTS[name], WIDTHS[name], generator=generator, dtype=torch.double)
    for kind in KINDS:
        ends = [torch.randint(0, COUNTS[end], (5,), generator=generator) for end in (kind[0], kind[2])]
        data[kind].edge_index = torch.stack(ends)
    data[AGAIN].edge_index[:, 0] = data[AB].edge_index[:, 0]  # parallel columns of two types
    data[AB].edge_index[:, 1] = data[AB].edge_index[:, 2]  # and of one
    data[AA].edge_index[:, 0] = 1  # a loop
    return data


class Typed(nn.Module):
    """Layers by edge type with a function in between; `stage` is one of them."""

    def __init__(self, conv, depth, aggr, hidden=3, between=torch.relu):
        super().__init__()
        self.between = between
        widths = [WIDTHS, *[dict.fromkeys(WIDTHS, hidden)] * (depth - 1)]
        self.layers = nn.ModuleList(
            HeteroConv({k: conv(k, (w[k[0]], w[k[2]]), hidden) for k in KINDS}, aggr=aggr) for w in widths
        )

    def stage(self, number, state, edges):
        out = self.layers[number](state, edges)
        return out if number + 1 == len(self.layers) else {name: self.between(x) for name, x in out.items()}

    def forward(self, x_dict, edge_index_dict):
        for number in range(len(self.layers)):
            x_dict = self.stage(number, x_dict, edge_index_dict)
        return x_dict


def known(kind, widths, out):
    if kind == AB:
        return SAGEConv(widths, out)
    if kind == BA:
        return GraphConv(widths, out, aggr="mean")
    return GCNConv(widths[0], out) if kind == AA else SAGEConv(widths, out, aggr="sum", root_weight=False)


def attention(kind, widths, out):
    return GATConv(widths, out, heads=2, concat=False, add_self_loops=False) if kind == AB else SAGEConv(widths, out)


TYPED = {
    "sage": lambda: Typed(lambda kind, widths, out: SAGEConv(widths, out), 3, "sum"),
    "several convs, mean": lambda: Typed(known, 3, "mean", between=torch.tanh),
    "one layer, cat": lambda: Typed(known, 1, "cat"),
    "attention": lambda: Typed(attention, 2, "sum"),
}


def prepared(model):
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def typed_blocks(model, data):
    """Per layer: ∂(state of v) / ∂(state of u) as {(u, v): matrix} with typed nodes, and the features."""
    state, blocks = data.x_dict, []
    for number in range(len(model.layers)):
        names = list(state)

        def stage(*rows, number=number, names=names):
            out = model.stage(number, dict(zip(names, rows, strict=True)), data.edge_index_dict)
            return tuple(out[name] for name in WIDTHS)

        found = torch.autograd.functional.jacobian(stage, tuple(state[name] for name in names))
        blocks.append({
            ((source, u), (name, v)): found[i][j][v, :, u]
            for i, name in enumerate(WIDTHS) for j, source in enumerate(names)
            for v in range(COUNTS[name]) for u in range(COUNTS[source])
        })  # fmt: skip
        with torch.no_grad():
            state = model.stage(number, state, data.edge_index_dict)
    return blocks, state


def all_walks(blocks, start, end, target):
    """Every walk to a node with a score that is not 0, by its nodes."""
    width = next(m for (_, v), m in blocks[-1].items() if v == end).size(0)
    return walks_to(blocks, start, {end: torch.eye(width, dtype=torch.double)[target]})


def walks_to(blocks, start, ends):
    """The same to several nodes, with the gradient of the explained number at each."""
    ways = {(end,): gradient for end, gradient in ends.items()}
    for block in reversed(blocks):
        ways = {
            (u, *walk): gradient @ matrix
            for walk, gradient in ways.items() for (u, v), matrix in block.items() if v == walk[0] and bool(matrix.any())
        }  # fmt: skip
    found = {walk: (gradient @ start(walk[0])).item() for walk, gradient in ways.items()}
    return {walk: score for walk, score in found.items() if abs(score) > 1e-12}


def check_walks(model, data, index, true, **options):
    """All of them, the best ones by the exact search, and given ones."""
    every = ew.walks(model, data, index, k=10**4, search="exhaustive", sign="magnitude", **options)
    found = {walk.nodes: walk.score for walk in every}
    assert found.keys() == true.keys()
    assert max(abs(found[walk] - score) for walk, score in true.items()) < 1e-10
    for sign, order in (("positive", 1), ("negative", -1)):
        best = sorted((order * score for score in true.values() if order * score > 0), reverse=True)[:6]
        ours = ew.walks(model, data, index, k=6, sign=sign, **options)
        assert ours.exact
        assert [order * walk.score for walk in ours] == pytest.approx(best, abs=1e-10)
        assert all(true[walk.nodes] == pytest.approx(walk.score, abs=1e-10) for walk in ours)
    for search in ("dag", "amp_ave"):
        for walk in ew.walks(model, data, index, k=3, search=search, **options):
            assert true[walk.nodes] == pytest.approx(walk.score, abs=1e-10)
    some = list(true)[:5]
    given = ew.walk_relevance(model, data, index, walks=some, **options)
    assert given.tolist() == pytest.approx([true[walk] for walk in some], abs=1e-10)
