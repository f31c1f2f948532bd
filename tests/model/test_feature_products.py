"""Products of the features that the recorded pass made, taken again: only where they are what torch would give."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, Linear, SAGEConv, TransformerConv

import edgewise as ew
from checks import assert_same_scores
from edgewise.model import feature_products
from edgewise.model.feature_products import FeatureProducts
from footprint import Footprint


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """However small they are."""
    monkeypatch.setattr(feature_products, "_WORTH_IT", 0)


def recorded(model, x):
    products = FeatureProducts(x)
    with torch.no_grad(), products.kept(model):
        model(x)
    return products


@pytest.mark.parametrize("kind", [nn.Linear, Linear])
@pytest.mark.parametrize("bias", [True, False])
def test_the_product_of_the_model_is_taken_again(kind, bias, monkeypatch):
    one, x = kind(4, 3, bias=bias), torch.randn(5, 4)
    products, expected = recorded(one, x), functional.linear(x, one.weight, one.bias)
    monkeypatch.setattr(feature_products.functional, "linear", None)  # it must not be worked out again
    found = products.linear(x, one.weight.detach().clone(), one.bias)
    assert torch.equal(found, expected)
    found.zero_()
    assert torch.equal(products.linear(x, one.weight, one.bias), expected)  # whoever takes it has a copy


def changed_map(one, x):
    with torch.no_grad():
        one.weight.mul_(2)


def changed_features(one, x):
    x.add_(1)


@pytest.mark.parametrize("change", [changed_map, changed_features])
def test_a_product_of_other_numbers_is_worked_out(change):
    one, x = nn.Linear(4, 3), torch.randn(5, 4)
    products = recorded(one, x)
    change(one, x)
    with torch.no_grad():
        assert torch.equal(products.linear(x, one.weight, one.bias), one(x))


def test_another_matrix_bias_or_table_is_worked_out():
    one, x = nn.Linear(4, 3), torch.randn(5, 4)
    products, other = recorded(one, x), torch.randn(3, 4)
    assert torch.equal(products.linear(x, other), functional.linear(x, other))
    assert torch.equal(products.linear(x, one.weight), functional.linear(x, one.weight))
    assert torch.equal(products.linear(2 * x, one.weight, one.bias), functional.linear(2 * x, one.weight, one.bias))


def test_a_product_that_the_model_wrote_into_is_worked_out():
    class Rectified(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(4, 3)

        def forward(self, x):
            return self.one(x).relu_()

    model, x = Rectified(), torch.randn(50, 4)
    products = recorded(model, x)
    assert torch.equal(products.linear(x, model.one.weight, model.one.bias), model.one(x))
    with torch.no_grad(), products.used():
        assert torch.equal(model(x), model(x))


def test_a_map_that_somebody_watches_is_left_alone():
    one, x = nn.Linear(4, 3), torch.randn(5, 4)
    one.register_forward_hook(lambda module, given, made: made + 1)
    products = recorded(one, x)
    assert torch.equal(products.linear(x, one.weight, one.bias), functional.linear(x, one.weight, one.bias))


def test_maps_that_a_hook_of_all_modules_watches_are_left_alone():
    one, x = nn.Linear(4, 3), torch.randn(5, 4)
    handle = nn.modules.module.register_module_forward_hook(lambda module, given, made: made + 1)
    try:
        products = recorded(one, x)
    finally:
        handle.remove()
    assert torch.equal(products.linear(x, one.weight, one.bias), functional.linear(x, one.weight, one.bias))


def test_while_products_are_used_maps_give_the_same_and_nothing_is_left_behind():
    one, x = nn.Linear(4, 3), torch.randn(5, 4)
    products = recorded(one, x)
    keys = set(one.__dict__)
    with torch.no_grad():
        expected, twice = one(x), one(2 * x)
        with products.used():
            assert "forward" in one.__dict__
            assert torch.equal(one(x), expected)
            one(x).zero_()
            assert torch.equal(one(x), expected)  # what the model writes into is its own
            assert torch.equal(one(2 * x), twice)
            assert torch.equal(one(input=x), expected)
    assert set(one.__dict__) == keys
    with pytest.raises(KeyError), products.used():
        raise KeyError
    assert set(one.__dict__) == keys


class Two(nn.Module):
    def __init__(self, conv, **options):
        super().__init__()
        self.first, self.second = conv(6, 4, **options), GCNConv(4, 3)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


@pytest.mark.parametrize("conv", [GCNConv, SAGEConv, GATConv, GATv2Conv, TransformerConv])
@pytest.mark.parametrize("method", ["gradient", "occlusion"])
def test_explanations_are_the_same_with_and_without_them(conv, method, monkeypatch):
    torch.manual_seed(0)
    model, x = Two(conv).double().eval(), torch.randn(12, 6, dtype=torch.double)
    data = Data(x=x, edge_index=torch.randint(12, (2, 40)))
    before = Footprint(model, data)
    found = ew.explain(model, data, method=method, level="layer")
    before.assert_unchanged()
    monkeypatch.setattr(feature_products, "_WORTH_IT", 2**60)
    assert_same_scores(found, ew.explain(model, data, method=method, level="layer"))


def test_a_model_that_reads_its_features_through_one_map_twice_is_explained_right():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.map, self.conv = nn.Linear(6, 6), GCNConv(6, 3)

        def forward(self, x, edge_index):
            once = self.map(x)
            return self.conv(self.map(once).relu() + once, edge_index)

    torch.manual_seed(1)
    model, x = Shared().double().eval(), torch.randn(9, 6, dtype=torch.double)
    data = Data(x=x, edge_index=torch.randint(9, (2, 30)))
    found = ew.explain(model, data, method="occlusion")
    score = ew.Score(model, data, range(9))
    for copy, (column, owner) in enumerate(zip(score.edge_id.tolist(), score.owner.tolist(), strict=True)):
        weight = score.ones()
        weight[:, copy] = 0
        drop = (score(score.ones()) - score(weight))[owner]
        assert torch.isclose(found[owner].scores[column], drop, rtol=1e-9, atol=1e-12)


def six_nodes():
    ends = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 1, 3, 1, 3, 0]])
    return Data(x=torch.randn(6, 4, dtype=torch.float64), edge_index=ends)


class Residual(nn.Module):
    """An encoder, and layers that every node's own state is carried around."""

    def __init__(self):
        super().__init__()
        self.encode, self.head = nn.Linear(4, 3), nn.Linear(3, 2)
        self.layers = nn.ModuleList(GCNConv(3, 3, normalize=False) for _ in range(2))

    def forward(self, x, edge_index):
        x = self.encode(x)
        for layer in self.layers:
            x = x + layer(x, edge_index).relu()
        return self.head(x)


@torch.no_grad()
@pytest.mark.parametrize("way", ["lowered", "copies"])
def test_own_terms_that_a_residual_carries_are_weighted_where_products_are_kept(way, monkeypatch):
    """Residuals are found again by the number of their operation, and what is kept must not be counted."""
    torch.manual_seed(0)
    model = Residual().double().eval()
    data = six_nodes()
    question = ew.Question(model, data, [1, 3])
    assert question._posed.engine_lowering is not None
    if way == "copies":
        monkeypatch.setattr(question._posed, "node_model", question._posed.node_model.without_program())
    found = question.explain(method="occlusion", level="layer")
    for why, node in zip(found, (1, 3), strict=True):
        for layer in range(2):
            x = model.encode(data.x)
            for number, conv in enumerate(model.layers):
                own = torch.ones(6, 1, dtype=torch.float64)
                own[node] = float(number != layer)
                x = x * own + conv(x, data.edge_index).relu()
            lost = why.value - model.head(x)[node, why.target]
            assert abs(float(why.self_scores[layer, node] - lost)) < 1e-12


def test_a_residual_that_is_another_operation_now_is_no_weight_somewhere_else():
    class Turns(Residual):
        turned = False

        def forward(self, x, edge_index):
            x = self.encode(x)
            x = x.abs() if self.turned else x
            return self.head(x + self.layers[0](x, edge_index).relu())

    model = Turns().double().eval()
    data = six_nodes()
    posed = ew.Question(model, data, [1, 3])._posed
    posed.call.model.turned = True
    ones = [torch.ones(1, size, dtype=torch.float64) for size in (data.num_edges, 6)]
    with pytest.raises(ew.ModelError, match="other operations than in its first run"):
        posed.node_model.weighted(posed.node_model._whole, *ones)
