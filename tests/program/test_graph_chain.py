"""Chains of graph tasks in compiled loops, against the passes over all graphs side by side that they stand for."""

import importlib.util
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GINConv,
    GraphConv,
    SAGEConv,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)

import edgewise as ew
from checks import assert_same_scores
from edgewise.program import graph_chain

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="numba is not installed (extra `fast`)"
)
CONVS = {
    "gcn": lambda a, b: GCNConv(a, b),
    "sage": lambda a, b: SAGEConv(a, b),
    "graph": lambda a, b: GraphConv(a, b, bias=False),
    "gin": lambda a, b: GINConv(nn.Sequential(nn.Linear(a, 5), nn.LeakyReLU(0.2), nn.Linear(5, b)), eps=0.5),
    "gat": lambda a, b: GATConv(a, b),
}


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """However little the work is; and in several blocks."""
    monkeypatch.setattr(graph_chain, "_WORK", 0)
    monkeypatch.setattr(graph_chain, "_NUMBERS", 20)
    monkeypatch.setattr("edgewise.program.kernels._WORTH_IT", 0)


class Classifier(nn.Module):
    def __init__(self, names, pool=global_mean_pool, *, act=torch.relu, last=True, columns=2):
        super().__init__()
        widths = [3, *range(4, 4 + len(names))]
        self.convs = nn.ModuleList(CONVS[name](*pair) for name, pair in zip(names, pairwise(widths), strict=True))
        self.pool, self.act, self.last = pool, act, last
        self.head = nn.Sequential(nn.Linear(widths[-1], 9), nn.Tanh(), nn.Linear(9, columns))

    def forward(self, x, edge_index, batch):
        for place, conv in enumerate(self.convs):
            x = conv(x, edge_index)
            x = self.act(x) if self.last or place < len(self.convs) - 1 else x
        return self.head(self.pool(x, batch))


def graphs(seed, count=4):
    """Some have loops, double edges, nodes without edges; the second one has no edge at all."""
    draw = torch.Generator().manual_seed(seed)
    found = []
    for number in range(count):
        nodes = 2 + number + int(torch.randint(3, (1,), generator=draw))
        edges = torch.randint(nodes, (2, 0 if number == 1 else 3 + 2 * number), generator=draw)
        found.append(Data(x=torch.randn(nodes, 3, generator=draw, dtype=torch.double), edge_index=edges))
    return found


def both(model, data, method, level, **options):
    """By the loops, and with their door shut; and whether the loops were used."""
    used = []
    ask = ew.Question(model.double().eval(), data, task="graph", **options)
    again = ew.Question(model, data, task="graph", **options)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("gradients", "drops"):
            run = getattr(graph_chain.GraphChain, name)
            patch.setattr(graph_chain.GraphChain, name, lambda *a, run=run, **k: used.append(1) or run(*a, **k))
        fast = ask.explain(method, level=level)
        count = len(used)
        patch.setattr(graph_chain.GraphChain, "of", staticmethod(lambda *a: None))
        slow = again.explain(method, level=level)
        assert len(used) == count
    return fast, slow, bool(used)


@given(
    st.lists(st.sampled_from(["gcn", "sage", "graph", "gin"]), min_size=1, max_size=4),
    st.sampled_from([global_add_pool, global_mean_pool]),
    st.sampled_from([torch.relu, nn.LeakyReLU(0.1), lambda h: h]),
    st.sampled_from(["gradient", "occlusion"]),
    st.sampled_from(["input", "layer"]),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_the_loops_give_what_graphs_side_by_side_give(names, pool, act, method, level, last, seed):
    torch.manual_seed(seed)
    fast, slow, used = both(Classifier(names, pool, act=act, last=last), graphs(seed), method, level)
    assert used
    assert_same_scores(fast, slow)


@pytest.mark.parametrize("method", ["gradient", "occlusion"])
@pytest.mark.parametrize("options", [{"of": "prob"}, {"target": [0, 1, 1, 0]}], ids=["probabilities", "other classes"])
def test_other_numbers_are_explained_too(method, options):
    fast, slow, used = both(Classifier(["gin", "gcn"]), graphs(3), method, "layer", **options)
    assert used
    assert_same_scores(fast, slow)


@pytest.mark.parametrize("method", ["gradient", "occlusion"])
def test_one_logit_of_two_classes(method):
    fast, slow, used = both(Classifier(["sage", "gin"], columns=1), graphs(4), method, "layer", mode="binary")
    assert used
    assert_same_scores(fast, slow)


@pytest.mark.parametrize(
    "model",
    [
        Classifier(["gat", "gcn"]),
        Classifier(["gcn", "gcn"], act=torch.tanh),
        Classifier(["gcn"], global_max_pool),
        Classifier(["gcn"], act=lambda h: h.clamp(min=0)),
        Classifier(["gcn"] * 13),
    ],
    ids=["attention", "no ReLU", "a maximum", "another slope at the kink", "thirteen layers"],
)
@pytest.mark.parametrize("method", ["gradient", "occlusion"])
def test_what_is_no_such_chain_takes_the_other_way(model, method):
    fast, slow, used = both(model, graphs(5), method, "layer")
    assert not used
    assert_same_scores(fast, slow)


@pytest.mark.parametrize("method", ["gradient", "occlusion"])
def test_graphs_have_the_same_bits_on_one_core_and_on_three(method, monkeypatch):
    monkeypatch.setattr(graph_chain, "_PER_CORE", 2)
    model, several = Classifier(["gin", "sage"]).double().eval(), graphs(3, count=9)
    one, three = (
        ew.explain(model, several, task="graph", method=method, level="layer", threads=threads) for threads in (1, 3)
    )
    assert all(torch.equal(few.scores, many.scores) for few, many in zip(one, three, strict=True))
