"""Graph tasks, lowered: a batch gives each graph what it gets alone and what the user's own model gives, to 1e-9."""

import warnings
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import (
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphConv,
    LayerNorm,
    SAGEConv,
    SGConv,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)

import edgewise as ew
import zoo
from checks import LEVELS, assert_close, one_in
from edgewise.program import layers as lowered_layers
from edgewise.question import graph_question
from zoo import CLASSES, EDGE_FEATURES, FEATURES, WIDTH, Pooled, PooledWithAttributes, mlp

METHODS = {
    "gradient": {},
    "positive_gradient": {"epsilon": 1e-8},  # a gradient of 0 may come out as 1e-17 the other way round
    "occlusion": {},
    "integrated_gradients": {"steps": 3},
    "gnn_explainer": {"epochs": 5},
}


def _plain(data):
    """Without positions: graphs of such attributes only are joined once, and batches are slices."""
    return Data(x=data.x, edge_index=data.edge_index, edge_attr=data.edge_attr)


def molecules():
    """Seven nodes, one node, no edges, loops and parallel edges, one node with two loops, isolated nodes."""
    made = [zoo.GRAPHS["directed"](), zoo.graph([], 1), zoo.GRAPHS["no_edges"](), zoo.GRAPHS["everything"]()]
    made += [zoo.graph([(0, 0), (0, 0)], 1, seed=3), zoo.GRAPHS["isolated"]()]
    return [_plain(data) for data in made]


class EdgeAware(PooledWithAttributes):
    """Two readouts side by side, and an MLP on top of them."""

    def forward(self, x, edge_index, edge_attr, batch):
        x = self.embed(x, edge_index, batch, edge_attr=edge_attr)
        return self.head(global_mean_pool(x, batch) + global_max_pool(x, batch))


def _gine(inputs, outputs):
    return GINEConv(mlp(inputs, outputs), edge_dim=EDGE_FEATURES)


MODELS = {
    "gcn, mean": lambda: Pooled(GCNConv(FEATURES, WIDTH), GCNConv(WIDTH, WIDTH), pool=global_mean_pool),
    "sage, sum": lambda: Pooled(SAGEConv(FEATURES, WIDTH), SAGEConv(WIDTH, WIDTH), pool=global_add_pool),
    "gin, max": lambda: Pooled(GINConv(mlp(FEATURES, WIDTH)), GINConv(mlp(WIDTH, WIDTH)), pool=global_max_pool),
    "graph conv, relu": lambda: Pooled(GraphConv(FEATURES, WIDTH), GraphConv(WIDTH, WIDTH), act=torch.relu),
    "sgc": lambda: Pooled(SGConv(FEATURES, WIDTH, K=2)),
    "gatv2": lambda: Pooled(GATv2Conv(FEATURES, 2, heads=2), GATv2Conv(WIDTH, WIDTH, heads=3, concat=False)),
    "gine and gat, attributes": lambda: PooledWithAttributes(
        _gine(FEATURES, WIDTH), GATConv(WIDTH, 2, heads=2, edge_dim=EDGE_FEATURES)
    ),
    "gine, two readouts": lambda: EdgeAware(_gine(FEATURES, WIDTH), _gine(WIDTH, WIDTH)),
    "layer norm of graphs": lambda: Pooled(GCNConv(FEATURES, WIDTH), GCNConv(WIDTH, WIDTH), norm=LayerNorm(WIDTH)),
    "binary": lambda: Pooled(GraphConv(FEATURES, WIDTH), SAGEConv(WIDTH, WIDTH), out=1),
}


@contextmanager
def through_the_model():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_question, "lower_graphs", lambda *_: None)
        yield


def assert_same(found, expected, what):
    assert len(found) == len(expected)
    for one, two in zip(found, expected, strict=True):
        assert (one.index, one.target, one.num_nodes) == (two.index, two.target, two.num_nodes)
        assert_close(one.scores, two.scores, 1e-9, f"{what} of graph {one.index}")
        assert (one.self_scores is None) == (two.self_scores is None)
        if one.self_scores is not None:
            assert_close(one.self_scores, two.self_scores, 1e-9, f"self scores of {what} of graph {one.index}")


def assert_ways_agree(model, graphs, *, methods=METHODS, ways=("lowered",), **asked):
    for method in methods:
        for level in LEVELS:
            options = {"task": "graph", "method": method, "level": level, **METHODS[method], **asked}
            found = ew.explain(model, graphs, **options)
            with through_the_model():
                expected = ew.explain(model, graphs, **options)
            assert found.settings["way"] in ways, f"{method}: taken was {found.settings['way']!r}"
            assert expected.settings["way"] != "lowered"
            assert_same(found, expected, f"{method} at {level} level")


@pytest.mark.parametrize("name", MODELS)
def test_every_readout_and_layer_is_lowered_and_scores_as_the_model_does(name):
    assert_ways_agree(zoo.randomise(MODELS[name]()), molecules())


@pytest.mark.parametrize("of", ["log_prob", "prob"])
@pytest.mark.parametrize("name", ["gcn, mean", "binary"])
def test_whatever_number_is_explained_the_ways_agree(name, of):
    classes = 2 if name == "binary" else CLASSES
    target = [position % classes for position in range(6)]
    assert_ways_agree(zoo.randomise(MODELS[name]()), molecules(), of=of, target=target)


_IN_BATCHES = ["gcn, mean", "gin, max", "gine and gat, attributes", "layer norm of graphs"]


@pytest.mark.parametrize(("name", "batch_size"), one_in(3, product(_IN_BATCHES, [None, 1, 2, 4])))
def test_graphs_in_batches_get_what_each_gets_alone(monkeypatch, name, batch_size):
    monkeypatch.setattr(graph_question, "BYTES_AT_ONCE", 2**14)
    model, graphs = zoo.randomise(MODELS[name]()), molecules()
    for method in ("gradient", "occlusion", "integrated_gradients"):
        options = {"task": "graph", "method": method, "level": "layer", **METHODS[method]}
        together = ew.explain(model, graphs, batch_size=batch_size, **options)
        assert together.settings["way"] == "lowered"
        for why, graph in zip(together, graphs, strict=True):
            alone = ew.explain(model, graph, **options)
            assert_close(why.scores, alone.scores, 1e-9, f"{method} of graph {why.index}")
            assert_close(why.self_scores, alone.self_scores, 1e-9, f"self scores of {method} of graph {why.index}")
            assert why.value == pytest.approx(alone.value, abs=1e-12)


@pytest.mark.parametrize("index", [[3, 0], [5, 4, 3, 2, 1, 0], [0, 2, 5], [2, 3, 4], [3, 3, 0, 3], [1], slice(1, 6, 2)])
@pytest.mark.parametrize("name", ["gcn, mean", "gine and gat, attributes"])
def test_any_graphs_in_any_order_are_those_asked_for(name, index):
    model, graphs = zoo.randomise(MODELS[name]()), molecules()
    asked = list(range(6))[index] if isinstance(index, slice) else index
    for method in ("gradient", "occlusion", "gnn_explainer"):
        options = {"task": "graph", "method": method, "level": "layer", **METHODS[method]}
        everything = ew.explain(model, graphs, **options)
        found = ew.explain(model, graphs, index=index, **options)
        assert found.settings["way"] == "lowered"
        assert [why.index for why in found] == asked
        assert_same(found, [everything[position] for position in asked], method)
        for why, position in zip(found, asked, strict=True):
            assert torch.equal(why.edge_index, graphs[position].edge_index)


def test_a_graph_asked_for_twice_is_answered_for_each_class():
    model, graphs = zoo.randomise(MODELS["gin, max"]()), molecules()
    assert_ways_agree(model, graphs, index=[3, 0, 3, 3], target=[0, 1, 2, 1])
    found = ew.explain(model, graphs, index=[3, 3], target=[0, 2], task="graph")
    assert not torch.equal(found[0].scores, found[1].scores)


def test_extra_attributes_and_the_kind_of_list_change_nothing():
    model, graphs = zoo.randomise(MODELS["gine and gat, attributes"]()), molecules()
    expected = ew.explain(model, graphs, task="graph", level="layer")
    marked = [graph.clone() for graph in graphs]
    for number, graph in enumerate(marked):
        graph.y, graph.name, graph.mark = torch.tensor([number % 3]), f"graph {number}", torch.zeros(graph.num_nodes)
    for given_as in (marked, tuple(graphs)):
        assert_same(ew.explain(model, given_as, task="graph", level="layer"), expected, "gradient")


def test_a_batch_of_pyg_is_a_list_of_graphs():
    model, graphs = zoo.randomise(MODELS["gcn, mean"]()), molecules()
    found = ew.explain(model, Batch.from_data_list(graphs), task="graph")
    assert isinstance(found, ew.ExplanationSet)
    assert_same(found, ew.explain(model, graphs, task="graph"), "gradient")


@st.composite
def lists_of_graphs(draw):
    made = []
    for _ in range(draw(st.integers(1, 5))):
        nodes = draw(st.integers(1, 6))
        ends = st.integers(0, nodes - 1)
        edges = draw(st.lists(st.tuples(ends, ends), max_size=10))
        made.append(_plain(zoo.graph(edges, nodes, seed=draw(st.integers(0, 99)))))
    return made


@pytest.mark.parametrize("name", ["gin, max", pytest.param("gine and gat, attributes", marks=pytest.mark.slow)])
@given(graphs=lists_of_graphs(), asked=st.data())
def test_any_list_of_graphs_is_lowered_rightly(name, graphs, asked):
    index = asked.draw(st.lists(st.integers(0, len(graphs) - 1), min_size=1, max_size=6))
    batch_size = asked.draw(st.sampled_from([None, 1, 2]))
    model = zoo.randomise(MODELS[name](), asked.draw(st.integers(0, 99)))
    assert_ways_agree(model, graphs, methods=["gradient", "occlusion"], index=index, batch_size=batch_size)


# What cannot be lowered, or once was lowered wrongly ##################################################################


def test_a_model_that_mixes_the_graphs_of_a_batch_is_run_one_graph_at_a_time():
    model = zoo.GRAPH_BY_NAME["pooled_without_batch"].build()
    with pytest.warns(ew.LocalityWarning):
        found = ew.explain(model, molecules(), task="graph", level="layer")
    assert found.settings["way"] == "whole graph"
    for why, graph in zip(found, molecules(), strict=True):
        assert_close(why.scores, ew.explain(model, graph, task="graph", level="layer").scores, 1e-9)


def test_a_lowering_that_goes_wrong_in_a_later_batch_is_not_used_there(monkeypatch):
    model, graphs = zoo.randomise(MODELS["gcn, mean"]()), molecules()
    expected = ew.explain(model, graphs, task="graph", level="layer")
    made = []

    def forgets_loops(conv, calls, data):
        (layer,) = lowered_layers.lower_gcn(conv, calls, data)
        made.append(layer)
        return [layer] if len(made) <= 4 else [replace(layer, loop=None)]  # the audit and the first batch are right

    monkeypatch.setitem(lowered_layers._KNOWN, GCNConv, forgets_loops)
    found = ew.explain(model, graphs, task="graph", level="layer", batch_size=2)
    assert len(made) > 4
    assert found.settings["way"] == "lowered, copies"  # the first batch, the others
    assert_same(found, expected, "gradient")


class Written(nn.Module):
    """One conv, and a readout written by hand."""

    def __init__(self, conv, read, **parts):
        super().__init__()
        self.conv, self.read = conv, read
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x, edge_index, batch):
        return self.read(self, self.conv(x, edge_index).tanh(), batch)


def _loudest(model, h, batch):
    """The node whose first number is the largest speaks for the graph: which one that is depends on ω."""
    return model.head(torch.stack([h[batch == g][h[batch == g][:, 0].topk(1)[1]].sum(0) for g in batch.unique()]))


def _silenced(model, h, batch):
    """A part is overwritten by assignment, which no operation returns."""
    part = h.clone()
    part[:, 0] = 0
    return model.head(global_mean_pool(h, batch)) + model.other(global_mean_pool(part, batch))


def test_a_readout_that_picks_nodes_by_their_value_is_explained_rightly():
    model = zoo.randomise(Written(GCNConv(FEATURES, WIDTH), _loudest, head=nn.Linear(WIDTH, CLASSES)))
    for graph in molecules():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ew.LocalityWarning)
            ways = ("lowered", "copies", "whole graph")
            assert_ways_agree(model, [graph], ways=ways, methods=["gradient", "occlusion"])


def test_a_first_graph_without_edges_proves_nothing():
    parts = {"head": nn.Linear(WIDTH, CLASSES), "other": nn.Linear(WIDTH, CLASSES)}
    model = zoo.randomise(Written(SAGEConv(FEATURES, WIDTH, root_weight=False), _silenced, **parts))
    graphs = molecules()
    ways = ("lowered", "copies", "lowered, copies")
    assert_ways_agree(model, [graphs[2], graphs[0], graphs[3]], ways=ways, methods=["gradient"], batch_size=1)


class Embedded(Pooled):
    """Atom types in, as whole numbers."""

    def __init__(self, make_conv):
        super().__init__(make_conv(WIDTH, WIDTH), make_conv(WIDTH, WIDTH))
        self.table = nn.Embedding(4, WIDTH)

    def forward(self, x, edge_index, batch):
        return super().forward(self.table(x.view(-1)), edge_index, batch)


@pytest.mark.parametrize("conv", [GCNConv, GATConv, SAGEConv, lambda a, b: GINConv(mlp(a, b))])
def test_whole_numbers_as_features_are_fine_for_a_model_that_embeds_them(conv):
    graphs = molecules()
    for graph in graphs:
        graph.x = (torch.arange(graph.num_nodes) % 4).view(-1, 1)
    assert_ways_agree(zoo.randomise(Embedded(conv)), graphs, methods=["gradient", "occlusion"])


@pytest.mark.parametrize(
    "count", [lambda data: data.num_graphs, lambda data: len(data.ptr) - 1, lambda data: len(data.y)]
)
def test_a_forward_of_ones_own_finds_what_a_batch_of_pyg_has(count):
    model, graphs = zoo.randomise(MODELS["gcn, mean"]()), molecules()
    for number, graph in enumerate(graphs):
        graph.y = torch.tensor([number % 3])
    expected = ew.explain(model, graphs, task="graph")

    def forward(net, data):
        assert count(data) == int(data.batch.max()) + 1
        return net(data.x, data.edge_index, data.batch)

    assert_same(ew.explain(model, graphs, task="graph", forward=forward), expected, "gradient")
