"""Calls between two tables, `conv((h, g(h)), edge_index)`: what is missing, against runs of the model with hooks."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import (
    GATConv,
    GATv2Conv,
    GINConv,
    GraphConv,
    HeteroConv,
    SAGEConv,
    TransformerConv,
    global_mean_pool,
)

import edgewise as ew
from checks import LEVELS, assert_close
from hooked_twin import HookedTwin
from pyg_versions import RESIDUAL

WIDTH, CLASSES = 4, 3
PLAIN = {"add_self_loops": False}
KINDS = {
    "gat": lambda ins, out: GATConv(ins, out, heads=2, concat=False, **PLAIN),
    "gat, residual": lambda ins, out: GATConv(ins, out, heads=2, concat=False, **RESIDUAL, **PLAIN),
    "gatv2": lambda ins, out: GATv2Conv(ins, out, heads=2, concat=False, **PLAIN),
    "gatv2, heads side by side": lambda ins, out: GATv2Conv(ins, out // 2 or 1, heads=2, **PLAIN),
    "transformer": lambda ins, out: TransformerConv(ins, out, heads=2, concat=False),
    "transformer without roots": lambda ins, out: TransformerConv(ins, out, concat=False, root_weight=False),
    "sage": SAGEConv,
    "graph conv": GraphConv,
    "gin": lambda ins, out: GINConv(nn.Sequential(nn.Linear(ins[0], 5), nn.ReLU(), nn.Linear(5, out))),
}
TABLES = {
    "a map": lambda net, h, x: (h, net.map(h).tanh()),
    "a bend": lambda net, h, x: (h, h.sigmoid()),
    "features": lambda net, h, x: (h, x),
    "from the map": lambda net, h, x: (net.map(h).tanh(), h),
    "the same twice": lambda net, h, x: (h, h),
}
WAYS = [("a map", 1), ("features", 2), ("a bend", 1), ("from the map", 0), ("the same twice", 1)]
CASES = [(kind, *way) for kind in KINDS for way in WAYS]


class BetweenTables(nn.Module):
    """Three calls; one of them, or two, reads two tables of the same width."""

    def __init__(self, kind, tables, place, *, pools=False):
        super().__init__()
        self.tables, self.places, self.pools = TABLES[tables], {place, 2}, pools
        self.map = nn.Linear(WIDTH, WIDTH)
        self.convs = nn.ModuleList(KINDS[kind]((WIDTH, WIDTH), WIDTH) for _ in range(3))
        self.last = nn.Linear(WIDTH, CLASSES)

    def forward(self, x, edge_index, batch=None):
        h = x
        for place, conv in enumerate(self.convs):
            h = conv(self.tables(self, h, x) if place in self.places else (h, h), edge_index).relu()
        return self.last(global_mean_pool(h, batch) if self.pools else h)


def problem(kind, tables, place, *, pools=False, loops=True, seed=0):
    torch.manual_seed(seed)
    model = BetweenTables(kind, tables, place, pools=pools).double().eval()
    edges = torch.randint(8, (2, 18))
    edges = torch.cat([edges, edges[:, :3].flip(0), edges[:, :1]], dim=1)  # both ways, and twice
    edges = edges if loops else edges[:, edges[0] != edges[1]]
    return model, Data(x=torch.randn(8, WIDTH, dtype=torch.double), edge_index=edges)


@pytest.mark.parametrize(("kind", "tables", "place", "level"), [(*c, LEVELS[i % 2]) for i, c in enumerate(CASES)])
def test_occlusion_is_what_the_model_loses_without_the_message(kind, tables, place, level):
    model, data = problem(kind, tables, place)
    lost = HookedTwin(model, data.x, data.edge_index).losses(level)
    for why in ew.explain(model, data, method="occlusion", level=level):
        assert why.settings["way"] == (
            "copies" if kind.startswith("transformer") and tables != "the same twice" else "lowered"
        )
        assert_close(why.scores, lost[..., why.index, why.target], 1e-10)


@pytest.mark.parametrize(("kind", "tables", "place"), CASES)
def test_occlusion_of_features_is_what_the_model_loses_without_them(kind, tables, place):
    model, data = problem(kind, tables, place)
    lost = HookedTwin(model, data.x, data.edge_index).feature_losses()
    for why in ew.features(model, data, method="occlusion"):
        assert_close(why.scores, lost[..., why.index, why.target], 1e-10)


@pytest.mark.parametrize(
    ("kind", "tables", "place", "level"), [(*case, LEVELS[i % 2]) for i, case in enumerate(CASES[::2])]
)
def test_occlusion_of_graphs_is_what_the_model_loses_without_the_message(kind, tables, place, level):
    problems = [problem(kind, tables, place, pools=True, seed=seed) for seed in (0, 1)]
    model, graphs = problems[0][0], [data for _, data in problems]
    for why, data in zip(ew.explain(model, graphs, task="graph", method="occlusion", level=level), graphs, strict=True):
        lost = HookedTwin(model, data.x, data.edge_index, torch.zeros(8, dtype=torch.long)).losses(level)
        assert_close(why.scores, lost[..., 0, why.target], 1e-10)


@pytest.mark.parametrize("kind", ["gat", "gatv2", "transformer"])
def test_an_edge_that_sends_nothing_still_weighs_in_attention(kind):
    """Input level, u ⇄ v: without u → v, v changes u, and the changed u has another share of the attention of v."""
    torch.manual_seed(0)

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = (KINDS[kind](WIDTH, WIDTH) for _ in range(2))
            self.three = KINDS[kind](WIDTH, CLASSES)

        def forward(self, x, edge_index):
            h = self.two(self.one(x, edge_index), edge_index)
            return self.three(h * torch.tensor([[1.0], [1.0], [0.0]], dtype=torch.double), edge_index)  # v = 2 is dead

    model = Two().double().eval()
    data = Data(
        x=torch.randn(3, WIDTH, dtype=torch.double), edge_index=torch.tensor([[1, 2, 0, 1, 0], [2, 1, 1, 0, 2]])
    )
    lost = HookedTwin(model, data.x, data.edge_index).losses("input")
    for why in ew.explain(model, data, method="occlusion"):
        assert why.settings["way"] == "lowered"
        assert_close(why.scores, lost[..., why.index, why.target], 1e-10)


@pytest.mark.parametrize("conv", [GATConv, GATv2Conv])
def test_attention_between_two_types_loses_what_the_model_loses(conv):
    torch.manual_seed(0)
    data = HeteroData()
    data["a"].x, data["b"].x = torch.randn(5, 4, dtype=torch.double), torch.randn(4, 3, dtype=torch.double)
    data["a", "to", "b"].edge_index = torch.stack([torch.randint(5, (12,)), torch.randint(4, (12,))])
    data["b", "to", "a"].edge_index = torch.stack([torch.randint(4, (12,)), torch.randint(5, (12,))])
    types = list(data.edge_types)

    class Typed(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = HeteroConv({kind: conv((-1, -1), 4, **PLAIN) for kind in types})
            self.two = HeteroConv({kind: conv((-1, -1), 3, **PLAIN) for kind in types})

        def forward(self, x_dict, edge_index_dict):
            h = {key: rows.relu() for key, rows in self.one(x_dict, edge_index_dict).items()}
            return self.two(h, edge_index_dict)["b"]

    model = Typed().double().eval()
    with torch.no_grad():
        truth = model(data.x_dict, data.edge_index_dict)
    for why in ew.explain(model, data, ("b", [0, 1, 2, 3]), method="occlusion", level="input"):
        for kind in types:
            for column in range(12):
                silent = [layer.convs[kind] for layer in (model.one, model.two)]
                hooks = [one.register_message_forward_hook(_without(column)) for one in silent]
                with torch.no_grad():
                    less = model(data.x_dict, data.edge_index_dict)
                for hook in hooks:
                    hook.remove()
                expected = float((truth - less)[why.index[1], why.target])
                assert float(why.scores[kind][column]) == pytest.approx(expected, abs=1e-10)


def _without(column):
    def silenced(module, arguments, messages):
        kept = torch.ones(len(messages), dtype=messages.dtype)
        kept[column] = 0
        return messages * kept.view(-1, *[1] * (messages.dim() - 1))

    return silenced
