"""Links against the slow twin on the whole graph, in float64: gradients, occlusion, ways to run, targets and refusals."""

import contextlib
import copy

import pytest
import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GAE, GCNConv, GraphConv

import edgewise as ew
from checks import assert_close
from footprint import Footprint
from link_models import FEATURES, MODELS, PAIRS, Centred, Dot, Encoder, Marked, SlowPair, link_graph, make_model
from zoo import randomise

TOLERANCE = 1e-9


def scores(found):
    return torch.stack([why.scores for why in found])


@pytest.mark.parametrize("without_itself", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_autograd_on_the_whole_graph(name, without_itself):
    model, data = make_model(name), link_graph()
    found = ew.explain(model, data, PAIRS, task="link", level="layer", without_itself=without_itself)
    at_input = ew.explain(model, data, PAIRS, task="link", without_itself=without_itself)
    for why, total, pair in zip(found, at_input, PAIRS, strict=True):
        slow = SlowPair(model, data, pair, without_itself=without_itself)
        weight, own = (part.requires_grad_() for part in slow.ones())
        value = slow(weight, own)
        gradients = torch.autograd.grad(value, [weight, own], allow_unused=True)
        of_edge, of_own = (
            torch.zeros_like(w) if g is None else g for w, g in zip((weight, own), gradients, strict=True)
        )
        assert why.index == pair
        assert why.value == pytest.approx(float(value.detach()), abs=TOLERANCE)
        assert_close(why.scores, of_edge, TOLERANCE)
        assert_close(total.scores, of_edge.sum(dim=0), TOLERANCE)
        if name != "sage, jumping":  # its skip belongs to no layer
            assert_close(why.self_scores, of_own, TOLERANCE)
        assert not bool(why.scores[:, ~slow.kept].any())


@pytest.mark.parametrize("without_itself", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_occlusion_is_a_rerun_with_one_weight_zero(name, without_itself):
    model, data = make_model(name), link_graph(1)
    options = {"task": "link", "method": "occlusion", "without_itself": without_itself}
    layered = ew.explain(model, data, PAIRS[:5], level="layer", **options)
    shared = ew.explain(model, data, PAIRS[:5], **options)
    for layers, edges, pair in zip(layered, shared, PAIRS, strict=False):
        slow = SlowPair(model, data, pair, without_itself=without_itself)
        weight, _ = slow.ones()
        with torch.no_grad():
            value = slow(weight)
            for column in range(data.edge_index.size(1)):
                for layer in (0, 1):
                    off = weight.clone()
                    off[layer, column] = 0
                    assert float(value - slow(off)) == pytest.approx(float(layers.scores[layer, column]), abs=TOLERANCE)
                off = weight.clone()
                off[:, column] = 0
                assert float(value - slow(off)) == pytest.approx(float(edges.scores[column]), abs=TOLERANCE)


@pytest.mark.parametrize("name", ["gcn, dot", "sage, mlp"])
def test_gradients_are_finite_differences(name):
    model, data = make_model(name, seed=3), link_graph(3)
    why, slow, step = ew.explain(model, data, (0, 1), task="link", level="layer"), SlowPair(model, data, (0, 1)), 1e-5
    for layer in (0, 1):
        for column in range(data.edge_index.size(1)):
            up, down = (slow.ones()[0] for _ in range(2))
            up[layer, column] += step
            down[layer, column] -= step
            slope = float((slow(up) - slow(down)).detach()) / (2 * step)
            assert slope == pytest.approx(float(why.scores[layer, column]), abs=1e-6)


# The whole graph has other players around a subgraph; the steps of a decoder are not known.
SAME_EVERYWHERE = sorted(
    name for name, row in ew.methods().items() if not (row.is_drawn or row.stepwise) and name != "subgraphx"
)


@pytest.mark.parametrize("name", ["gcn, dot", "gin, mlp"])
@pytest.mark.parametrize("method", SAME_EVERYWHERE)
def test_every_method_gives_the_same_lowered_by_copies_and_on_the_whole_graph(name, method):
    model, data = make_model(name), link_graph()
    settings = {"epochs": 5} if "explainer" in method else {"samples": 3} if method == "shapley" else {}
    for level in ew.methods()[method].levels:
        ask = ew.Question(model, data, PAIRS, task="link")
        first = ask.explain(method, level, **settings)
        ask._posed.link_model.is_lowered = False
        second = ask.explain(method, level, **settings)
        ask._posed.link_model.local = False
        third = ask.explain(method, level, **settings)
        assert_close(scores(second), scores(first), 1e-8)
        assert_close(scores(third), scores(first), 1e-8)
        if method in ("gradient", "occlusion", "gnn_explainer"):
            assert [found.settings["way"] for found in (first, second, third)] == ["lowered", "copies", "whole graph"]


def test_random_numbers_belong_to_the_pair_and_not_to_its_place():
    model, data = make_model("gcn, dot"), link_graph()
    for method in ("random", "gnn_explainer", "shapley"):
        settings = {"gnn_explainer": {"epochs": 3}, "shapley": {"samples": 2}}.get(method, {})
        forwards = ew.explain(model, data, PAIRS[:4], task="link", method=method, **settings)
        alone = ew.explain(model, data, PAIRS[2], task="link", method=method, **settings)
        assert_close(forwards[2].scores, alone.scores, 1e-12)


def test_a_decoder_that_reads_two_layers_is_run_by_copies():
    found = ew.explain(make_model("sage, jumping"), link_graph(), PAIRS, task="link")
    assert found.settings["way"] == "copies"
    assert ew.explain(make_model("gcn, dot"), link_graph(), PAIRS, task="link").settings["way"] == "lowered"


class Skipping(Dot):
    """The decoder reads what the only layer read, too."""

    def __init__(self):
        super().__init__("gcn")
        self.only = GCNConv(FEATURES, FEATURES, add_self_loops=False)

    def forward(self, x, edge_index, edge_label_index):
        hidden = x.softmax(dim=-1)
        rows = torch.cat([self.only(hidden, edge_index), hidden], dim=-1)
        return self.decode(rows, edge_label_index)


def test_what_skips_the_last_layer_is_its_own_term_however_it_is_run():
    model, data = randomise(Skipping()), link_graph()
    ask = ew.Question(model, data, [(1, 5)], task="link")
    for why in (*ask.explain(), *ask.of([(2, 6), (1, 5)]).explain()):
        u, v = why.index
        with torch.no_grad():
            hidden = data.x.softmax(dim=-1)
            rows = torch.cat([model.only(hidden, data.edge_index), hidden], dim=-1)
        own = torch.zeros(10, dtype=torch.float64)  # the slope of (…, s_u h_u) · (…, s_v h_v)
        own[u] += hidden[u] @ rows[v, FEATURES:]
        own[v] += hidden[v] @ rows[u, FEATURES:]
        assert_close(why.self_scores, own, TOLERANCE)


@pytest.mark.parametrize("kind", [Centred, Marked])
def test_models_that_are_not_local_are_run_on_the_whole_graph(kind):
    model, data = randomise(kind("sage")), link_graph()
    with pytest.warns(ew.LocalityWarning):
        found = ew.explain(model, data, PAIRS[:3], task="link", level="layer")
    assert found.settings["way"] == "whole graph"
    for why, pair in zip(found, PAIRS, strict=False):
        slow = SlowPair(model, data, pair)
        weight = slow.ones()[0].requires_grad_()
        (gradient,) = torch.autograd.grad(slow(weight), weight)
        assert_close(why.scores, gradient, TOLERANCE)


def large_graph():
    """A ring of 9,000 nodes with chords: large enough to be cut."""
    size = 9000
    ring = torch.arange(size)
    ends = torch.stack([torch.cat([ring, ring]), torch.cat([(ring + 1) % size, (ring + 7) % size])])
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size, FEATURES, generator=generator, dtype=torch.float64)
    x = torch.cat([x, torch.zeros(size, 20, dtype=torch.float64)], dim=1)
    return Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], dim=1))


class Wide(Dot):
    def encode(self, x, edge_index):
        return super().encode(x[:, :FEATURES], edge_index)


@pytest.mark.parametrize("without_itself", [False, True])
@pytest.mark.parametrize("conv", ["gcn", "sage"])
def test_a_large_graph_is_cut_around_both_ends(conv, without_itself):
    model, data = randomise(Wide(conv)), large_graph()
    pairs = [(10, 11), (5000, 3), (8999, 6)]
    ask = ew.Question(model, data, pairs, task="link", without_itself=without_itself)
    assert not ask._posed.cut.is_whole
    for asked, found in ((pairs, ask.explain(level="layer")), ([(77, 78)], ask.of([(77, 78)]).explain(level="layer"))):
        for why, pair in zip(found, asked, strict=True):
            slow = SlowPair(model, data, pair, without_itself=without_itself)
            weight = slow.ones()[0].requires_grad_()
            (gradient,) = torch.autograd.grad(slow(weight), weight)
            assert_close(why.scores, gradient, TOLERANCE)


# --- the number ---------------------------------------------------------------------------------------------------------


def test_the_number_speaks_for_a_link_whatever_its_sign():
    model, data = make_model("gcn, distmult"), link_graph()
    found = ew.explain(model, data, PAIRS, task="link")
    against = ew.explain(model, data, PAIRS, task="link", target=0)
    assert set(found.target.tolist()) == {1}
    assert bool((found.value < 0).any())
    assert torch.equal(against.value, -found.value)
    assert_close(scores(against), -scores(found), 1e-12)
    likely = ew.explain(model, data, PAIRS, task="link", of="prob")
    assert_close(likely.value, found.value.sigmoid(), 1e-12)


def test_under_a_sigmoid_the_logit_is_explained():
    model, data = make_model("gcn, distmult"), link_graph()
    found = ew.explain(model, data, PAIRS, task="link")
    assert found.settings["output"] == "prob"
    pairs = torch.tensor(PAIRS).t()
    with torch.no_grad():
        true = model.decode(model.encode(data.x, data.edge_index), pairs)
    assert_close(found.value.sigmoid(), true, 1e-12)


def test_pyg_autoencoders_and_own_calls_are_understood():
    class Own(Encoder):
        def forward(self, x, edge_index):
            return self.encode(x, edge_index)

    autoencoder, data = randomise(GAE(Own("sage"))), link_graph()
    model = autoencoder.encoder

    def score(called, graph, pairs):
        z = called(graph.x, graph.edge_index)
        return (z[pairs[0]] * z[pairs[1]]).sum(dim=-1)

    by_hand = ew.explain(model, data, PAIRS, task="link", forward=score)
    as_autoencoder = ew.explain(autoencoder, data, PAIRS, task="link")
    assert as_autoencoder.settings["output"] == "prob"
    assert_close(scores(as_autoencoder), scores(by_hand), 1e-12)
    with pytest.raises(ew.ModelError, match="edge_label_index"):
        ew.explain(randomise(GCNConv(FEATURES, 2)), data, (0, 1), task="link")


def test_edge_weights_follow_the_columns_that_stay():
    class Weighted(Encoder):
        def encode(self, x, edge_index, edge_weight):
            return self.second(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)

        decode = Dot.decode

    model, data = randomise(Weighted("gcn")), link_graph()
    data.edge_weight = torch.rand(data.edge_index.size(1), dtype=torch.float64) + 0.5
    why = ew.explain(model, data, (0, 1), task="link", without_itself=True)
    source, receiver = data.edge_index
    kept = ~(((source == 0) & (receiver == 1)) | ((source == 1) & (receiver == 0)))
    with torch.no_grad():
        z = model.encode(data.x, data.edge_index[:, kept], data.edge_weight[kept])
    assert why.value == pytest.approx(float((z[0] * z[1]).sum()), abs=TOLERANCE)


# --- which pairs --------------------------------------------------------------------------------------------------------


def test_every_way_to_name_pairs_means_the_same():
    model, data = make_model("gcn, dot"), link_graph()
    expected = scores(ew.explain(model, data, PAIRS, task="link"))
    both = torch.tensor(PAIRS).t()
    given = copy.copy(data)
    given.edge_label_index, given.edge_label = both, torch.ones(len(PAIRS))
    for index in (both, both.numpy(), tuple(PAIRS), [list(pair) for pair in PAIRS]):
        assert_close(scores(ew.explain(model, data, index, task="link")), expected, 0)
    assert_close(scores(ew.explain(model, given, task="link")), expected, 0)
    one = ew.explain(model, data, PAIRS[3], task="link")
    assert isinstance(one, ew.Explanation)
    assert one.index == PAIRS[3]
    assert_close(one.scores, expected[3], 1e-12)
    assert len(ew.explain(model, data, [PAIRS[3]], task="link")) == 1


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ([2, 5], "Write a tuple, index=\\(2, 5\\)"),
        (None, "edge_label_index"),
        ((1, 10), "0 to 9"),
        ((-1, 2), "got -1"),
        ((1, 2, 3), "pairs of nodes"),
        ([(1, 2, 3)], "pairs of nodes"),
        ([], "at least one pair"),
        (7, "pairs of nodes"),
        ("3:4", "pairs of nodes"),
        ((True, 2), "pairs of nodes"),
        ((1.0, 2), "pairs of nodes"),
        (torch.zeros(3, 2, dtype=torch.long), "index.t\\(\\)"),
        (torch.zeros(2, 3), "whole numbers"),
        (torch.tensor([1, 2]), "\\[2, T\\]"),
    ],
)
def test_what_names_no_pairs_is_refused(index, said):
    with pytest.raises(ew.InputError, match=said):
        ew.explain(make_model("gcn, dot"), link_graph(), index, task="link")


def test_what_is_no_link_task_is_refused():
    model, data = make_model("gcn, dot"), link_graph()
    with pytest.raises(ew.InputError, match="links of one graph"):
        ew.explain(model, [data], (0, 1), task="link")
    with pytest.raises(ew.InputError):
        ew.explain(model, HeteroData(), (0, 1), task="link")
    with pytest.raises(ew.SettingError, match="task='link'"):
        ew.explain(model, data, 3, without_itself=True)
    with pytest.raises(ew.ModelError, match="one number for each"):
        ew.explain(model, data, (0, 1), task="link", forward=lambda m, d, pairs: m.encode(d.x, d.edge_index)[pairs[0]])
    with pytest.raises(ew.SettingError, match="Choose one of: node, graph"):
        ew.walk_relevance(model, data, (0, 1), walks=[(0, 0, 0)], task="link")


def test_nothing_is_left_behind():
    for name in ("gcn, dot", "sage, jumping"):
        model, data = make_model(name), link_graph()
        data.edge_label_index = torch.tensor(PAIRS).t()
        before = Footprint(model, data)
        for options in ({}, {"without_itself": True}, {"method": "occlusion"}):
            ew.explain(model, data, task="link", **options)
        with pytest.raises(ew.InputError):
            ew.explain(model, data, (0, 99), task="link")
        before.assert_unchanged()


class WithMean(nn.Module):
    """Behind the last layer, every row is compared with the mean of all."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.score = GraphConv(4, 3), nn.Linear(6, 1)

    def encode(self, x, edge_index):
        z = self.conv(x, edge_index)
        return z + z.mean(0)

    def decode(self, z, pairs):
        return self.score(torch.cat([z[pairs[0]], z[pairs[1]]], dim=1).tanh()).view(-1)


@pytest.mark.filterwarnings("ignore::edgewise.errors.LocalityWarning")
@pytest.mark.parametrize("has_attributes", [True, False])
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_mean_over_all_nodes_is_none_over_ends_where_all_rows_are_equal(nodes, has_attributes):
    """Of one node all ends are the same, and so are all copies: their values show no mean over them."""
    model = WithMean().double().eval()
    data = Data(
        x=torch.randn(1, 4, dtype=torch.float64).repeat(nodes, 1), edge_index=torch.zeros(2, 4, dtype=torch.long)
    )
    if has_attributes:  # whether they are read is tried with one pair alone
        data.edge_attr = torch.ones(4, 1, dtype=torch.float64)
    pairs = torch.tensor([[0, 0, 0], [0, nodes - 1, 0]])
    score = model.decode(model.encode(data.x, data.edge_index), pairs)
    lost = data.edge_index[:, 1:]
    found = ew.explain(model, data, pairs, task="link", method="occlusion")
    for place, why in enumerate(found):
        without = model.decode(model.encode(data.x, lost), pairs[:, place : place + 1])
        assert abs(float((why.scores.view(-1)[0] - (score[place] - without)).detach())) < 1e-12

    def check(found, method):
        for place, why in enumerate(found):
            x = data.x.clone().requires_grad_()
            value = model.decode(model.encode(x, data.edge_index), pairs[:, place : place + 1])
            expected = torch.autograd.grad(value.sum(), x)[0][0, 2]
            if method == "occlusion":
                changed = data.x.clone()
                changed[0, 2] = 0
                expected = value - model.decode(model.encode(changed, data.edge_index), pairs[:, place : place + 1])
            assert abs(float((why.scores[0, 2] - expected).detach())) < 1e-12

    for method in ("gradient", "occlusion"):
        with contextlib.suppress(ew.ModelError):  # right, or refused
            check(ew.features(model, data, pairs, task="link", method=method), method)
        check([ew.features(model, data, pairs[:, :1], task="link", method=method)[0]], method)
