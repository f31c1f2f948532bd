"""Features at a kink of the model: a note and a warning that name the kink, and no word about gradients that stop."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCNConv, HeteroConv, SAGEConv

import edgewise as ew
from edgewise.question import pose
from edgewise.question.feature_audit import kink_of_features

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


class Gated(nn.Module):
    """A product with a gate that hands on no gradient, out of many features."""

    def __init__(self):
        super().__init__()
        self.mixed, self.conv = nn.Linear(97, 4), GCNConv(4, 3)

    def forward(self, x, edge_index):
        h = self.mixed(x).relu()
        with torch.no_grad():
            gate = h.sigmoid()
        return self.conv(h * gate, edge_index)


@pytest.mark.parametrize("seed", [1, 5, 6, 7, 10])
@pytest.mark.parametrize("node", [0, 1])
def test_a_part_of_a_product_that_stops_is_no_kink_though_random_directions_hide_it(seed, node):
    torch.manual_seed(seed)
    model = Gated().double().eval()
    data = Data(x=torch.randn(300, 97, dtype=torch.double), edge_index=torch.randint(300, (2, 900)))
    assert kink_of_features(pose(model, data, [node])) is None  # 6 of these 10 were taken for one


class StopsAtOne(nn.Module):
    """Every node is at a kink, and behind one of them gradients stop in part."""

    def __init__(self):
        super().__init__()
        self.last = GCNConv(3, 2)

    def forward(self, x, edge_index):
        h = STRETCHED["log1p"](x)
        h = torch.where(x[:, :1] > 4, h.detach() * 0.5 + h * 0.5, h)
        return self.last(h, edge_index)


@pytest.mark.parametrize("stopped", range(8))
def test_a_stop_behind_one_of_many_targets_at_kinks_is_found(stopped):
    torch.manual_seed(1)
    model, x = StopsAtOne().double().eval(), torch.randn(8, 3, dtype=torch.double)
    x[:, 2], x[stopped, 0] = 0, 5
    data = Data(x=x, edge_index=torch.arange(8).repeat(2, 1))
    with pytest.raises(ew.ModelError, match="detach in forward stops them"):
        ew.features(model, data)
    others = [node for node in range(8) if node != stopped]
    assert len(ew.features(model, data, others)) == len(others)


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


BENT = {
    "relu": torch.relu,
    "abs": torch.abs,
    "leaky": lambda x: nn.functional.leaky_relu(x, 0.1),
    "hardtanh": lambda x: nn.functional.hardtanh(x, 0, 1),
    "clamp": lambda x: x.clamp(0, 1),
    "maximum": lambda x: torch.maximum(x, -0.3 * x),
    "where": lambda x: torch.where(x > 0, x, 2 * x),
    "log1p of relu": lambda x: x.relu().log1p(),
    "softshrink": lambda x: nn.functional.softshrink(x, 0.0),
    "step": lambda x: (x > 0) + x,
}


@pytest.mark.parametrize("name", BENT)
@pytest.mark.parametrize("seed", range(3))
def test_every_kink_at_the_features_is_warned_of_whatever_the_function_is_called(name, seed):
    model, data = problem(BENT[name], seed, SAGEConv)
    with pytest.warns(ew.KinkWarning, match="autograd's convention"):
        ew.features(model, data, [1, 2], method="gradient")
    data.x = data.x + 0.3 * (data.x == 0)
    ew.features(model, data, [1, 2], method="gradient")  # no warning: it would be an error


STEPS = {
    "sign": torch.sign,
    "round": lambda x: (3 * x).round(),
    "floor": lambda x: (3 * x).floor(),
    "a comparison": lambda x: (x > 0.1).to(x.dtype),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("method", ["integrated_gradients", "gradient_x_input", "gradient"])
@pytest.mark.parametrize("top", [None, 3])
def test_scores_that_miss_a_step_are_warned_of_and_claim_no_sum(name, method, top):
    model, data = problem(STEPS[name], 1, SAGEConv)
    data.x = data.x + 0.3 * (data.x == 0)
    with pytest.warns(ew.KinkWarning, match=r"through a step.*method='occlusion'"):
        found = ew.features(model, data, [1, 2], method=method, top=top)
    assert "nothing in particular" in found.settings["adds_up_to"]
    assert ew.features(model, data, [1, 2], method="occlusion")[0].scores.any()


def test_a_step_beside_a_smooth_part_is_seen_by_the_sum_of_integrated_gradients():
    model, data = problem(lambda x: x + (2 * x).round(), 0, SAGEConv)
    with pytest.warns(ew.KinkWarning, match="through a step"):
        ew.features(model, data, 1, method="integrated_gradients")
    model, data = problem(lambda x: x.relu() + (x - 0.5).relu(), 0, SAGEConv)
    for steps in (5, 50):  # kinks on the way are errors of the rule, and no steps
        found = ew.features(model, data, 1, method="integrated_gradients", steps=steps)
        assert found.settings["adds_up_to"] == "the explained number less that of features 0"


def test_features_that_move_nothing_are_no_gradients_that_stop():
    class Constant(nn.Module):
        def __init__(self, seed):
            super().__init__()
            torch.manual_seed(seed)
            self.conv, self.last = SAGEConv(3, 8), nn.Linear(8, 2)

        def forward(self, x, edge_index):
            h = self.conv(x, edge_index)
            h = (h - h.mean(0)) / (h.var(0, unbiased=False) + 1e-5).sqrt()
            return self.last(h.mean(0, keepdim=True))

    for seed in range(5):
        _, data = problem(None, seed)
        found = ew.features(Constant(seed).eval(), data, task="graph")
        assert found.scores.abs().max() < 1e-5
        assert "rounding" in found.settings["audit"]["undecided"]
