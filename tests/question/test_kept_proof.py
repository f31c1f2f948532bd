"""The last subject (a model on a graph, with the proof of its lowering) is kept; no answer may come from a stale one.

Every test asks, changes something, asks again and compares with a computation that remembers nothing. The change must
matter: otherwise the test would prove nothing.
"""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv

import edgewise as ew
import zoo
from checks import assert_close, own_scores_of, scores_of
from edgewise.graph.computation_graph import InEdges
from edgewise.program import kernels
from edgewise.question import proof
from zoo import CLASSES, FEATURES, WIDTH, Chain, ChainWithAttributes, ChainWithWeights


@pytest.fixture(autouse=True)
def _nothing_kept():
    proof._kept.clear()
    yield
    proof._kept.clear()


def ask(model, data, **options):
    found = ew.explain(model, data, level="layer", **options)
    return torch.cat([scores_of(found), own_scores_of(found)], dim=-1)


def ask_afresh(model, data, **options):
    proof._kept.clear()
    found = ask(model, data, **options)
    proof._kept.clear()
    return found


def assert_change_is_seen(change, model=None, data=None, **options):
    """`change(model, data)` changes them in place, or returns other ones."""
    model, data = model or zoo.BY_NAME["gcn_relu"].build(), data or zoo.GRAPHS["everything"]()
    for method in ("gradient", "occlusion"):
        asked = copy.deepcopy(model), copy.deepcopy(data)
        before = ask(*asked, method=method, **options)
        assert proof._kept or options, "nothing was kept, so nothing can be stale"
        changed = change(*asked) or asked
        found = ask(*changed, method=method, **options)
        expected = ask_afresh(*changed, method=method, **options)
        assert float((before - expected).abs().max()) > 1e-4, "the change must matter"
        assert_close(found, expected, 1e-12, method)


class Counting(Chain):
    """Counts how often it was run."""

    runs = 0

    def forward(self, x, edge_index):
        Counting.runs += 1
        return super().forward(x, edge_index)


def test_a_second_question_about_the_same_things_needs_no_run_of_the_model():
    model, data = zoo.randomise(Counting(GCNConv(FEATURES, WIDTH), GCNConv(WIDTH, CLASSES))), zoo.GRAPHS["everything"]()
    expected = {method: ask_afresh(model, data, method=method) for method in ("gradient", "occlusion")}
    ew.explain(model, data, index=3)
    Counting.runs = 0
    for method in ("gradient", "occlusion"):
        assert_close(ask(model, data, method=method), expected[method], 1e-12, method)
    assert Counting.runs <= 2  # a look whether the output is still the same is allowed, a new proof is not


# Weights ##############################################################################################################


def _train_a_step(model, data):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model.train()
    loss = model(data.x, data.edge_index).square().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def _load(model, data):
    model.load_state_dict(zoo.BY_NAME["gcn_relu"].build(seed=1).state_dict())


def _load_and_assign(model, data):
    model.load_state_dict(zoo.BY_NAME["gcn_relu"].build(seed=1).state_dict(), assign=True)


def _fill(model, data):
    model.convs[1].lin.weight.data.fill_(0.5)


def _scale_in_place(model, data):
    with torch.no_grad():
        model.convs[0].lin.weight.mul_(1.5)


def _new_data_of_a_parameter(model, data):
    model.convs[0].lin.weight.data = model.convs[0].lin.weight.data * 1.5


def _other_layer(model, data):
    model.convs[1] = zoo.randomise(GCNConv(WIDTH, WIDTH), seed=1)


def _move_weight_to_another_entry(model, data):
    model.convs[0].lin.weight.data[0, 0] += 1.0  # the sum stays what it was
    model.convs[0].lin.weight.data[0, 1] -= 1.0


@pytest.mark.parametrize(
    "change",
    [
        *[_train_a_step, _load, _load_and_assign, _fill, _scale_in_place, _new_data_of_a_parameter, _other_layer],
        _move_weight_to_another_entry,
    ],
)
def test_changed_weights_are_seen(change):
    assert_change_is_seen(change)


def test_changed_buffers_are_seen():
    def other_statistics(model, data):
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.running_mean.data.add_(0.5)

    assert_change_is_seen(other_statistics, zoo.BY_NAME["batch_norm"].build())


def test_another_model_with_equal_weights_is_another_model():
    model, data = zoo.BY_NAME["gcn_relu"].build(), zoo.GRAPHS["everything"]()
    twin = Chain(*model.convs, act=torch.tanh)  # the very same layers, joined in another way
    relu, tanh = ask_afresh(model, data), ask_afresh(twin, data)
    assert float((relu - tanh).abs().max()) > 1e-4
    for _ in range(2):
        assert_close(ask(model, data), relu, 1e-12)
        assert_close(ask(twin, data), tanh, 1e-12)


# Data #################################################################################################################


def _scale_features(model, data):
    data.x *= 1.5


def _other_features(model, data):
    data.x = data.x * 1.5


def _one_feature(model, data):
    data.x[1, 0] += 1.0


def _other_edges(model, data):
    data.edge_index = data.edge_index.flip(0)


def _redirect_an_edge(model, data):
    data.edge_index[0, 0] = (data.edge_index[0, 0] + 2) % 8


def _other_graph(model, data):
    return model, zoo.graph(zoo._EVERYTHING, 8, seed=1)


def _through_numpy(model, data):
    data.x.numpy()[:] *= 1.5


def _through_data(model, data):
    data.x.data.mul_(1.5)


def _redirect_through_data(model, data):
    data.edge_index.data[0, 0] = (data.edge_index[0, 0] + 2) % 8


@pytest.mark.parametrize(
    "change",
    [
        *[_scale_features, _other_features, _one_feature, _other_edges, _redirect_an_edge, _other_graph],
        *[_through_numpy, _through_data, _redirect_through_data],
    ],
)
def test_changed_data_is_seen(change):
    assert_change_is_seen(change)


def test_changed_edge_attributes_and_weights_are_seen():
    def attributes(model, data):
        data.edge_attr *= 1.5

    def weights(model, data):
        data.edge_weight = data.edge_weight.flip(0) * 1.5

    model = zoo.randomise(ChainWithAttributes(zoo.GATConv(FEATURES, CLASSES, edge_dim=zoo.EDGE_FEATURES)))
    assert_change_is_seen(attributes, model)
    model = zoo.randomise(ChainWithWeights(GCNConv(FEATURES, WIDTH), GCNConv(WIDTH, CLASSES)))
    assert_change_is_seen(weights, model, zoo.graph(zoo._EVERYTHING, 8, weighted=True))


def test_weights_that_come_or_go_are_seen():
    model = zoo.randomise(ChainWithWeights(GCNConv(FEATURES, WIDTH), GCNConv(WIDTH, CLASSES)))
    data = zoo.graph(zoo._EVERYTHING, 8, weighted=True)
    weight = data.edge_weight
    for present in (True, False, True):
        data.edge_weight = weight if present else None
        assert_close(ask(model, data), ask_afresh(model, data), 1e-12)
        ask(model, data)


# How the model is called ##############################################################################################


def test_another_forward_is_seen():
    model, data = zoo.BY_NAME["gcn_relu"].build(), zoo.GRAPHS["everything"]()
    forwards = [lambda m, d, by=by: m(d.x * by, d.edge_index) for by in (1.0, 2.0, 3.0)]
    expected = [ask_afresh(model, data, forward=forward) for forward in forwards]
    for forward, scores in [*zip(forwards, expected, strict=True)] * 2:
        assert_close(ask(model, data, forward=forward), scores, 1e-12)
    assert_close(ask(model, data), expected[0], 1e-12)


def test_forwards_that_are_gone_are_not_taken_for_new_ones():
    model, data = zoo.BY_NAME["gcn_relu"].build(), zoo.GRAPHS["everything"]()
    for by in (1.0, 2.0, 3.0, 4.0):  # each lambda may get the address of the one before
        found = ask(model, data, forward=lambda m, d, by=by: m(d.x * by, d.edge_index))
        gc.collect()
        assert_close(found, ask_afresh(model, data, forward=lambda m, d, by=by: m(d.x * by, d.edge_index)), 1e-12)


def test_models_and_graphs_that_are_gone_are_not_taken_for_new_ones():
    for seed in range(4):  # each may get the addresses of the one before
        found = ask(zoo.BY_NAME["gcn_relu"].build(seed), zoo.graph(zoo._EVERYTHING, 8, seed=seed))
        gc.collect()
        expected = ask_afresh(zoo.BY_NAME["gcn_relu"].build(seed), zoo.graph(zoo._EVERYTHING, 8, seed=seed))
        assert_close(found, expected, 1e-12)


class Scaled(Chain):
    scale = 1.0

    def forward(self, x, edge_index):
        return super().forward(x * self.scale, edge_index)


def _other_activation(model, data):
    model.act = torch.sigmoid


def _other_scale(model, data):
    model.scale = model.scale * 3


def _other_epsilon(model, data):
    model.norms[0].eps = model.norms[0].eps + 3.0


def _hook(model, data):
    model.convs[0].register_forward_hook(lambda module, inputs, output: output * 2)


def _other_method(model, data):
    before = model.forward
    model.forward = lambda x, edge_index: before(x * 2, edge_index)


class Optional(Scaled):
    """Reads a number from a dictionary of its own."""

    def __init__(self, *convs):
        super().__init__(*convs)
        self.options = {"scale": 1.0}

    def forward(self, x, edge_index):
        return super().forward(x * self.options["scale"], edge_index)


def _other_option(model, data):
    model.options["scale"] = 3.0


def _chain(kind):
    return lambda: zoo.randomise(kind(GCNConv(FEATURES, WIDTH), GCNConv(WIDTH, CLASSES)))


@pytest.mark.parametrize(
    ("change", "make"),
    [
        (_other_activation, zoo.BY_NAME["gcn_relu"].build),
        (_other_scale, _chain(Scaled)),
        (_other_option, _chain(Optional)),
        (_other_epsilon, zoo.BY_NAME["layer_norm_of_nodes"].build),
        (_hook, zoo.BY_NAME["gcn_relu"].build),
        (_other_method, zoo.BY_NAME["gcn_relu"].build),
    ],
)
def test_a_model_that_was_changed_without_touching_a_tensor_is_seen(change, make):
    assert_change_is_seen(change, make())


@pytest.mark.parametrize("where", ["closure", "data"])
def test_numbers_that_only_forward_reads_are_seen(where):
    box, data = {"scale": 1.0}, zoo.GRAPHS["everything"]()
    data.scale = 1.0

    def forward(model, graph):
        return model(graph.x * (box["scale"] if where == "closure" else graph.scale), graph.edge_index)

    def change(model, graph):
        box["scale"] *= 2
        graph.scale = graph.scale * 2

    assert_change_is_seen(change, data=data, forward=forward)


class TakesData(Chain):
    """Called with the whole data, of which it reads more than tensors."""

    def forward(self, data):
        return super().forward(data.x * data.scale, data.edge_index)


def test_numbers_in_the_data_are_seen_by_a_model_that_takes_the_data():
    def change(model, data):
        data.scale = 3.0

    data = zoo.GRAPHS["everything"]()
    data.scale = 1.0
    assert_change_is_seen(change, _chain(TakesData)(), data)


def test_weights_that_get_another_name_are_seen():
    def rename(model, data):
        data.edge_weight_before = data.edge_weight
        del data.edge_weight

    data = zoo.graph(zoo._EVERYTHING, 8, weighted=True)
    assert_change_is_seen(rename, _chain(ChainWithWeights)(), data)


def test_caches_that_the_user_fills_anew_do_no_harm():
    model, data = zoo.BY_NAME["gcn_cached"].build(), zoo.GRAPHS["everything"]()
    expected = ask_afresh(model, data)
    for _ in range(3):
        for conv in model.convs:
            conv._cached_edge_index = None
        model(data.x, data.edge_index)
        assert_close(ask(model, data), expected, 1e-12)


# What is kept #########################################################################################################


def test_at_most_one_subject_is_kept_and_the_others_are_let_go():
    data, models = zoo.GRAPHS["everything"](), [zoo.BY_NAME["gcn_relu"].build(seed) for seed in range(3)]
    gone = [weakref.ref(model) for model in models]
    for model in models:
        ask(model, data)
        assert len(proof._kept) == 1
    del model
    models.clear()
    gc.collect()
    assert [ref() is None for ref in gone] == [True, True, False]


def test_a_large_subject_is_not_kept(monkeypatch):
    model, data = zoo.BY_NAME["gcn_relu"].build(), zoo.GRAPHS["everything"]()
    ask(model, data)
    assert proof._kept
    monkeypatch.setattr(proof, "_LARGEST_KEPT", 10)
    data.x *= 2
    expected = ask(model, data)
    assert not proof._kept
    assert_close(ask(model, data), expected, 1e-12)


def test_a_subject_without_versions_is_not_kept():
    model = zoo.BY_NAME["gcn_relu"].build()
    with torch.inference_mode():
        data = zoo.GRAPHS["everything"]()  # tensors of inference mode count no versions
    ask(model, data)
    assert not proof._kept


def test_what_users_do_to_an_answer_does_not_reach_the_next_one():
    model, data = zoo.BY_NAME["gcn_relu"].build(), zoo.GRAPHS["everything"]()
    expected = ask_afresh(model, data)
    for why in ew.explain(model, data, level="layer"):
        for tensor in (why.scores, why.self_scores, why.edge_index):
            tensor.zero_()
    assert_close(ask(model, data), expected, 0.0)


def test_an_interrupted_answer_does_not_spoil_the_next_one(monkeypatch):
    model, data = zoo.BY_NAME["gcn_relu"].build(), zoo.GRAPHS["everything"]()
    expected = ask_afresh(model, data)
    ask(model, data)
    true, calls = InEdges.of_nodes, []

    def interrupted(self, node):
        calls.append(node)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return true(self, node)

    with monkeypatch.context() as patch:
        patch.setattr(kernels, "_kernels", lambda: None)
        patch.setattr(InEdges, "of_nodes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ask(model, data)
    assert_close(ask(model, data), expected, 1e-12)
