"""Features at a kink of the model: a note and a warning that name the kink, and no word about gradients that stop."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCNConv, HeteroConv, SAGEConv

import edgewise as ew

STRETCHED = {
    "log1p": lambda x: x.sign() * x.abs().log1p(),
    "where": lambda x: torch.where(x != 0, x.sinh(), x * 0),
}


class Prepared(nn.Module):
    def __init__(self, prepare, conv=GCNConv):
        super().__init__()
        self.prepare, self.first, self.last = prepare, conv(3, 8), conv(8, 2)

    def forward(self, x, edge_index):
        return self.last(self.first(self.prepare(x), edge_index).relu(), edge_index)


def problem(prepare, seed, conv=GCNConv):
    torch.manual_seed(seed)
    model = Prepared(prepare, conv).eval()
    x = torch.randn(10, 3)
    x[torch.rand(10, 3) < 0.5] = 0
    return model, Data(x=x, edge_index=torch.randint(10, (2, 30)))


@pytest.mark.parametrize("name", STRETCHED)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("conv", [GCNConv, SAGEConv])
def test_products_with_features_of_zero_are_right_and_gradients_are_warned_of(name, seed, conv):
    model, data = problem(STRETCHED[name], seed, conv)
    found = ew.features(model, data, 4)  # no warning: it would be an error
    x = data.x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(x, data.edge_index)[4, found.target], x)
    torch.testing.assert_close(found.scores, slope * data.x)
    with pytest.warns(ew.KinkWarning, match="autograd's convention"):
        gradient = ew.features(model, data, 4, method="gradient")
    torch.testing.assert_close(gradient.scores, slope)
    assert "kink" in gradient.settings["audit"]["undecided"]


def test_features_that_are_not_at_the_kink_are_not_warned_of():
    model, data = problem(STRETCHED["log1p"], 0)
    data.x = data.x + 0.3 * (data.x == 0)
    found = ew.features(model, data, 4, method="gradient")
    assert found.settings["audit"]["undecided"] == ""


@pytest.mark.parametrize("method", ["gradient", "gradient_x_input"])
def test_a_kink_away_from_zero_makes_products_wrong_and_is_warned_of(method):
    model, data = problem(lambda x: (x - 2).sign() * (x - 2).abs().log1p(), 1)
    data.x = data.x + 2 * (data.x == 0)
    with pytest.warns(ew.KinkWarning, match="occlusion"):
        ew.features(model, data, 4, method=method)


@pytest.mark.parametrize("seed", range(3))
def test_a_gradient_that_stops_is_still_refused_as_one(seed):
    model, data = problem(lambda x: x.sign() * x.abs().log1p() + x.detach().tanh(), seed)
    with pytest.raises(ew.ModelError, match="detach in forward stops them"):
        ew.features(model, data, 4)


def test_a_root_at_zero_is_refused_for_what_it_is():
    model, data = problem(lambda x: x.sign() * x.abs().sqrt(), 0)
    for method in ("gradient", "gradient_x_input"):
        with pytest.raises(ew.ModelError, match="infinite or no numbers"):
            ew.features(model, data, 4, method=method)
    assert ew.features(model, data, 4, method="occlusion").scores.isfinite().all()


def test_typed_features_at_a_kink_are_told_apart_too():
    torch.manual_seed(0)
    there, back = ("a", "to", "b"), ("b", "to", "a")
    data = HeteroData()
    for kind, width in (("a", 3), ("b", 2)):
        data[kind].x = torch.randn(6, width) * (torch.rand(6, width) < 0.5)
    data[there].edge_index, data[back].edge_index = torch.randint(6, (2, 14)), torch.randint(6, (2, 14))

    class Typed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = HeteroConv({there: SAGEConv((3, 2), 4), back: SAGEConv((2, 3), 4)})
            self.last = HeteroConv({there: SAGEConv((4, 4), 2), back: SAGEConv((4, 4), 2)})

        def forward(self, x, edges):
            h = self.first({kind: STRETCHED["log1p"](rows) for kind, rows in x.items()}, edges)
            return self.last({kind: rows.relu() for kind, rows in h.items()}, edges)

    def forward(model, data):
        return model(data.x_dict, data.edge_index_dict)

    with pytest.warns(ew.KinkWarning):
        ew.features(Typed().eval(), data, ("a", 1), forward=forward, method="gradient")
    assert ew.features(Typed().eval(), data, ("a", 1), forward=forward).settings["audit"]["undecided"] != "detach"


class RowsStopped(nn.Module):
    """Stops gradients at two rows in front of the first layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(11)
        self.first, self.last = GCNConv(5, 8), GCNConv(8, 8)
        self.head, self.before = nn.Linear(8, 3), nn.Linear(5, 5)

    def forward(self, x, edge_index):
        x, rows = self.before(x), torch.tensor([1, 2])
        x = x.index_copy(0, rows, x[rows].detach())
        return self.head(self.last(self.first(x, edge_index).tanh(), edge_index).tanh())


def test_a_stop_that_is_small_beside_the_features_is_not_taken_for_a_kink():
    generator = torch.Generator().manual_seed(80)
    ends = torch.randint(0, 14, (2, 80), generator=generator)
    ends = ends[:, ends[0] != ends[1]][:, :40]
    data = Data(x=torch.randn(14, 5, generator=generator, dtype=torch.float64), edge_index=ends)
    with pytest.raises(ew.ModelError, match="not the derivative"):
        ew.features(RowsStopped().double().eval(), data, [0, 5, 8, 3], method="gradient")
