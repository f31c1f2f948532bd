"""The reverse pass in numpy for one small neighbourhood, against the one in torch that it stands for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, SAGEConv, SGConv

import edgewise as ew
from checks import assert_close
from edgewise.program.reverse import ReversePass
from edgewise.program.small_reverse import is_small, small_gradients

CONVS = {
    "gcn": lambda width, out: GCNConv(width, out),
    "sage": lambda width, out: SAGEConv(width, out),
    "sum": lambda width, out: SAGEConv(width, out, aggr="sum", root_weight=False),
    "graph": lambda width, out: GraphConv(width, out, bias=False),
    "gin": lambda width, out: GINConv(nn.Identity() if width == out else nn.Linear(width, out)),
    "gat": lambda width, out: GATConv(width, out),
    "sgc": lambda width, out: SGConv(width, out, K=2),
}


class Chain(nn.Module):
    """Two or three layers with something between them."""

    def __init__(self, names, between, *, residual=False):
        super().__init__()
        widths = [5, *[4] * (len(names) - 1), 3]
        self.convs = nn.ModuleList(CONVS[n](widths[i], widths[i + 1]) for i, n in enumerate(names))
        self.between, self.residual = between, residual

    def forward(self, x, edge_index):
        for number, conv in enumerate(self.convs):
            h = conv(x, edge_index)
            x = h if number == len(self.convs) - 1 else self.between(h) + (x if self.residual and number else 0)
        return x


def engine_of(model, data, node):
    posed = ew.Question(model.double().eval(), data, node)._posed
    return posed.engine(torch.tensor([0])), posed.target


def both(engine, target):
    known = (engine.program, engine.levels, engine.prepared, engine._known, engine._slopes)
    with torch.no_grad():
        return small_gradients(*known, target.slope), ReversePass(*known).run(target.slope)


def random_data(seed, nodes=8, edges=20):
    torch.manual_seed(seed)
    return Data(x=torch.randn(nodes, 5, dtype=torch.float64), edge_index=torch.randint(0, nodes, (2, edges)))


@given(
    st.lists(st.sampled_from(["gcn", "sage", "sum", "graph", "gin"]), min_size=1, max_size=3),
    st.sampled_from([nn.ReLU(), nn.Tanh(), nn.LeakyReLU(0.2), nn.Identity()]),
    st.integers(0, 10**6),
    st.integers(0, 7),
)
def test_both_passes_give_the_same_gradients_of_edges_and_own_terms(names, between, seed, node):
    data = random_data(seed)
    engine, target = engine_of(Chain(names, between), data, node)
    if is_small(engine.program, engine.levels, engine._known, engine._slopes):
        for small, usual in zip(*both(engine, target), strict=True):
            assert_close(small, usual, 1e-9)
    else:  # a network inside a GIN is no element-wise function
        assert "gin" in names


def test_chains_of_affine_layers_take_it():
    for names in (["gcn", "gcn"], ["sage", "graph", "sum"]):
        engine, _ = engine_of(Chain(names, nn.ReLU()), random_data(0), 1)
        assert is_small(engine.program, engine.levels, engine._known, engine._slopes), names


@pytest.mark.parametrize(
    ("names", "residual"),
    [(["gat", "gcn"], False), (["gcn", "gcn", "gcn"], True)],
    ids=["attention", "a value read twice"],
)
def test_other_programs_do_not(names, residual):
    engine, _ = engine_of(Chain(names, nn.Tanh(), residual=residual), random_data(0), 1)
    assert not is_small(engine.program, engine.levels, engine._known, engine._slopes)


def test_large_neighbourhoods_do_not():
    engine, _ = engine_of(Chain(["gcn"] * 4, nn.ReLU()), random_data(0, nodes=5000, edges=100_000), 1)
    assert not is_small(engine.program, engine.levels, engine._known, engine._slopes)
