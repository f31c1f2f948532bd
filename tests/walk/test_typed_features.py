"""Walks of typed models that prepare their features, with a map around the first layer; and what is said without walks."""

import pytest
import torch
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv

import edgewise as ew

THERE, BACK = ("a", "to", "b"), ("b", "back", "a")
PREPARED = {
    "log1p": lambda x: x.sign() * x.abs().log1p(),
    "nan_to_num": torch.nan_to_num,
    "log10": lambda x: (x.abs() + 1).log10(),
    "masked_fill": lambda x: x.masked_fill(x < 0, 0.0),
    "sin": torch.sin,
}


class Residual(nn.Module):
    def __init__(self, prepare):
        super().__init__()
        self.prepare = prepare
        self.first = HeteroConv({THERE: SAGEConv((3, 2), 4), BACK: SAGEConv((2, 3), 4)})
        self.last = HeteroConv({THERE: SAGEConv((4, 4), 2), BACK: SAGEConv((4, 4), 2)})
        self.around = nn.ModuleDict({"a": nn.Linear(3, 4), "b": nn.Linear(2, 4)})

    def forward(self, x, edges):
        x = {kind: self.prepare(rows) for kind, rows in x.items()}
        h = self.first(x, edges)
        return self.last({kind: (h[kind] + self.around[kind](x[kind])).relu() for kind in h}, edges)


def forward(model, data):
    return model(data.x_dict, data.edge_index_dict)


def problem(prepare):
    torch.manual_seed(3)
    data = HeteroData()
    data["a"].x, data["b"].x = torch.randn(8, 3).double(), torch.randn(6, 2).double()
    data[THERE].edge_index = torch.stack([torch.randint(8, (14,)), torch.randint(6, (14,))])
    data[BACK].edge_index = torch.stack([torch.randint(6, (14,)), torch.randint(8, (14,))])
    return Residual(prepare).double().eval(), data


@pytest.mark.parametrize("name", PREPARED)
def test_walks_and_lrp_add_up_to_gradient_times_features(name):
    model, data = problem(PREPARED[name])
    index = ("a", list(range(8)))
    features = {kind: data[kind].x.clone().requires_grad_() for kind in ("a", "b")}
    out = model(features, data.edge_index_dict)["a"]
    walks = ew.walks(model, data, index, forward=forward, k=10**4, sign="magnitude", search="exhaustive")
    by_edges = ew.explain(model, data, index, forward=forward, method="lrp", rule="gradient", level="layer")
    for node, found in enumerate(walks):
        slopes = torch.autograd.grad(
            out[node, found.target], list(features.values()), retain_graph=True, allow_unused=True
        )
        true = sum(float((slope * rows).sum().detach()) for slope, rows in zip(slopes, features.values(), strict=True))
        assert sum(walk.score for walk in found) == pytest.approx(true, abs=1e-9)
        moved = sum(walk.score for walk in found if walk.nodes[0] != walk.nodes[1])
        assert float(by_edges[node].flat.scores[0].sum()) == pytest.approx(moved, abs=1e-9)


def test_such_models_are_lowered():
    model, data = problem(PREPARED["log1p"])
    assert ew.Question(model, data, ("a", [0, 1]), forward=forward).way == "lowered"


class Odd(Residual):
    def __init__(self, prepare):
        super().__init__(prepare)
        self.odd = nn.ModuleDict({"one": nn.Bilinear(4, 4, 4)})

    def forward(self, x, edges):
        h = self.first(x, edges)
        h["b"] = self.odd["one"](h["b"], h["b"])
        return self.last({kind: rows.relu() for kind, rows in h.items()}, edges)


def test_what_cannot_be_followed_is_named_with_its_module_and_check_says_the_same():
    _, data = problem(None)
    model = Odd(None).double().eval()
    with pytest.raises(ew.ModelError, match=r"bilinear is not known .* \(module odd\.one, Bilinear\)") as refused:
        ew.walks(model, data, ("a", 1), forward=forward)
    said = ew.check(model, data, ("a", [1, 2]), forward=forward)
    for name in ("Theorem 1", "Proposition 5"):
        assert (said.statement(name).verdict, said.statement(name).why) == ("does not apply", str(refused.value))
    followed, data = problem(PREPARED["log1p"])
    assert ew.check(followed, data, ("a", 1), forward=forward).statement("Theorem 1").verdict == "holds"


def test_check_asks_about_walks_of_plain_models_too():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = SAGEConv(3, 4), SAGEConv(4, 2)

        def forward(self, x, edge_index):
            h = self.first(x, edge_index)
            return self.last(h / h.norm(), edge_index)

    torch.manual_seed(0)
    model, data = Scaled().double().eval(), problem(None)[1]
    graph = data["a"].x, torch.randint(8, (2, 14))
    from torch_geometric.data import Data

    plain = Data(x=graph[0], edge_index=graph[1])
    with pytest.raises(ew.ModelError) as refused:
        ew.walks(model, plain, 1)
    assert ew.check(model, plain, 1).statement("Theorem 1").why == str(refused.value)
