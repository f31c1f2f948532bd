"""Features of typed graphs: scores by node type are autograd's, and those of re-runs, on the user's own model and graph."""

import warnings

import pytest
import torch
from torch import nn
from torch_geometric.nn import SAGEConv

import edgewise as ew
from checks import one_in
from command_line import error, printed
from typed_pool import WIDTHS as GRAPH_WIDTHS
from typed_pool import Pooled, graph
from typed_tables import by_hand, network, tables, written
from typed_zoo import COUNTS, HIDDEN, KINDS, SIZES, WIDTHS, WITH_ATTRIBUTES, Stacked, call, rows_of, typed_model

NAMES = ["sage sum", "mixed", "transformer edge_attr", "gine", "hgt", "han", "to_hetero gat"]


def ask(name, seed, index, **options):
    model, data = typed_model(name, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        return model, data, ew.features(model, data, index, **options)


def value_of(model, data, number, target):
    return rows_of(call(model, data), "movie")[number, target]


def moved(data, key, name, values):
    other = data.clone()
    other[key][name] = values
    return other


@pytest.mark.parametrize("name", one_in(2, NAMES))
def test_gradients_are_those_of_autograd(name):
    model, data, found = ask(name, 1, {"movie": [0, 2, 3]}, method="gradient")
    own = data.clone()
    leaves = {(kind, "x"): own[kind].x.requires_grad_() for kind in WIDTHS}
    if name in WITH_ATTRIBUTES:
        leaves |= {(kind, "edge_attr"): own[kind].edge_attr.requires_grad_() for kind in KINDS}
    for why in found:
        value = value_of(model, own, why.index[1], why.target)
        true = dict(zip(leaves, torch.autograd.grad(value, list(leaves.values()), allow_unused=True), strict=True))
        for kind, width in WIDTHS.items():
            expected = true[kind, "x"] if true[kind, "x"] is not None else torch.zeros(COUNTS[kind], width).double()
            torch.testing.assert_close(why.scores[kind], expected, rtol=0, atol=1e-9)
        assert (why.edge_scores is None) == (name not in WITH_ATTRIBUTES)
        for kind, part in (why.edge_scores or {}).items():
            expected = true[kind, "edge_attr"]
            expected = torch.zeros(SIZES[kind], 2).double() if expected is None else expected
            torch.testing.assert_close(part, expected, rtol=0, atol=1e-9)
    assert float(found[0].scores["movie"].abs().max()) > 1e-4


@pytest.mark.parametrize("name", one_in(2, NAMES))
def test_occlusion_is_a_run_with_one_number_set_to_0(name):
    model, data, why = ask(name, 2, ("movie", 2), method="occlusion")
    with torch.no_grad():
        for kind, width in WIDTHS.items():
            for node in range(COUNTS[kind]):
                for feature in range(width):
                    x = data[kind].x.clone()
                    x[node, feature] = 0.0
                    lost = why.value - float(value_of(model, moved(data, kind, "x", x), 2, why.target))
                    assert float(why.scores[kind][node, feature]) == pytest.approx(lost, abs=1e-9)
        for kind, part in (why.edge_scores or {}).items():
            for column in range(SIZES[kind]):
                attributes = data[kind].edge_attr.clone()
                attributes[column, 1] = 0.0
                lost = why.value - float(value_of(model, moved(data, kind, "edge_attr", attributes), 2, why.target))
                assert float(part[column, 1]) == pytest.approx(lost, abs=1e-9)


def test_integrated_gradients_add_up_and_gradient_times_input_is_their_product():
    model, data, why = ask("graphconv edge_weight", 3, ("movie", 1), method="integrated_gradients")
    nothing_left = data.clone()
    for kind in WIDTHS:
        nothing_left[kind].x = torch.zeros_like(data[kind].x)
    with torch.no_grad():
        without = float(value_of(model, nothing_left, 1, why.target))
    total = sum(float(part.sum()) for part in why.per_node().values())
    assert total == pytest.approx(why.value - without, abs=1e-8)
    slopes, products = (ew.features(model, data, ("movie", 1), method=m) for m in ("gradient", "gradient_x_input"))
    for kind in WIDTHS:
        torch.testing.assert_close(products.scores[kind], slopes.scores[kind] * data[kind].x, rtol=0, atol=1e-10)
        torch.testing.assert_close(products.per_feature()[kind], products.scores[kind].sum(dim=0))


def test_results_name_types_and_features_and_come_back_from_a_file(tmp_path):
    model, data = typed_model("sage sum", 1)
    data["user"].feature_names = ["age", "debt", "rank", "score"]
    found = ew.features(model, data, ("movie", [0, 3]))
    why = found.of(("movie", 3))
    assert why.index == ("movie", 3)
    for score, (kind, node), feature, *name in why.top(20, by="magnitude"):
        assert float(why.scores[kind][node, feature]) == score
        assert name == ([data["user"].feature_names[feature]] if kind == "user" else [])
    found.save(tmp_path / "features.npz")
    again = ew.load(tmp_path / "features.npz")
    assert again.to_rows() == found.to_rows()
    for kind in WIDTHS:
        assert torch.equal(again[1].scores[kind], why.scores[kind])
    strongest = ew.features(model, data, ("movie", 3), top=2)
    assert strongest.top(5, by="magnitude") == why.top(2, by="magnitude")
    data["user"].feature_names = ["age"]
    with pytest.raises(ew.InputError, match="a name for each of the 4 features"):
        ew.features(model, data, ("movie", 3))


def test_whole_typed_graphs_have_feature_scores_too():
    torch.manual_seed(0)
    model, graphs = Pooled().double().eval(), [graph(0), graph(1, drugs=2, genes=6), graph(3, drugs=7, genes=1)]
    for method in ("gradient", "occlusion"):
        for why, data in zip(ew.features(model, graphs, task="graph", method=method), graphs, strict=True):
            batch = {name: torch.zeros(data[name].num_nodes, dtype=torch.long) for name in GRAPH_WIDTHS}
            leaves = {name: data[name].x.clone().requires_grad_() for name in GRAPH_WIDTHS}
            value = model(leaves, data.edge_index_dict, batch)[0, why.target]
            true = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
            for (name, leaf), slope in zip(leaves.items(), true, strict=True):
                if method == "gradient":
                    expected = torch.zeros_like(leaf) if slope is None else slope
                    torch.testing.assert_close(why.scores[name], expected, rtol=0, atol=1e-10)
                elif len(leaf):
                    changed = {**{k: v.detach() for k, v in leaves.items()}, name: leaf.detach().clone()}
                    changed[name][-1, 0] = 0.0
                    with torch.no_grad():
                        lost = why.value - float(model(changed, data.edge_index_dict, batch)[0, why.target])
                    assert float(why.scores[name][-1, 0]) == pytest.approx(lost, abs=1e-9)


def test_gradients_that_an_encoder_stops_are_refused_and_other_methods_named():
    class Frozen(Stacked):
        def forward(self, x_dict, edge_index_dict):
            with torch.no_grad():
                x_dict = {name: 2 * x for name, x in x_dict.items()}
            return super().forward(x_dict, edge_index_dict)

    torch.manual_seed(0)
    model, (_, data) = Frozen(lambda kind, widths: SAGEConv(widths, HIDDEN)).double().eval(), typed_model("sage sum", 1)
    with pytest.raises(ew.ModelError, match="not the derivative"):
        ew.features(model, data, ("movie", 3))
    assert ew.features(model, data, ("movie", 3), method="occlusion").top(1)
    with pytest.raises(ew.InputError, match="a HeteroData has one for each edge type"):
        ew.features(model, data, ("movie", 3), method="cam")


def test_categories_are_left_out_and_a_graph_of_categories_is_refused():
    class Embedded(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.one = nn.Embedding(20, 4), SAGEConv((4, 5), 3)

        def forward(self, x_dict, edge_index_dict):
            return {"movie": self.one((self.table(x_dict["user"]), x_dict["movie"]), edge_index_dict[KINDS[0]])}

    torch.manual_seed(0)
    _, data = typed_model("sage sum", 0)
    data["user"].x = torch.arange(9)
    why = ew.features(Embedded().double().eval(), data, ("movie", 2))
    assert why.scores["user"].shape == (9, 0)
    assert why.scores["movie"].shape == (7, 5)


def test_the_command_names_types_nodes_and_features(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path)
    net = ("--model", "net.py:Net", "--weights", "weights.pt", "--data", "shop")
    (one,) = printed("features", *net, "--index", "account:Bob")["targets"]
    why = ew.features(network(), by_hand(tables()), ("account", 1))
    names = {"account": ["age", "debt"], "card": ["limit"], "merchant": ["risk", "size", "rating"]}
    for told, (score, node, feature) in zip(one["features"], why.top(10, by="magnitude"), strict=True):
        assert told["score"] == pytest.approx(score, abs=1e-5)
        assert (tuple(told["node"]), told["name"]) == (node, names[node[0]][feature])
    assert "one for each edge type" in error("features", *net, "--index", "account:Bob", "--method", "cam")
    printed("features", *net, "--index", "account:a0,a1", "--out", "rows.csv")
    assert (
        (tmp_path / "rows.csv")
        .read_text()
        .splitlines()[0]
        .startswith("position,index_type,index,target,score,node_type")
    )
