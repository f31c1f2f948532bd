"""Layers of several message-passing calls, lowered: the same numbers as the model itself on copies, in float64."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import FastRGCNConv, GATConv, GATv2Conv, GCNConv, GINConv, GraphConv, RGCNConv, SAGEConv

import edgewise as ew
from checks import one_in
from edgewise.question import node_model
from typed_zoo import LOWERED, typed_model

NODES, EDGES, RELATIONS = 11, 36, 3


def graph(seed):
    """Parallel edges, loops, an isolated node."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, NODES - 1, (2, EDGES), generator=generator)
    edge_index[:, 5] = edge_index[:, 4]
    edge_index[:, 6] = edge_index[0, 6]
    x = torch.randn(NODES, 4, generator=generator, dtype=torch.double)
    return Data(x=x, edge_index=edge_index, edge_type=torch.randint(0, RELATIONS, (EDGES,), generator=generator))


class Relations(nn.Module):
    """Two layers of relations; the second has a residual around it if the widths allow it."""

    def __init__(self, conv, **options):
        super().__init__()
        self.one, self.two = conv(4, 6, RELATIONS, **options), conv(6, 6, RELATIONS, **options)

    def forward(self, x, edge_index, edge_type):
        hidden = self.one(x, edge_index, edge_type).relu()
        return self.two(hidden, edge_index, edge_type) + hidden


class Branches(nn.Module):
    """Convs on one input, joined: added, side by side, or the larger of the two."""

    def __init__(self, join):
        super().__init__()
        self.join = join
        wide = 12 if join == "cat" else 6
        small = nn.Sequential(nn.Linear(wide, 3), nn.ReLU(), nn.Linear(3, 3))
        self.one = nn.ModuleList([SAGEConv(4, 6), GCNConv(4, 6)])
        self.two = nn.ModuleList([GATConv(wide, 3), GraphConv(wide, 3), GINConv(small), GATv2Conv(wide, 3)])

    def forward(self, x, edge_index, edge_type):
        a, b = (conv(x, edge_index) for conv in self.one)
        hidden = (
            torch.cat([a, b], dim=-1) if self.join == "cat" else a + b if self.join == "add" else torch.maximum(a, b)
        )
        return sum(conv(hidden.tanh(), edge_index) for conv in self.two)


class Unequal(nn.Module):
    """A branch of one call beside one of two, and a call on a selection of the edges."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.beside = SAGEConv(4, 6), GCNConv(6, 3), GATConv(4, 3)

    def forward(self, x, edge_index, edge_type):
        some = self.beside(x, edge_index[:, edge_type == 1])
        return self.two(self.one(x, edge_index).relu(), edge_index) + some


MODELS = {
    "rgcn": lambda: Relations(RGCNConv),
    "rgcn sum, bases": lambda: Relations(RGCNConv, aggr="sum", num_bases=2),
    "rgcn blocks": lambda: Relations(RGCNConv, num_blocks=2),
    "rgcn without a root": lambda: Relations(RGCNConv, root_weight=False, bias=False),
    "fast rgcn": lambda: Relations(FastRGCNConv),
    "fast rgcn sum, bases": lambda: Relations(FastRGCNConv, aggr="add", num_bases=2),
    "branches added": lambda: Branches("add"),
    "branches side by side": lambda: Branches("cat"),
    "the larger branch": lambda: Branches("max"),
    "branches of unequal depth": Unequal,
}


def model_of(name, seed):
    torch.manual_seed(seed)
    model = MODELS[name]().double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def forward(model, data):
    return model(data.x, data.edge_index, data.edge_type)


METHODS = [("gradient", "layer"), ("occlusion", "layer"), ("occlusion", "input"), ("integrated_gradients", "layer")]
CASES = [(name, *METHODS[(i + j) % 4]) for j in range(4) for i, name in enumerate(MODELS)]


@pytest.mark.parametrize(("name", "method", "level"), one_in(3, CASES))
def test_lowered_is_what_copies_of_the_model_give(name, method, level, monkeypatch):
    model, data = model_of(name, 0), graph(0)
    steps = {"steps": 4} if method == "integrated_gradients" else {}
    asked = {"method": method, "level": level, "forward": forward, **steps}
    ours = ew.explain(model, data, range(0, NODES, 3), **asked)
    monkeypatch.setattr(node_model, "lower_nodes", lambda *_: None)
    twin = ew.explain(model, data, range(0, NODES, 3), **asked)
    assert (ours.settings["way"], twin.settings["way"]) == ("lowered", "copies")
    assert max(float(why.scores.abs().max()) for why in twin) > 1e-2
    for mine, theirs in zip(ours, twin, strict=True):
        torch.testing.assert_close(mine.scores, theirs.scores, rtol=0, atol=1e-10)
        assert (mine.self_scores is None) == (theirs.self_scores is None)
        if mine.self_scores is not None:
            torch.testing.assert_close(mine.self_scores, theirs.self_scores, rtol=0, atol=1e-10, equal_nan=True)


@pytest.mark.parametrize("name", one_in(5, sorted(LOWERED)))
def test_occlusion_of_own_terms_of_typed_layers_too(name, monkeypatch):
    """An own term that is a row-wise step behind its call (SAGE and GraphConv between two types) is missing there."""
    model, data = typed_model(name, 6)
    asked = [{"method": "occlusion", "level": level} for level in ("layer", "input")]
    ours = [ew.explain(model, data, ("movie", [0, 2]), **one) for one in asked]
    monkeypatch.setattr(node_model, "lower_nodes", lambda *_: None)
    for mine, one in zip(ours, asked, strict=True):
        twin = ew.explain(model, data, ("movie", [0, 2]), **one)
        assert (mine.settings["way"], twin.settings["way"]) == ("lowered", "copies")
        for a, b in zip(mine, twin, strict=True):
            assert (a.self_scores is None) == (b.self_scores is None)
            for kind, scores in (b.self_scores or {}).items():
                torch.testing.assert_close(a.self_scores[kind], scores, rtol=0, atol=1e-10, equal_nan=True)


def test_a_relation_weighs_its_own_columns_alone():
    """By hand: two relations 0 → 1 with the matrices 2 and 3, x = (1, 10), a sum without root and bias."""
    conv = RGCNConv(1, 1, 2, aggr="sum", root_weight=False, bias=False)
    conv.weight.data = torch.tensor([[[2.0]], [[3.0]]])
    data = Data(
        x=torch.tensor([[1.0], [10.0]]), edge_index=torch.tensor([[0, 0], [1, 1]]), edge_type=torch.tensor([0, 1])
    )
    for method in ("gradient", "occlusion"):
        why = ew.explain(conv.eval(), data, 1, method=method, mode="regression", forward=forward)
        assert why.settings["way"] == "lowered"
        assert why.scores.tolist() == [2.0, 3.0]
        assert why.value == 5.0
