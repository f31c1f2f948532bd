"""Occlusion through attention, where a missing message is taken out of the sum: against runs of the function of weights."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GATv2Conv, GINEConv, TransformerConv

import edgewise as ew
from edgewise.program.perturbation_forward import ForwardChange
from pyg_versions import HAS_RESIDUAL


class EdgeRelus(nn.Module):
    """The same of GINE: a ReLU on every edge."""

    def __init__(self, depth):
        super().__init__()
        self.convs = nn.ModuleList(GINEConv(nn.Linear(5, 5), eps=0.3, edge_dim=2) for _ in range(depth))

    def forward(self, x, edge_index, edge_attr):
        for conv in self.convs:
            x = conv(x, edge_index, edge_attr).relu()
        return x


class Attention(nn.Module):
    """Two or three calls of attention with ReLUs between them."""

    def __init__(self, kind, depth, *, with_edges, **options):
        super().__init__()
        heads, last = 2, {"concat": False}
        edge = {"edge_dim": 2} if with_edges else {}
        widths = [5, *[2 * heads] * (depth - 1)]
        self.convs = nn.ModuleList(
            kind(
                width,
                3 if place == depth - 1 else 2,
                heads=heads,
                **(last if place == depth - 1 else {}),
                **edge,
                **options,
            )
            for place, width in enumerate(widths)
        )
        self.with_edges = with_edges

    def forward(self, x, edge_index, edge_attr):
        for place, conv in enumerate(self.convs):
            x = conv(x, edge_index, edge_attr) if self.with_edges else conv(x, edge_index)
            x = x if place == len(self.convs) - 1 else x.relu()
        return x


def graph(seed, *, loops):
    """Some columns twice; explicit loops, one of them twice."""
    draw = torch.Generator().manual_seed(seed)
    edges = torch.randint(7, (2, 16), generator=draw)
    edges = torch.cat([edges, edges[:, :2]], 1)
    edges = edges[:, edges[0] != edges[1]] if not loops else torch.cat([edges, torch.tensor([[2, 2, 4], [2, 2, 4]])], 1)
    numbers = {"generator": draw, "dtype": torch.double}
    return Data(x=torch.randn(7, 5, **numbers), edge_index=edges, edge_attr=torch.randn(edges.size(1), 2, **numbers))


def by_runs(model, data, index, level):
    """Scores of edges and of own terms from the function of weights alone, one run for each."""
    score = ew.Score(model, data, [index])
    ones, own = score.ones(), torch.ones(score.num_layers, len(score.self_node), dtype=torch.double)
    rows = range(score.num_layers) if level == "layer" else [slice(None)]
    edges = torch.zeros(len(rows), data.edge_index.size(1), dtype=torch.double)
    nodes = torch.zeros(len(rows), data.num_nodes, dtype=torch.double)
    full = score(ones, own)
    for number, row in enumerate(rows):
        for copy, column in enumerate(score.edge_id.tolist()):
            weight = ones.clone()
            weight[row, copy] = 0
            edges[number, column] = full - score(weight, own)
        for copy, node in enumerate(score.self_node.tolist()):
            weight = own.clone()
            weight[row, copy] = 0
            nodes[number, node] = full - score(ones, weight)
    return edges, nodes


@given(st.integers(1, 3), st.booleans(), st.sampled_from(["input", "layer"]), st.integers(0, 10**6))
def test_a_relu_on_every_edge(depth, loops, level, seed):
    torch.manual_seed(seed)
    model, data = EdgeRelus(depth).double().eval(), graph(seed, loops=loops)
    why = ew.explain(model, data, 2, method="occlusion", level=level)
    edges, nodes = by_runs(model, data, 2, level)
    assert why.settings["way"] == "lowered"
    torch.testing.assert_close(why.scores.view_as(edges), edges, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(why.self_scores.view_as(nodes), nodes, rtol=1e-9, atol=1e-12)


@settings(max_examples=40)
@given(
    st.sampled_from([GATConv, GATv2Conv, TransformerConv]),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["input", "layer"]),
    st.integers(0, 10**6),
)
def test_missing_messages_change_what_runs_with_their_weight_at_zero_say(
    kind, depth, loops, residual, edges, level, seed
):
    torch.manual_seed(seed)
    options = (
        {"root_weight": residual}
        if kind is TransformerConv
        else {"residual": True}
        if residual and HAS_RESIDUAL
        else {}
    )
    model = Attention(kind, depth, with_edges=edges, **options).double().eval()
    data = graph(seed, loops=loops)
    why = ew.explain(model, data, 2, method="occlusion", level=level)
    expected, of_nodes = by_runs(model, data, 2, level)
    assert why.settings["way"] == "lowered"
    torch.testing.assert_close(why.scores.view_as(expected), expected, rtol=1e-9, atol=1e-12)
    if why.self_scores is not None:
        torch.testing.assert_close(why.self_scores.view_as(of_nodes), of_nodes, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [GATConv, GATv2Conv, TransformerConv])
def test_the_in_edges_of_a_hub_are_not_looked_at_for_each_of_them(kind, monkeypatch):
    """Node 1 has 300 in-edges and sends to the target 0, which has two."""
    torch.manual_seed(0)
    hub = torch.stack([torch.arange(10, 310), torch.full((300,), 1)])
    edges = torch.cat([hub, torch.tensor([[1, 2], [0, 0]])], 1)
    data = Data(x=torch.randn(310, 5), edge_index=edges, edge_attr=torch.zeros(302, 2))
    seen, again = [], ForwardChange._run_again

    def counted(self, step, pairs):
        seen.append(int(self.all.lowering.in_edges.start.diff()[pairs.node].sum()))
        return again(self, step, pairs)

    monkeypatch.setattr(ForwardChange, "_run_again", counted)
    ew.explain(Attention(kind, 2, with_edges=False).eval(), data, 0, method="occlusion")
    assert sum(seen) < 3 * 310  # the two in-edges of the target for each message, not the 300 of the hub
