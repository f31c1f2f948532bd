"""Features of links against autograd and re-runs on the whole graph, in float64."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GINEConv

import edgewise as ew
from checks import assert_close
from link_models import MODELS, PAIRS, Centred, link_graph, logits, make_model
from zoo import mlp, randomise

TOLERANCE = 1e-9


def own_graph(data, pair, *, without_itself):
    u, v = pair
    source, receiver = data.edge_index
    itself = ((source == u) & (receiver == v)) | ((source == v) & (receiver == u))
    return data.edge_index[:, ~itself] if without_itself else data.edge_index


def slow(model, data, pair, x, *, without_itself):
    graph = Data(x=x, edge_index=own_graph(data, pair, without_itself=without_itself))
    return logits(model, graph, torch.tensor(pair).view(2, 1)).view(())


def slope(model, data, pair, x, **options):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(slow(model, data, pair, leaf, **options), leaf)[0]


@pytest.mark.parametrize("without_itself", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_features_of_links_are_those_of_autograd_and_of_runs(name, without_itself):
    model, data = make_model(name, seed=2), link_graph(2)
    data.x[1, 2] = 0.0
    options = {"task": "link", "without_itself": without_itself, "output": None if "dist" in name else "logit"}
    own = {"without_itself": without_itself}
    pairs = PAIRS[:5]
    gradients, products, losses = (
        ew.features(model, data, pairs, method=method, **options)
        for method in ("gradient", "gradient_x_input", "occlusion")
    )
    integrated = ew.features(model, data, pairs[:1], method="integrated_gradients", steps=20, **options)
    is_lowered = name in ("gcn, dot", "gat, dot", "gcn, distmult") and not without_itself
    assert gradients.settings["way"] == ("lowered" if is_lowered else "copies")
    for why, product, loss, pair in zip(gradients, products, losses, pairs, strict=True):
        expected = slope(model, data, pair, data.x, **own)
        assert why.index == pair
        assert_close(why.scores, expected, TOLERANCE)
        assert_close(product.scores, expected * data.x, TOLERANCE)
        with torch.no_grad():
            full = slow(model, data, pair, data.x, **own)
            for node, feature in ((0, 0), (1, 1), (2, 2), (5, 0), (9, 1)):
                x = data.x.clone()
                x[node, feature] = 0.0
                lost = float(full - slow(model, data, pair, x, **own))
                assert lost == pytest.approx(float(loss.scores[node, feature]), abs=TOLERANCE)
    mean = sum(
        0.5 * share * slope(model, data, pairs[0], data.x * (0.5 * point + 0.5), **own)
        for point, share in zip(*np.polynomial.legendre.leggauss(20), strict=True)
    )
    assert_close(integrated[0].scores, mean * data.x, TOLERANCE)


def test_edge_attributes_and_models_that_are_not_local():
    class Attributed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = GINEConv(mlp(3, 3), edge_dim=2)

        def encode(self, x, edge_index, edge_attr):
            return self.first(x, edge_index, edge_attr)

        def decode(self, z, edge_label_index):
            return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=-1)

    model, data = randomise(Attributed()), link_graph()
    data.edge_attr = torch.randn(data.num_edges, 2, dtype=torch.float64)
    why = ew.features(model, data, (0, 1), task="link", method="gradient")
    leaf = data.edge_attr.clone().requires_grad_()
    z = model.encode(data.x, data.edge_index, leaf)
    (expected,) = torch.autograd.grad((z[0] * z[1]).sum(), leaf)
    assert_close(why.edge_scores, expected, TOLERANCE)
    centred = randomise(Centred("sage"))
    with pytest.warns(ew.LocalityWarning):
        found = ew.features(centred, data, [(0, 1), (2, 6)], task="link", method="gradient")
    assert found.settings["way"] == "whole graph"
    for one, pair in zip(found, ((0, 1), (2, 6)), strict=True):
        assert_close(one.scores, slope(centred, data, pair, data.x, without_itself=False), TOLERANCE)


def test_tables_and_files_name_both_ends(tmp_path):
    model, data = make_model("gcn, dot"), link_graph()
    found = ew.features(model, data, PAIRS[:3], task="link")
    assert found.of(PAIRS[1]).index == PAIRS[1]
    assert {(row["index"], row["index_to"]) for row in found.to_rows()} <= set(PAIRS)
    found.save(tmp_path / "features.npz")
    assert ew.load(tmp_path / "features.npz")[1].index == PAIRS[1]
    with pytest.raises(ew.InputError, match="gradient_x_input"):
        ew.features(model, data, PAIRS[:1], task="link", method="cam")


@pytest.mark.parametrize("method", ["gradient", "occlusion", "grad_cam"])
def test_a_parquet_file_is_lossless_and_a_table_for_everybody(tmp_path, method):
    pyarrow = pytest.importorskip("pyarrow.parquet")
    data = link_graph()
    data.edge_attr, data.feature_names = torch.randn(data.num_edges, 2, dtype=torch.float64), ["age", "debt", "years"]
    first, second = GINEConv(mlp(3, 4), edge_dim=2), GINEConv(mlp(4, 2), edge_dim=2)

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x, edge_index, edge_attr):
            return self.second(self.first(x, edge_index, edge_attr).relu(), edge_index, edge_attr)

    found = ew.features(randomise(Both()), data, [1, 8, 5], method=method)
    found.save(tmp_path / "features.parquet")
    again = ew.load(tmp_path / "features.parquet")
    for one, other in zip(again, found, strict=True):
        assert torch.equal(one.per_node(), other.per_node())
        if method != "grad_cam":
            assert torch.equal(one.scores, other.scores)
            assert torch.equal(one.edge_scores, other.edge_scores)
        assert (one.index, one.target, one.value) == (other.index, other.target, other.value)
    assert again.feature_names == found.feature_names
    assert dict(again.settings) == dict(found.settings)
    table = pyarrow.read_table(tmp_path / "features.parquet").to_pydict()
    expected = {"node"} if method == "grad_cam" else {"feature", "attribute"}
    assert set(table["of"]) == expected
    with pytest.raises(ew.FileError, match=r"\.npz or \.parquet"):
        found.save(tmp_path / "features.csv")
