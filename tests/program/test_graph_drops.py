"""Occlusion of whole graphs by differences, against a run of the model for every missing message."""

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
    GPSConv,
    SAGEConv,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)

import edgewise as ew
from checks import assert_close, assert_same_scores
from edgewise.program import graph_drops
from edgewise.score import Score

CONVS = {
    "gcn": lambda a, b: GCNConv(a, b),
    "sage": lambda a, b: SAGEConv(a, b),
    "gat": lambda a, b: GATConv(a, b),
    "gin": lambda a, b: GINConv(nn.Sequential(nn.Linear(a, 5), nn.ReLU(), nn.Linear(5, b))),
}
POOLS = {"sum": global_add_pool, "mean": global_mean_pool, "max": global_max_pool}


class Classifier(nn.Module):
    def __init__(self, names, pool, *, residual=False, jumps=False):
        super().__init__()
        self.convs = nn.ModuleList(CONVS[name](3, 3) for name in names)
        self.pool, self.residual, self.jumps = POOLS[pool], residual, jumps
        self.head = nn.Sequential(nn.Linear(3 * (len(names) if jumps else 1), 4), nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x, edge_index, batch):
        layers = []
        for conv in self.convs:
            h = conv(x, edge_index)
            x = (x + h if self.residual else h).relu()
            layers.append(x)
        return self.head(self.pool(torch.cat(layers, dim=1) if self.jumps else x, batch))


def graphs(seed, count=3):
    draw = torch.Generator().manual_seed(seed)
    found = []
    for number in range(count):
        nodes = 2 + number + int(torch.randint(3, (1,), generator=draw))
        edges = torch.randint(nodes, (2, 3 + 2 * number), generator=draw)
        found.append(Data(x=torch.randn(nodes, 3, generator=draw, dtype=torch.double), edge_index=edges))
    return found


def both(model, data, level):
    """By differences, and by runs; and whether differences were taken."""
    used = []
    with pytest.MonkeyPatch.context() as patch:
        run = graph_drops.GraphDrops.run
        patch.setattr(graph_drops.GraphDrops, "run", lambda *a, **k: used.append(1) or run(*a, **k))
        fast = ew.explain(model, data, task="graph", method="occlusion", level=level)
        patch.setattr(Score, "graph_drops", lambda *a: None)
        slow = ew.explain(model, data, task="graph", method="occlusion", level=level)
    return fast, slow, bool(used)


@given(
    st.lists(st.sampled_from(sorted(CONVS)), min_size=1, max_size=3),
    st.sampled_from(sorted(POOLS)),
    st.sampled_from(["input", "layer"]),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_differences_give_what_runs_give(names, pool, level, residual, seed):
    torch.manual_seed(seed)
    fast, slow, used = both(Classifier(names, pool, residual=residual).double().eval(), graphs(seed), level)
    assert used
    assert_same_scores(fast, slow)


@pytest.mark.parametrize("level", ["input", "layer"])
def test_a_readout_of_several_layers(level):
    torch.manual_seed(0)
    fast, slow, _ = both(Classifier(["gcn", "sage"], "mean", jumps=True).double().eval(), graphs(0), level)
    assert_same_scores(fast, slow)


@pytest.mark.parametrize("numbers", [1, 40])
def test_blocks_of_any_size_give_the_same(monkeypatch, numbers):
    torch.manual_seed(1)
    model, data = Classifier(["gin", "gin"], "sum").double().eval(), graphs(1, count=4)
    whole = ew.explain(model, data, task="graph", method="occlusion", level="layer")
    monkeypatch.setattr(graph_drops, "_NUMBERS", numbers)
    assert_same_scores(whole, ew.explain(model, data, task="graph", method="occlusion", level="layer"))


@pytest.mark.parametrize(("pool", "is_known"), [("sum", True), ("mean", True), ("max", False)])
def test_sums_and_means_over_nodes_are_known(pool, is_known):
    model = Classifier(["gcn", "gin"], pool).double().eval()
    assert (Score(model, graphs(2), None, task="graph").graph_drops().pooling is not None) == is_known


@pytest.mark.parametrize("pool", sorted(POOLS))
def test_graphs_without_edges_and_messages_that_change_nothing(pool):
    torch.manual_seed(2)
    model = Classifier(["sage", "gcn"], pool).double().eval()
    lone = Data(x=torch.randn(2, 3, dtype=torch.double), edge_index=torch.empty(2, 0, dtype=torch.long))
    dead = Data(x=torch.zeros(3, 3, dtype=torch.double), edge_index=torch.tensor([[0, 1, 1], [1, 2, 2]]))
    for data in ([lone, lone], [lone, dead, *graphs(3)], [dead], lone):
        for level in ("input", "layer"):
            fast, slow, _ = both(model, data, level)
            for one, other in zip(fast, slow, strict=True):
                assert_close(one.scores, other.scores, 1e-9)


class Attending(nn.Module):
    """One message layer beside attention among all nodes of a graph, and what carries its input around both."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = GPSConv(4, GCNConv(4, 4), heads=2), nn.Linear(4, 2)

    def forward(self, x, edge_index, batch):
        return self.head(global_mean_pool(self.conv(x, edge_index, batch), batch))


def test_a_residual_that_reaches_the_readout_is_run_with_the_model():
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = Attending().double().eval()
    graphs = [
        Data(
            x=torch.randn(6, 4, generator=generator, dtype=torch.float64),
            edge_index=torch.randint(0, 6, (2, 14), generator=generator),
        )
        for _ in range(3)
    ]
    found = ew.explain(model, graphs, task="graph", method="occlusion")
    score = Score(model, graphs, task="graph")
    whole = score(score.ones())
    for edge, owner, column in zip(range(len(score.owner)), score.owner.tolist(), score.edge_id.tolist(), strict=True):
        weight = score.ones()
        weight[:, edge] = 0
        lost = (whole - score(weight))[owner].item()
        first = sum(graph.num_edges for graph in graphs[:owner])
        column = column - first if column >= graphs[owner].num_edges else column
        assert found[owner].scores[column].item() == pytest.approx(lost, abs=1e-9)
    assert "occlusion" in str(ew.compare(model, graphs[0], task="graph"))
