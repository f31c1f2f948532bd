"""Models that change the type of their numbers on the way are explained as those that do not, up to rounding."""

import warnings

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_add_pool

import edgewise as ew

CONVS = {
    "GCN": GCNConv,
    "GAT": GATConv,
    "GIN": lambda a, b: GINConv(nn.Linear(a, b)),
    "max": lambda a, b: SAGEConv(a, b, aggr="max"),
}
ROUNDING = 1e-5
"""As a share of the largest score: what float32 leaves of six digits after two layers."""


def as_it_is(values):
    return values


class Net(nn.Module):
    def __init__(self, conv, before=as_it_is, between=as_it_is, after=as_it_is):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = CONVS[conv](5, 8), CONVS[conv](8, 3)
        self.before, self.between, self.after = before, between, after
        self.eval()

    def forward(self, x, edge_index, batch=None):
        h = self.two(self.between(self.one(self.before(x), edge_index).relu()), edge_index)
        return self.after(h if batch is None else global_add_pool(h, batch))


class Links(Net):
    def encode(self, x, edge_index):
        return self.two(self.one(self.before(x), edge_index).relu(), edge_index)

    def decode(self, z, pairs):
        return self.after((z[pairs[0]] * z[pairs[1]]).sum(-1))


def graph(dtype=torch.float32):
    """Features that float16 and bfloat16 hold exactly."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-8, 9, (12, 5), generator=generator) / 4
    return Data(x=x.to(dtype), edge_index=torch.randint(0, 12, (2, 40), generator=generator))


def assert_same(mine, theirs):
    for a, b in zip(mine, theirs, strict=True):
        found, expected = a.scores.double(), b.scores.double()
        assert a.value == pytest.approx(float(b.value), rel=1e-5, abs=1e-6)
        assert expected.any()
        assert (found - expected).abs().max() <= ROUNDING * expected.abs().max()


WIDE = {
    "z.double()": lambda z: z.double(),
    "softmax": lambda z: z.double().softmax(1),
    "back again": lambda z: z.double().log_softmax(1).float(),
    "a float64 matrix": lambda z: z.double() @ torch.eye(3, dtype=torch.float64),
}


@pytest.mark.parametrize("method", ["gradient", "occlusion", "integrated_gradients"])
@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("conv", CONVS)
def test_a_float32_model_that_returns_float64_is_explained(conv, name, method):
    mine, theirs = (
        ew.explain(Net(conv, after=head), graph(), [1, 2], method=method) for head in (WIDE[name], as_it_is)
    )
    assert_same(mine, theirs)


def test_graphs_links_and_walks_of_a_float32_model_that_returns_float64_are_explained():
    graphs, pairs = [graph(), graph()], [(0, 1), (2, 3)]
    both = [{"after": lambda z: z.double()}, {}]
    assert_same(*(ew.explain(Net("GCN", **head), graphs, task="graph", mode="multiclass") for head in both))
    assert_same(*(ew.explain(Links("GCN", **head), graph(), pairs, task="link") for head in both))
    assert_same(*(ew.explain(Net("GCN", **head), graph(), [1, 2], method="lrp") for head in both))


@pytest.mark.parametrize("conv", CONVS)
def test_layers_in_two_precisions_are_run_as_they_are(conv):
    mixed = Net(conv, between=lambda h: h.double())
    mixed.two.double()
    back = Net(conv, before=lambda x: x.double(), after=lambda z: z.float()).double()
    for model in (mixed, back):
        assert_same(ew.explain(model, graph(), [1, 2]), ew.explain(Net(conv), graph(), [1, 2]))
        with pytest.raises(ew.ModelError, match="compute in"):
            ew.explain(model, graph(), [1, 2], method="lrp")


CASTS = {
    "float64 to float32": (torch.float64, lambda x: x.float(), False),
    "float32 to float64": (torch.float32, lambda x: x.double(), True),
    "float16 to float32": (torch.float16, lambda x: x.float(), False),
    "bfloat16 to float32": (torch.bfloat16, lambda x: x.float(), False),
}


@pytest.mark.parametrize("method", ["gradient_x_input", "occlusion", "integrated_gradients"])
@pytest.mark.parametrize("name", CASTS)
@pytest.mark.parametrize("conv", CONVS)
def test_features_that_the_model_casts_are_scored_as_if_they_had_been_cast_before(conv, name, method):
    dtype, cast, is_double = CASTS[name]
    model, plain = Net(conv, before=cast), Net(conv)
    models = [one.double() if is_double else one for one in (model, plain)]
    data = (graph(dtype), graph(torch.float64 if is_double else torch.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.KinkWarning)
        assert_same(*(ew.features(m, d, [1, 2], method=method) for m, d in zip(models, data, strict=True)))


def test_features_that_forward_casts_are_scored():
    def cast(model, data):
        return model(data.x.float(), data.edge_index)

    data = graph(torch.float64)
    assert_same(ew.features(Net("GCN"), data, [1, 2], forward=cast), ew.features(Net("GCN"), graph(), [1, 2]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rounding_to_few_digits_is_named_where_gradients_are_refused(dtype):
    with pytest.raises(ew.ModelError, match=f"rounds numbers to {dtype}"):
        ew.explain(Net("GCN", after=lambda z: z.to(dtype).float()), graph(), [1, 2])
