"""Typed graphs: scores by edge type are those of the user's own model on the user's own `HeteroData`."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import SAGEConv, to_hetero

import edgewise as ew
from checks import one_in
from footprint import Footprint
from typed_zoo import (
    CLASSES,
    COUNTS,
    FOLLOWS,
    HIDDEN,
    KINDS,
    LOWERED,
    NAMES,
    NOT_LOCAL,
    RATED,
    RATES,
    SIZES,
    WIDTHS,
    Plain,
    Stacked,
    call,
    ones,
    typed_graph,
    typed_model,
    weighted_value,
)

NUMBER = {"by hand": "log_prob"}  # its last operation is a log_softmax: the model's own number is the log-probability


def explain(model, data, index, name="", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        return ew.explain(model, data, index, of=NUMBER.get(name, "logit"), **options)


def own_gradient(model, data, number, target):
    weights = {kind: weight.requires_grad_() for kind, weight in ones().items()}
    value = weighted_value(model, data, weights, "movie", number, target)
    found = torch.autograd.grad(value, list(weights.values()), allow_unused=True)
    return {
        kind: torch.zeros_like(weight) if gradient is None else gradient
        for (kind, weight), gradient in zip(weights.items(), found, strict=True)
    }


@pytest.mark.parametrize("seed", one_in(2, [0, 1]))
@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_every_node_are_those_of_the_model_itself(name, seed):
    model, data = typed_model(name, seed)
    found = explain(model, data, {"movie": range(COUNTS["movie"])}, name, level="layer")
    assert found.settings["way"] == ("whole graph" if name in NOT_LOCAL else "lowered" if name in LOWERED else "copies")
    assert found.num_layers == 2  # ten calls, two layers
    moved = 0.0
    for number, why in enumerate(found):
        true = own_gradient(model, data, number, why.target)
        assert list(why.scores) == KINDS
        for kind in KINDS:
            torch.testing.assert_close(why.scores[kind], true[kind], rtol=0, atol=1e-10)
            moved = max(moved, float(true[kind].abs().max()) if SIZES[kind] else 0.0)
    assert moved > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_finite_differences_and_occlusion_is_a_run_without_the_message(name):
    model, data = typed_model(name, 2)
    gradient = explain(model, data, ("movie", 2), name, level="layer")
    occlusion = explain(model, data, ("movie", 2), name, level="layer", method="occlusion")
    joint = explain(model, data, ("movie", 2), name, method="occlusion")
    target = gradient.target
    with torch.no_grad():
        full = weighted_value(model, data, ones(), "movie", 2, target)
        assert float(full) == pytest.approx(gradient.value, abs=1e-12)

        def without(kind, rows, column, value):
            weights = ones()
            weights[kind][rows, column] = value
            return float(weighted_value(model, data, weights, "movie", 2, target))

        for kind in KINDS:
            for column in range(0, SIZES[kind], 2):
                lost = float(full) - without(kind, slice(None), column, 0.0)
                assert float(joint.scores[kind][column]) == pytest.approx(lost, abs=1e-9)
                for layer in (0, 1):
                    lost = float(full) - without(kind, layer, column, 0.0)
                    assert float(occlusion.scores[kind][layer, column]) == pytest.approx(lost, abs=1e-9)
                    up, down = (without(kind, layer, column, 1 + step) for step in (1e-5, -1e-5))
                    assert float(gradient.scores[kind][layer, column]) == pytest.approx((up - down) / 2e-5, abs=1e-6)


def test_self_scores_are_what_root_weights_tell_a_node():
    model, data = typed_model("sage sum", 3)
    why = ew.explain(model, data, ("movie", 1), level="layer")
    assert set(why.self_scores) == set(WIDTHS)
    own = {name: torch.ones(2, count, dtype=torch.float64).requires_grad_() for name, count in COUNTS.items()}
    handles = []
    for layer, convs in enumerate((model.one, model.two)):
        for kind, conv in convs.convs.items():

            def scaled(linear, args, output, weight=own[kind[2]], layer=layer):
                return output * weight[layer].view(-1, 1)

            handles.append(conv.lin_r.register_forward_hook(scaled))
    value = call(model, data)["movie"][1, why.target]
    for handle in handles:
        handle.remove()
    for name, gradient in zip(own, torch.autograd.grad(value, list(own.values()), allow_unused=True), strict=True):
        expected = torch.zeros_like(own[name]) if gradient is None else gradient
        torch.testing.assert_close(why.self_scores[name], expected, rtol=0, atol=1e-10)
    assert float(why.self_scores["movie"].abs().max()) > 1e-3


def test_a_typed_graph_of_one_type_is_explained_like_the_graph_itself():
    torch.manual_seed(0)
    plain = nn.ModuleList([SAGEConv(4, HIDDEN), SAGEConv(HIDDEN, CLASSES)]).double().eval()
    data = typed_graph(4)
    x, edge_index = data["user"].x, data[FOLLOWS].edge_index
    one = HeteroData()
    one["user"].x, one[FOLLOWS].edge_index = x, edge_index
    typed = ew.explain(
        plain,
        one,
        {"user": range(9)},
        level="layer",
        forward=lambda m, d: m[1](m[0](d["user"].x, d[FOLLOWS].edge_index).relu(), d[FOLLOWS].edge_index),
    )
    same = ew.explain(
        plain,
        Data(x=x, edge_index=edge_index),
        level="layer",
        forward=lambda m, d: m[1](m[0](d.x, d.edge_index).relu(), d.edge_index),
    )
    for ours, theirs in zip(typed, same, strict=True):
        torch.testing.assert_close(ours.scores[FOLLOWS], theirs.scores, rtol=0, atol=1e-12)
        torch.testing.assert_close(ours.self_scores["user"], theirs.self_scores, rtol=0, atol=1e-12)


def test_the_same_nodes_in_another_order_of_types_get_the_same_scores():
    model, data = typed_model("mixed", 5)
    turned = HeteroData()
    for name in reversed(data.node_types):
        turned[name].x = data[name].x
    for kind in reversed(data.edge_types):
        turned[kind].edge_index = data[kind].edge_index
    for index in (("user", 3), ("genre", 1)):
        one, other = (ew.explain(model, graph, index) for graph in (data, turned))
        for kind in KINDS:
            torch.testing.assert_close(one.scores[kind], other.scores[kind], rtol=0, atol=1e-12)


def test_a_neighbourhood_without_a_type_still_shows_it_to_the_model():
    """An isolated movie: its copy has no user, no genre and no edge."""
    seen = []

    class Watching(Stacked):
        def forward(self, x_dict, edge_index_dict):
            seen.append((list(x_dict), [tuple(kind) for kind in edge_index_dict]))
            return super().forward(x_dict, edge_index_dict)

    torch.manual_seed(1)
    model = Watching(lambda kind, widths: SAGEConv(widths, HIDDEN)).double().eval()
    data = typed_graph(1)
    why = ew.explain(model, data, ("movie", 6))
    assert all(float(part.abs().sum()) == 0 for part in why.scores.values())
    assert all(types == (list(WIDTHS), KINDS) for types in seen)


def test_a_large_graph_is_cut_and_gives_the_same():
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    data["user"].x = torch.randn(4000, 4, generator=generator, dtype=torch.float64)
    data["movie"].x = torch.randn(3000, 5, generator=generator, dtype=torch.float64)
    data["genre"].x = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    for kind in KINDS:
        most = [data[kind[0]].num_nodes, data[kind[2]].num_nodes]
        size = 0 if kind[0] == "genre" else 24000
        data[kind].edge_index = torch.stack([torch.randint(0, n, (size,), generator=generator) for n in most])
    torch.manual_seed(0)
    model = Stacked(lambda kind, widths: SAGEConv(widths, HIDDEN)).double().eval()
    found = ew.explain(model, data, ("movie", [7, 2999]), level="layer")
    assert found.settings["locality"] == "proved"
    for why in found:
        weights = {kind: torch.ones(2, data[kind].num_edges, dtype=torch.float64).requires_grad_() for kind in KINDS}
        value = weighted_value(model, data, weights, "movie", why.index[1], why.target)
        gradients = torch.autograd.grad(value, list(weights.values()), allow_unused=True)
        for kind, gradient in zip(KINDS, gradients, strict=True):
            expected = torch.zeros_like(weights[kind]) if gradient is None else gradient
            torch.testing.assert_close(why.scores[kind], expected, rtol=0, atol=1e-12)


WALKING = ("lrp", "goat_walks")
EVERY = [("to_hetero sage", method) for method in ew.methods() if method not in WALKING]


@pytest.mark.parametrize(("name", "method"), [*EVERY, ("hgt", "gnn_explainer"), ("hgt", "shapley")])
def test_every_method_has_a_score_for_each_edge_type_at_both_levels(name, method):
    model, data = typed_model(name, 6)
    few = {"epochs": 3} if method == "gnn_explainer" else {"steps": 4} if method == "integrated_gradients" else {}
    for level in ew.methods()[method].levels:
        found = ew.explain(model, data, ("movie", [0, 3]), method=method, level=level, **few)
        rows = (2,) if level == "layer" else ()
        assert [tuple(part.shape) for part in found[1].scores.values()] == [(*rows, SIZES[kind]) for kind in KINDS]
        alone = ew.explain(model, data, ("movie", 3), method=method, level=level, **few)
        for kind in KINDS:
            torch.testing.assert_close(alone.scores[kind], found[1].scores[kind], rtol=1e-6, atol=1e-9)


def test_the_explained_type_decides_which_log_softmax_is_read():
    class Several(Stacked):
        def forward(self, x_dict, edge_index_dict):
            return {name: x.log_softmax(-1) for name, x in super().forward(x_dict, edge_index_dict).items()}

    torch.manual_seed(0)
    model = Several(lambda kind, widths: SAGEConv(widths, HIDDEN)).double().eval()
    data = typed_graph(0)
    logits = Stacked.forward(model, data.x_dict, data.edge_index_dict)
    for name in WIDTHS:
        why = ew.explain(model, data, (name, 2))
        assert why.settings["output"] == "log_prob"
        assert why.value == pytest.approx(float(logits[name][2, why.target].detach()), abs=1e-12)


def test_a_forward_of_the_user_gets_a_typed_graph_with_everything_in_it():
    model, data = typed_model("sage sum", 7)
    data["user"].age = torch.rand(9, dtype=torch.float64)
    data["movie"].title = ["a"] * 7
    data.scale = 2.0

    def forward(model, data):
        x_dict = {**data.x_dict, "user": data["user"].x * data["user"].age.view(-1, 1)}
        return model(x_dict, data.edge_index_dict)["movie"] * data.scale

    aged = copy.copy(data)
    aged["user"].x = data["user"].x * data["user"].age.view(-1, 1)
    one = ew.explain(model, data, ("movie", 3), forward=forward, target=1)
    other = ew.explain(model, aged, ("movie", 3), target=1)
    for kind in KINDS:
        torch.testing.assert_close(one.scores[kind], 2 * other.scores[kind], rtol=0, atol=1e-12)


def test_features_of_different_dtypes_are_handed_on_as_they_are():
    class Embedded(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(20, 4)
            self.one = SAGEConv((4, 5), CLASSES)

        def forward(self, x_dict, edge_index_dict):
            return {"movie": self.one((self.table(x_dict["user"]), x_dict["movie"]), edge_index_dict[RATES])}

    torch.manual_seed(0)
    data, model = typed_graph(0), Embedded().double().eval()
    data["user"].x = torch.arange(9) * 2
    why = ew.explain(model, data, ("movie", 2), level="layer")
    assert why.scores[RATES].shape == (1, SIZES[RATES])
    weights = {kind: torch.ones(2, size, dtype=torch.float64) for kind, size in SIZES.items()}
    weights[RATES].requires_grad_()
    value = weighted_value(model, data, weights, "movie", 2, why.target)
    (true,) = torch.autograd.grad(value, weights[RATES])
    torch.testing.assert_close(why.scores[RATES], true[:1], rtol=0, atol=1e-12)


# --- what is refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (3, "must name a node type"),
        (None, "must name a node type"),
        (("film", 3), "'user', 'movie', 'genre'"),
        (("movie", 7), "between 0 and 6"),
        ({"movie": [1], "user": [2]}, "one node type"),
        (("movie", []), "at least one"),
    ],
)
def test_an_index_that_names_no_node_of_one_type_is_refused(index, text):
    model, data = typed_model("sage sum")
    with pytest.raises(ew.InputError, match=text):
        ew.explain(model, data, index)


def test_rows_of_another_type_are_refused_or_doubted():
    model, data = typed_model("sage sum")
    wrong = lambda model, data: model(data.x_dict, data.edge_index_dict)["user"]  # noqa: E731
    with pytest.raises(ew.ModelError, match="9 rows for 7 nodes of type 'movie'"):
        ew.explain(model, data, ("movie", 3), forward=wrong)
    torch.manual_seed(0)
    data["genre"].x = torch.randn(9, 3, dtype=torch.float64)
    with pytest.warns(ew.OutputWarning, match="'genre' has as many nodes.*forward="):
        ew.explain(model, data, ("user", 3), forward=wrong)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ew.explain(model, data, ("user", 3))  # a dictionary: no doubt


def test_a_type_without_output_is_named():
    model = to_hetero(Plain(lambda n: SAGEConv((-1, -1), n)), (["user", "movie"], [RATES, RATED]))
    data = typed_graph()
    del data["genre"], data["movie", "has", "genre"], data["genre", "tags", "movie"]
    model = model.double().eval()
    with pytest.raises(ew.ModelError, match="lazy layers that have never run"):
        ew.explain(model, data, ("user", 0))
    call(model, data)
    with pytest.raises(ew.InputError, match="'user', 'movie'"):
        ew.explain(model, data, ("genre", 0))
    with pytest.raises(ew.ModelError, match="none of 'user'"):
        ew.explain(model, data, ("user", 0), forward=lambda m, d: {"movie": m(d.x_dict, d.edge_index_dict)["movie"]})


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda *_: ew.walks(*typed_model("hgt"), ("movie", 1)), "walks of this model cannot be followed"),
        (lambda model, data: ew.walks(model, data, ("movie", 1)).to_graphml("typed.graphml"), "typed graph yet"),
        (lambda model, data: ew.explain(model, [data], task="graph"), "one row for each graph"),
    ],
)
def test_what_is_not_built_for_typed_graphs_says_so(ask, text):
    with pytest.raises(ew.EdgewiseError, match=text):
        ask(*typed_model("sage sum"))


def test_a_graph_whose_tables_do_not_fit_is_refused():
    model, data = typed_model("sage sum")
    outside = copy.copy(data)
    outside[RATES].edge_index = torch.tensor([[0], [7]])
    missing = copy.copy(data)
    missing["user"].x = torch.full((9, 4), torch.nan, dtype=torch.float64)
    for wrong, text in ((outside, "rates.*edge_index.*must name nodes from 0 to 6"), (missing, "must be finite")):
        with pytest.raises(ew.InputError, match=text):
            ew.explain(model, wrong, ("movie", 1))


# --- no trace, no stale answers ------------------------------------------------------------------------------------------


def test_nothing_is_left_behind():
    for name in ("to_hetero gat", "hgt", "mixed"):
        model, data = typed_model(name)
        flat = Data(**{f"{'_'.join(key) if isinstance(key, tuple) else key}_{field}": value
                       for key in (*data.node_types, *data.edge_types) for field, value in data[key].items()})  # fmt: skip
        before = Footprint(model, flat)
        ew.explain(model, data, ("movie", [1, 2]), method="occlusion", level="layer")
        with pytest.raises(ew.EdgewiseError):
            ew.explain(model, data, ("movie", 1), target=99)
        before.assert_unchanged()
        assert list(data.node_types) == list(WIDTHS)


def test_a_question_notices_that_its_data_changed():
    model, data = typed_model("sage sum")
    ask = ew.Question(model, data, ("movie", [1, 3]))
    assert ask.index == ("movie", [1, 3])
    assert ask.of(("movie", 2)).index == ("movie", 2)
    assert ask.of(("user", 2)).explain().index == ("user", 2)
    data["user"].x[0] += 1
    with pytest.raises(ew.StaleQuestionError, match=r"user.*x"):
        ask.explain()


def test_occlusion_where_few_nodes_send_to_many():
    """Own terms of more receivers than the call has senders: users read one movie, and movies read users."""
    torch.manual_seed(0)
    data = HeteroData()
    data["user"].x, data["movie"].x, data["genre"].x = (torch.randn(n, w).double() for n, w in ((9, 4), (2, 5), (1, 3)))
    for kind in KINDS:
        ends = [torch.randint(0, data[end].num_nodes, (6,)) for end in (kind[0], kind[2])]
        data[kind].edge_index = torch.stack(ends)
    model = Stacked(lambda kind, widths: SAGEConv(widths, HIDDEN)).double().eval()
    why = ew.explain(model, data, ("user", 0), level="layer", method="occlusion")
    assert why.settings["way"] == "lowered"
    gradient = ew.explain(model, data, ("user", 0), level="layer")
    last = why.self_scores["user"][1, 0]  # the last layer is linear in its own terms
    torch.testing.assert_close(last, gradient.self_scores["user"][1, 0], rtol=0, atol=1e-10)
    assert float(last.abs()) > 1e-4
