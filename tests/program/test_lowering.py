"""The lowered way against its slow twin, the user's own model: the same scores, for every layer and part we claim to know.

Both sides are the same sums in another order, in float64: 1e-9 is ample. What happens around the comparison counts too:
a known part must really be lowered (`settings["way"]`), an unknown one must not be.
"""

import logging
import warnings
from contextlib import contextmanager
from functools import partial
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import (
    GAT,
    GCN,
    GIN,
    MLP,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphConv,
    GraphSAGE,
    JumpingKnowledge,
    LayerNorm,
    SAGEConv,
    SGConv,
    TransformerConv,
)
from torch_geometric.utils import remove_self_loops

import edgewise as ew
import oracles
import zoo
from checks import LEVELS, assert_close, one_in, own_scores_of, quietly, scores_of
from edgewise.program import layers as lowered_layers
from edgewise.question import node_model
from pyg_versions import RESIDUAL
from zoo import CLASSES, EDGE_FEATURES, FEATURES, WIDTH, Chain, ChainWithAttributes, ChainWithWeights, Residual, mlp

# A gradient of 0 may come out as 1e-17 the other way round; no generic score is that small.
METHODS = {
    "gradient": {},
    "positive_gradient": {"epsilon": 1e-8},
    "occlusion": {},
    "integrated_gradients": {"steps": 3},
    "gnn_explainer": {"epochs": 5},
}
QUICK = ["gradient", "occlusion", "gnn_explainer"]
# Node 1 three times, once for each class; 5 is isolated, 7 has no in-edges.
ASKED = {"index": [1, 4, 1, 5, 7, 1], "target": [0, 2, 1, 1, 0, 2]}


@contextmanager
def through_the_model():
    """Nothing is lowered, and nothing lowered is remembered; the warning that this is slow is expected."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        patch.setattr(node_model, "lower_nodes", lambda *_: None)
        yield


def assert_same(found, expected, what):
    assert_close(scores_of(found), scores_of(expected), 1e-9, what)
    own, expected_own = own_scores_of(found), own_scores_of(expected)
    assert (own is None) == (expected_own is None), f"{what}: only one way has self scores"
    if own is not None:
        assert_close(own, expected_own, 1e-9, f"self scores of {what}")


def assert_ways_agree(model, data, *, methods=METHODS, ways=("lowered",), **asked):
    """Every method at both levels, lowered and through the model."""
    for method in methods:
        for level in LEVELS:
            options = {"method": method, "level": level, **METHODS[method], **asked}
            found = ew.explain(model, data, **options)
            with through_the_model():
                expected = ew.explain(model, data, **options)
            assert found[0].settings["way"] in ways, f"{method}: taken was {found[0].settings['way']!r}"
            assert expected[0].settings["way"] != "lowered", "the twin must be another way"
            assert_same(found, expected, f"{method} at {level} level")


def everything(*, weighted=True):
    """Loops, some of them parallel, parallel edges, an isolated node, a node without in-edges; columns in no order."""
    return zoo.graph(zoo._EVERYTHING, 8, weighted=weighted)


# Layer by layer #######################################################################################################


def _two(make, kind=Chain, **options):
    return lambda: kind(make(FEATURES, WIDTH), make(WIDTH, CLASSES), **options)


def _heads(conv, **options):
    """Heads concatenated, then averaged."""
    kind = ChainWithAttributes if "edge_dim" in options else Chain
    return lambda: kind(conv(FEATURES, 2, heads=3, **options), conv(6, CLASSES, heads=2, concat=False, **options))


LAYERS = {
    "gcn": lambda: Chain(GCNConv(FEATURES, WIDTH), GCNConv(WIDTH, WIDTH), GCNConv(WIDTH, CLASSES)),
    "gcn, one layer": lambda: Chain(GCNConv(FEATURES, CLASSES)),
    "gcn, wider than its features": lambda: Chain(GCNConv(FEATURES, 9), GCNConv(9, CLASSES)),
    "gcn, no added loops": _two(partial(GCNConv, add_self_loops=False)),
    "gcn, improved": _two(partial(GCNConv, improved=True)),
    "gcn, not normalised": _two(partial(GCNConv, normalize=False)),
    "gcn, no bias": _two(partial(GCNConv, bias=False)),
    "gcn, weights": _two(GCNConv, ChainWithWeights),
    "gcn, weights, no added loops": _two(partial(GCNConv, add_self_loops=False), ChainWithWeights),
    "gcn, weights, improved": _two(partial(GCNConv, improved=True), ChainWithWeights),
    "gcn, cached": _two(partial(GCNConv, cached=True)),
    "sage, sum": _two(partial(SAGEConv, aggr="sum")),
    "sage, mean": _two(partial(SAGEConv, aggr="mean")),
    "sage, sum, no root": _two(partial(SAGEConv, aggr="sum", root_weight=False)),
    "sage, mean, no root": _two(partial(SAGEConv, aggr="mean", root_weight=False)),
    "sage, normalised": _two(partial(SAGEConv, normalize=True)),
    "sage, no bias": _two(partial(SAGEConv, bias=False)),
    "gin": _two(lambda a, b: GINConv(mlp(a, b))),
    "gin, trained epsilon": _two(lambda a, b: GINConv(mlp(a, b), train_eps=True)),
    "gin, one matrix": _two(lambda a, b: GINConv(nn.Linear(a, b))),
    "gin, activation first": _two(lambda a, b: GINConv(nn.Sequential(nn.Tanh(), nn.Linear(a, b)))),
    "gin, PyG's MLP": _two(lambda a, b: GINConv(MLP([a, 6, b], act="tanh", norm="batch_norm"))),
    "gin, nothing inside": lambda: Chain(GINConv(nn.Identity()), GINConv(nn.Linear(FEATURES, CLASSES))),
    "gine": _two(lambda a, b: GINEConv(mlp(a, b), edge_dim=EDGE_FEATURES), ChainWithAttributes),
    "gine, trained epsilon": _two(
        lambda a, b: GINEConv(mlp(a, b), train_eps=True, edge_dim=EDGE_FEATURES), ChainWithAttributes
    ),
    "graph conv": _two(GraphConv),
    "graph conv, mean": _two(partial(GraphConv, aggr="mean")),
    "graph conv, weights": _two(GraphConv, ChainWithWeights),
    "graph conv, mean, weights": _two(partial(GraphConv, aggr="mean"), ChainWithWeights),
    "gat": _heads(GATConv),
    "gat, attributes": _heads(GATConv, edge_dim=EDGE_FEATURES),
    "gat, attributes, loops get the sum": _heads(GATConv, edge_dim=EDGE_FEATURES, fill_value="add"),
    "gat, residual": _heads(GATConv, **RESIDUAL),
    "gat, no added loops": _heads(GATConv, add_self_loops=False),
    "gat, no added loops, attributes": _heads(GATConv, add_self_loops=False, edge_dim=EDGE_FEATURES),
    "gatv2": _heads(GATv2Conv),
    "gatv2, shared weights": _heads(GATv2Conv, share_weights=True),
    "gatv2, attributes": _heads(GATv2Conv, edge_dim=EDGE_FEATURES),
    "gatv2, residual": _heads(GATv2Conv, **RESIDUAL),
    "gatv2, no added loops": _heads(GATv2Conv, add_self_loops=False),
    "gatv2, no added loops, attributes": _heads(GATv2Conv, add_self_loops=False, edge_dim=EDGE_FEATURES, **RESIDUAL),
    "transformer": _heads(TransformerConv),
    "transformer, attributes": _heads(TransformerConv, edge_dim=EDGE_FEATURES),
    "transformer, no root": _heads(TransformerConv, root_weight=False),
    "sgc, K = 1": lambda: Chain(SGConv(FEATURES, WIDTH, K=1), SGConv(WIDTH, CLASSES, K=1)),
    "sgc, K = 3": lambda: SGConv(FEATURES, CLASSES, K=3),
    "sgc, cached, between others": lambda: Chain(
        GCNConv(FEATURES, WIDTH), SGConv(WIDTH, WIDTH, K=2), SAGEConv(WIDTH, CLASSES)
    ),
    "a bit of everything": lambda: Chain(
        *[GCNConv(FEATURES, WIDTH), SAGEConv(WIDTH, WIDTH), GINConv(mlp(WIDTH, WIDTH)), GATConv(WIDTH, 2, heads=2)],
        *[GraphConv(WIDTH, WIDTH, aggr="mean"), GATv2Conv(WIDTH, CLASSES)],
    ),
}


with_methods = pytest.mark.parametrize(
    "methods", [pytest.param(QUICK, id="quick"), pytest.param(list(METHODS), id="all", marks=pytest.mark.slow)]
)


@with_methods
@pytest.mark.parametrize("name", LAYERS)
def test_every_known_layer_is_lowered_and_scores_as_the_model_does(name, methods):
    assert_ways_agree(zoo.randomise(LAYERS[name]()), everything(), methods=methods, **ASKED)


# One of each kind of message: a loop, a root, an epsilon, attention, a ReLU on the edge, several calls in one layer.
KINDS = ["gcn", "sage, mean", "gin", "gine", "gat, attributes", "gatv2", "sgc, K = 3", "graph conv, mean, weights"]
SPECIAL = [name for name in zoo.GRAPHS if not name.startswith("everything")]


@pytest.mark.parametrize(("graph_name", "name"), one_in(3, product(SPECIAL, KINDS)))
def test_loops_parallel_edges_and_lonely_nodes_are_lowered_rightly(name, graph_name):
    data = zoo.GRAPHS[graph_name]()
    if "weights" in name and "edge_weight" not in data:
        data.edge_weight = torch.linspace(0.5, 2, data.num_edges, dtype=torch.float64)
    assert_ways_agree(zoo.randomise(LAYERS[name]()), data, methods=["gradient", "occlusion"])


def _against_the_arrows(name):
    model = LAYERS[name]()
    for module in model.modules():
        if hasattr(module, "flow"):
            module.flow = "target_to_source"
    return model


@pytest.mark.parametrize("name", KINDS)
def test_messages_against_the_arrows_are_lowered_rightly(name):
    data = everything()
    assert_ways_agree(zoo.randomise(_against_the_arrows(name)), data, **ASKED, methods=QUICK)


@st.composite
def graphs(draw):
    """Up to nine nodes; loops, parallel edges, lonely nodes and no edges at all come by themselves."""
    nodes = draw(st.integers(1, 9))
    ends = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(ends, ends), max_size=20))
    return zoo.graph(edges, nodes, seed=draw(st.integers(0, 99)), weighted=True)


@pytest.mark.parametrize(
    "name", ["gcn", "gat, attributes", *(pytest.param(n, marks=pytest.mark.slow) for n in ("gine", "sgc, K = 3"))]
)
@given(data=graphs(), seed=st.integers(0, 99), asked=st.data())
def test_on_any_graph_and_for_any_nodes_the_ways_agree(name, data, seed, asked):
    index = asked.draw(st.lists(st.integers(0, data.num_nodes - 1), min_size=1, max_size=6))
    target = asked.draw(st.lists(st.integers(0, CLASSES - 1), min_size=len(index), max_size=len(index)))
    model = zoo.randomise(LAYERS[name](), seed)
    assert_ways_agree(model, data, methods=["gradient", "occlusion"], index=index, target=target)


# What stands between the layers #######################################################################################


class Written(nn.Module):
    """A hand-written model: named parts and a function that joins them."""

    def __init__(self, join, **parts):
        super().__init__()
        self.join = join
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x, edge_index, edge_weight=None):
        return self.join(self, x, edge_index)


def _gcn(inputs=FEATURES, outputs=WIDTH):
    return GCNConv(inputs, outputs)


def _written(join, last=CLASSES, **parts):
    """Two GCN layers `a` and `b`, and whatever else is named."""
    return lambda: Written(join, **{"a": _gcn(), "b": _gcn(WIDTH, last), **parts})


def _in_place(m, x, e):
    h = m.a(x, e)
    h += 0.5
    h *= 2
    out = m.b(h.relu_(), e)
    return out.add_(m.skip(h)).sub_(0.1)


def _dropped(m, x, e):
    h = m.drop(F.relu(m.a(x, e)))
    return m.b(F.dropout(h, p=0.5, training=m.training), e)


def _residual_in_place(m, x, e):
    h = m.a(x, e).tanh()
    out = m.b(h, e)
    out += h
    return m.head(out.tanh())


def _jump(mode):
    def join(m, x, e):
        first = m.a(x, e).tanh()
        return m.head(m.jump([first, m.b(first, e).tanh()]))

    width = 2 * WIDTH if mode == "cat" else WIDTH
    return _written(join, last=WIDTH, jump=JumpingKnowledge(mode), head=nn.Linear(width, CLASSES))


def _activated(activation):
    return _written(lambda m, x, e: m.b(m.act(m.a(x, e)), e), act=activation)


def _norms(norm):
    return [norm(WIDTH), norm(WIDTH)]


def _three(**options):
    return lambda: Chain(_gcn(), SAGEConv(WIDTH, WIDTH), _gcn(WIDTH, CLASSES), **options)


def _basic(kind, **options):
    return lambda: kind(FEATURES, WIDTH, 3, CLASSES, act="tanh", dropout=0.5, **options)


PARTS = {
    "relu": _activated(nn.ReLU()),
    "relu in place": _activated(nn.ReLU(inplace=True)),
    "leaky relu in place": _activated(nn.LeakyReLU(0.2, inplace=True)),
    "elu in place": _activated(nn.ELU(inplace=True)),
    "prelu": _activated(nn.PReLU(WIDTH)),
    "gelu": _activated(nn.GELU()),
    "silu": _activated(nn.SiLU()),
    "softplus": _activated(nn.Softplus()),
    "no activation": _activated(nn.Identity()),
    "batch norm": _three(norms=_norms(nn.BatchNorm1d)),
    "layer norm of torch": _three(norms=_norms(nn.LayerNorm)),
    "layer norm of nodes": _three(norms=_norms(partial(LayerNorm, mode="node"))),
    "dropout": _written(_dropped, drop=nn.Dropout(0.5)),
    "dropout in place": _written(_dropped, drop=nn.Dropout(0.5, inplace=True)),
    "operations in place": _written(_in_place, skip=nn.Linear(WIDTH, CLASSES)),
    "residual": lambda: Residual(lambda: GCNConv(WIDTH, WIDTH), linear=False, after=False),
    "residual after the activation": lambda: Residual(lambda: SAGEConv(WIDTH, WIDTH), linear=False, after=True),
    "residual of gat": lambda: Residual(lambda: GATConv(WIDTH, 2, heads=2), linear=False, after=True),
    "residual through a matrix": lambda: Residual(lambda: GCNConv(WIDTH, WIDTH), linear=True, after=False),
    "residual through a matrix, after": lambda: Residual(lambda: GINConv(mlp(WIDTH, WIDTH)), linear=True, after=True),
    "residual in place": _written(_residual_in_place, last=WIDTH, head=nn.Linear(WIDTH, CLASSES)),
    "residual around the second layer": _written(
        lambda m, x, e: (lambda h: m.b(h, e) + m.skip(h))(m.a(x, e).tanh()), skip=nn.Linear(WIDTH, CLASSES)
    ),
    "long skip": zoo.LongSkip,
    "jumping knowledge, cat": _jump("cat"),
    "jumping knowledge, max": _jump("max"),
    "features beside what was received": _written(
        lambda m, x, e: m.b(torch.cat([x, m.a(x, e).tanh()], dim=-1), e), b=_gcn(FEATURES + WIDTH, CLASSES)
    ),
    "a conv used twice": lambda: zoo.Twice(_gcn(), _gcn(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)),
    "encoder and head": lambda: Written(
        lambda m, x, e: m.head(F.relu(m.a(m.encoder(x), e))),
        a=_gcn(WIDTH, WIDTH),
        encoder=MLP([FEATURES, 6, WIDTH], act="tanh", norm="batch_norm"),
        head=MLP([WIDTH, 6, CLASSES], act="tanh", norm="layer_norm", norm_kwargs={"mode": "node"}, dropout=0.5),
    ),
    "log-softmax at the end": _written(lambda m, x, e: F.log_softmax(m.b(m.a(x, e).relu(), e), dim=1)),
    "registered in another order": zoo.OtherOrder,
    "sequential": zoo.branching_sequence,
    "basic gcn": _basic(GCN),
    "basic gcn, jk max": _basic(GCN, jk="max"),
    "basic sage, batch norm": _basic(GraphSAGE, norm="BatchNorm", jk="cat"),
    "basic sage, act first": _basic(GraphSAGE, norm="BatchNorm", act_first=True),
    "basic gin": _basic(GIN),
    "basic gin, batch norm": _basic(GIN, norm="BatchNorm"),
    "basic gat": _basic(GAT, heads=2, edge_dim=EDGE_FEATURES),
    "basic gatv2": _basic(GAT, v2=True, heads=2, edge_dim=EDGE_FEATURES),
}


@with_methods
@pytest.mark.parametrize("name", PARTS)
def test_every_known_part_is_lowered_and_scores_as_the_model_does(name, methods):
    model = zoo.randomise(PARTS[name]()).train()  # explained in eval mode whatever it is in
    assert_ways_agree(model, everything(weighted=False), methods=methods, **ASKED)
    assert model.training


# The explained number #################################################################################################

_OUTPUTS = {"multiclass": CLASSES, "binary": 1, "regression": 2}
_QUESTIONS = [
    (mode, of) for mode in _OUTPUTS for of in ("logit", "log_prob", "prob") if mode != "regression" or of == "logit"
]


_LAST = {"gcn": GCNConv, "gat": GATConv, "gin": lambda a, b: GINConv(mlp(a, b))}


@pytest.mark.parametrize(("last", "mode", "of"), one_in(4, [(last, *asked) for last in _LAST for asked in _QUESTIONS]))
def test_whatever_number_is_explained_the_ways_agree(mode, of, last):
    model = zoo.randomise(Chain(GCNConv(FEATURES, WIDTH), _LAST[last](WIDTH, _OUTPUTS[mode])))
    target = ASKED["target"] if mode == "multiclass" else [1, 0, 0, 1, 1, 1]
    assert_ways_agree(model, everything(), mode=mode, of=of, index=ASKED["index"], target=target)


def test_a_node_that_is_asked_for_twice_is_answered_for_each_class():
    model, data = zoo.randomise(LAYERS["gcn"]()), everything()
    for method in QUICK:
        options = {"method": method, "level": "layer", **METHODS[method]}
        together = ew.explain(model, data, **ASKED, **options)
        assert together.settings["way"] == "lowered"
        for why, index, target in zip(together, *ASKED.values(), strict=True):
            alone = ew.explain(model, data, index=index, target=target, **options)
            assert (why.index, why.target) == (index, target)
            assert_close(why.scores, alone.scores, 1e-9, method)
    assert not torch.equal(together[0].scores, together[2].scores)  # node 1, classes 0 and 1


# What is not known ####################################################################################################


class LoudGCN(GCNConv):
    """A subclass may do anything: this one sends louder messages."""

    def message(self, x_j, edge_weight):
        return 2 * super().message(x_j, edge_weight).tanh()


class QuietGCN(GCNConv):
    """Nothing is different here, but who knows that?"""


def _unknown(name):
    if name in zoo.BY_NAME:
        return zoo.BY_NAME[name], zoo.BY_NAME[name].build()
    conv = {"a louder subclass": LoudGCN, "an unchanged subclass": QuietGCN}[name]
    return zoo.BY_NAME["gcn"], zoo.randomise(Chain(conv(FEATURES, WIDTH), GCNConv(WIDTH, CLASSES)))


@pytest.mark.parametrize(
    "name",
    [
        *["pna", "transformer_gated", "cheb", "cheb_below_gcn", "sage_max", "sage_projected"],
        *["batch_norm_without_statistics", "layer_norm_of_graphs", "layer_norm_inside_gin", "basic_pna"],
        *["a louder subclass", "an unchanged subclass"],
    ],
)
def test_what_is_not_known_is_not_lowered_and_still_right(name):
    case, model = _unknown(name)
    data = zoo.GRAPHS["everything_once"]()
    numbers = oracles.Numbers(model, data)
    with quietly(case):
        found = {method: ew.explain(model, data, method=method, level="layer") for method in ("gradient", "occlusion")}
    assert all(why.settings["way"] != "lowered" for why in found.values())
    expected, _ = oracles.layer_gradient(numbers, *numbers.ones())
    assert_close(scores_of(found["gradient"]), expected, 1e-9)
    assert_close(scores_of(found["occlusion"]), oracles.layer_occlusion(numbers), 1e-9)


def _forgets_loops(conv, calls, data):
    (layer,) = lowered_layers.lower_gcn(conv, calls, data)
    return [type(layer)(layer.coefficient, matrix=layer.matrix, bias=layer.bias)]


def _deaf_to_weights(conv, calls, data):
    """Right at ω = 1 and nowhere else."""
    (layer,) = lowered_layers.lower_gcn(conv, calls, data)

    class DeafLayer(type(layer)):
        def forward(self, table, hop, weight, own):
            return super().forward(table, hop, torch.ones_like(weight), own)

    return [DeafLayer(layer.coefficient, matrix=layer.matrix, loop=layer.loop, bias=layer.bias)]


@pytest.mark.parametrize("wrong", [_forgets_loops, _deaf_to_weights])
def test_a_lowering_that_does_not_reproduce_the_model_is_never_used(monkeypatch, wrong):
    model, data = zoo.randomise(LAYERS["gcn"]()), everything()
    monkeypatch.setitem(lowered_layers._KNOWN, GCNConv, wrong)
    found = ew.explain(model, data, level="layer")
    assert found.settings["way"] == "copies"
    numbers = oracles.Numbers(model, data)
    assert_close(scores_of(found), oracles.layer_gradient(numbers, *numbers.ones())[0], 1e-9)


def test_the_log_says_which_way_was_taken_and_why_not(caplog):
    data = everything()
    for name, way, reason in [("gcn", "lowered", ""), ("pna", "copies", "PNAConv is not among")]:
        caplog.clear()
        with caplog.at_level(logging.DEBUG, logger="edgewise"):
            found = ew.explain(zoo.BY_NAME[name].build(), data, index=[1])
        assert found[0].settings["way"] == way
        assert f": {way}" in caplog.text
        assert reason in caplog.text


@pytest.mark.parametrize("method", METHODS)
def test_every_method_says_that_it_was_lowered(method):
    for level in LEVELS:
        found = ew.explain(zoo.randomise(LAYERS["gcn"]()), everything(), index=1, method=method, level=level)
        assert found.settings["way"] == "lowered"


# Models that once were answered wrongly, or not at all #################################################################


def _branches(m, x, e):
    return m.a(x, e).tanh() + m.b(x, e)


def _branches_in_the_middle(m, x, e):
    h = m.a(x, e).tanh()
    return m.c(m.b(h, e) + m.d(h, e).tanh(), e)


def _unused(m, x, e):
    h = m.a(x, e)
    m.b(h, e)
    return h


def _gate(m, x, e):
    gate = m.gate(x, e).squeeze(-1)
    h = m.b(m.a(x, e) * gate.sigmoid().unsqueeze(-1), e)
    return h * gate.unsqueeze(-1)


def _stack(m, x, e):
    h = m.a(x, e)
    stacked = torch.stack([h, h.tanh()], dim=-1)
    return (m.b(h, e).unsqueeze(-1) * stacked).sum(dim=-1)


def _heads_as_rows(m, x, e):
    return m.head(m.a(x, e).tanh().view(-1, 2)).view(-1, 4)


ODD = {
    "two convs read the features": lambda: Written(_branches, a=_gcn(outputs=CLASSES), b=SAGEConv(FEATURES, CLASSES)),
    "two convs read one hidden layer": lambda: Written(
        _branches_in_the_middle, a=_gcn(), b=_gcn(WIDTH, WIDTH), c=_gcn(WIDTH, CLASSES), d=SAGEConv(WIDTH, WIDTH)
    ),
    "a call whose output is not read": lambda: Written(_unused, a=_gcn(outputs=CLASSES), b=_gcn(CLASSES, CLASSES)),
    "a gate, one number a node, over a call": _written(_gate, gate=_gcn(outputs=1)),
    "a stack over a call": _written(_stack, a=_gcn(outputs=CLASSES), b=_gcn(CLASSES, CLASSES)),
    "several rows a node": _written(_heads_as_rows, head=nn.Linear(2, 2)),
    "the larger of two layers": _written(
        lambda m, x, e: (lambda h: m.head(torch.max(h, m.b(h, e))))(m.a(x, e).tanh()),
        last=WIDTH,
        head=nn.Linear(WIDTH, CLASSES),
    ),
    "a mask of nodes": _written(lambda m, x, e: m.b(m.a(x, e) * m.mask, e), mask=None),
    "a feature added to a vector of outputs": _written(
        lambda m, x, e: m.b(m.a(x, e).tanh(), e).squeeze(-1) + m.encoder(x).squeeze(-1),
        last=1,
        encoder=nn.Linear(FEATURES, 1),
    ),
}


@with_methods
@pytest.mark.parametrize("index", [[3], [1, 4, 1, 5]])
@pytest.mark.parametrize("name", list(ODD))
def test_an_odd_model_is_explained_rightly_whatever_the_way(name, index, methods):
    model = zoo.randomise(ODD[name]())
    if name == "a mask of nodes":
        model.mask = torch.tensor([[1], [0], [1], [1], [0], [1], [1], [0]])
    ways = ("lowered", "copies", "whole graph")
    assert_ways_agree(model, everything(weighted=False), methods=methods, ways=ways, index=index, target=0)


@pytest.mark.parametrize("conv", [GCNConv, SAGEConv, GraphConv, GATConv, lambda a, b: GINConv(mlp(a, b))])
def test_whole_numbers_as_features_are_fine_for_a_model_that_embeds_them(conv):
    model = Written(
        lambda m, x, e: m.b(m.a(m.table(x.view(-1)), e).tanh(), e),
        table=nn.Embedding(3, WIDTH),
        a=conv(WIDTH, WIDTH),
        b=conv(WIDTH, CLASSES),
    )
    data = everything(weighted=False)
    data.x = (torch.arange(8) % 3).view(-1, 1)
    assert_ways_agree(zoo.randomise(model), data, methods=QUICK, **ASKED)


class WithoutLoops(ChainWithAttributes):
    def forward(self, x, edge_index, edge_attr):
        return super().forward(x, *remove_self_loops(edge_index, edge_attr))


def test_a_model_that_drops_some_edges_itself_is_explained_rightly():
    model = WithoutLoops(
        *(GINEConv(mlp(a, b), edge_dim=EDGE_FEATURES) for a, b in [(FEATURES, WIDTH), (WIDTH, CLASSES)])
    )
    data = everything(weighted=False)
    assert_ways_agree(zoo.randomise(model), data, ways=("lowered", "copies"), methods=QUICK, **ASKED)
    loops = data.edge_index[0] == data.edge_index[1]
    assert (scores_of(ew.explain(model, data))[:, loops] == 0).all()
