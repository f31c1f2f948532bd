"""Feature scores against autograd on the whole graph, and against re-runs: float64, random biases, every model of the zoo."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv, global_add_pool, global_max_pool, global_mean_pool

import edgewise as ew
import oracles
import zoo
from checks import assert_close, node_problem, one_in, quietly
from footprint import Footprint

METHODS = ("gradient", "gradient_x_input", "occlusion", "integrated_gradients")
CASES = [case.name for case in zoo.CASES]
GRAPH_CASES = [case.name for case in zoo.GRAPH_CASES]
LOWERED = ("gcn", "sage_mean", "gin_trained_epsilon", "gat", "gatv2", "graph_conv", "sgc")
STEPS = 200


def with_zeros(data: Data) -> Data:
    """The same graph, a third of whose features are 0."""
    data = data.clone()
    data.x = data.x * (torch.rand(data.x.shape, generator=torch.Generator().manual_seed(1)) > 0.3)
    return data


def number(case, model, data: Data, row: int, target: int) -> torch.Tensor:
    """The explained number of one row, straight from the model."""
    if any(getattr(module, "cached", False) for module in model.modules()):
        model = copy.deepcopy(model)  # a layer that caches keeps the features of its first run
        for module in model.modules():
            vars(module).update({name: None for name in ("_cached_x", "_cached_edge_index") if name in vars(module)})
    output = oracles.call(model, data, getattr(case, "forward", None))
    output = output.view(len(output), -1)[row]
    return (
        (output[0] if target == 1 else -output[0])
        if case.mode in (None, "binary") and len(output) == 1
        else output[target]
    )


def changed(data: Data, **values) -> Data:
    data = copy.copy(data)
    for name, value in values.items():
        data[name] = value
    return data


def by_autograd(case, model, data: Data, row: int, target: int, name: str) -> torch.Tensor:
    leaf = data[name].clone().requires_grad_()
    value = number(case, model, changed(data, **{name: leaf}), row, target)
    if not value.requires_grad:
        return torch.zeros_like(leaf)
    (found,) = torch.autograd.grad(value, leaf, allow_unused=True)
    return torch.zeros_like(leaf) if found is None else found


def by_runs(case, model, data: Data, row: int, target: int, name: str) -> torch.Tensor:
    """What is lost when one number is set to 0, run after run."""
    found = torch.zeros_like(data[name])
    with torch.no_grad():
        whole = number(case, model, data, row, target)
        for place in (data[name] != 0).nonzero().tolist():
            values = data[name].clone()
            values[tuple(place)] = 0.0
            found[tuple(place)] = whole - number(case, model, changed(data, **{name: values}), row, target)
    return found


def ask(case, model, data: Data, **options):
    with quietly(case):
        return ew.features(model, data, **{**case.arguments, **options})


@pytest.mark.parametrize("case_name", one_in(2, CASES))
def test_gradients_are_those_of_autograd_on_the_whole_graph(case_name):
    case, model, data, _ = node_problem(case_name, "everything_once" if zoo.BY_NAME[case_name].ties else "everything")
    data = with_zeros(data)
    with warnings.catch_warnings():  # torch halves the gradient of a maximum that is exactly 0, and that is seen
        warnings.simplefilter("ignore", ew.KinkWarning)
        slopes, products = (ask(case, model, data, method=method) for method in ("gradient", "gradient_x_input"))
    for why, product in zip(slopes, products, strict=True):
        expected = by_autograd(case, model, data, why.index, why.target, "x")
        assert_close(why.scores, expected, 1e-9, f"node {why.index}")
        assert_close(product.scores, expected * data.x, 1e-9, f"node {why.index}, times features")
        assert abs(why.value - number(case, model, data, why.index, why.target).item()) < 1e-9


@pytest.mark.parametrize("case_name", one_in(2, CASES))
def test_occlusion_is_what_a_run_without_the_feature_loses(case_name):
    case, model, data, _ = node_problem(case_name, "everything_once" if zoo.BY_NAME[case_name].ties else "everything")
    data = with_zeros(data)
    for why in ask(case, model, data, index=[1, 4, 5], method="occlusion"):
        assert_close(why.scores, by_runs(case, model, data, why.index, why.target, "x"), 1e-9, f"node {why.index}")


@pytest.mark.parametrize("case_name", one_in(2, CASES))
def test_integrated_gradients_add_up_to_what_the_features_bring(case_name):
    case, model, data, _ = node_problem(case_name, "everything_once" if zoo.BY_NAME[case_name].ties else "everything")
    for why in ask(case, model, data, index=[1, 4], method="integrated_gradients", steps=STEPS):
        nothing = changed(data, x=torch.zeros_like(data.x))
        whole, rest = (number(case, model, graph, why.index, why.target) for graph in (data, nothing))
        assert_close(
            why.scores.sum(), (whole - rest).detach(), 1e-2
        )  # kinks cost the rule its order; smooth models are exact below


@pytest.mark.parametrize("case_name", one_in(3, ["gcn", "sage_mean", "gat"]))
def test_integrated_gradients_are_the_mean_gradient_on_the_way_times_the_features(case_name):
    case, model, data, _ = node_problem(case_name, "everything")
    why = ask(case, model, data, index=1, method="integrated_gradients", steps=100)
    expected = torch.zeros_like(data.x)
    for t in (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000:
        expected += by_autograd(case, model, changed(data, x=data.x * t), 1, why.target, "x") * data.x / 2000
    assert_close(why.scores, expected, 1e-4)
    if case_name == "gcn":  # its activation is smooth
        nothing = number(case, model, changed(data, x=torch.zeros_like(data.x)), 1, why.target)
        assert_close(why.scores.sum(), (number(case, model, data, 1, why.target) - nothing).detach(), 1e-9)


READING = [case.name for case in zoo.CASES if "attributes" in case.name or case.name in ("gine", "transformer")]


@pytest.mark.parametrize("case_name", READING)
def test_edge_attributes_have_scores_of_the_same_kind(case_name):
    case, model, data, _ = node_problem(case_name, "everything")
    found = {
        method: ask(case, model, data, index=1, method=method, **({"steps": STEPS} if method == METHODS[3] else {}))
        for method in METHODS
    }
    target = found["gradient"].target
    slope = by_autograd(case, model, data, 1, target, "edge_attr")
    if not bool((slope != 0).any()):  # this model is not given them
        assert found["gradient"].edge_scores is None
        return
    assert_close(found["gradient"].edge_scores, slope, 1e-9)
    assert_close(found["gradient_x_input"].edge_scores, slope * data.edge_attr, 1e-9)
    assert_close(found["occlusion"].edge_scores, by_runs(case, model, data, 1, target, "edge_attr"), 1e-9)
    nothing = changed(data, edge_attr=torch.zeros_like(data.edge_attr))
    brought = number(case, model, data, 1, target) - number(case, model, nothing, 1, target)
    assert_close(
        found["integrated_gradients"].edge_scores.sum(), brought.detach(), 2e-2
    )  # kinks cost the rule its order


@pytest.mark.parametrize("method", METHODS[:3])
@pytest.mark.parametrize("case_name", GRAPH_CASES)
def test_graphs_have_the_scores_that_each_has_alone(case_name, method):
    case = zoo.GRAPH_BY_NAME[case_name]
    model = case.build()
    graphs = [zoo.GRAPHS[name]() for name in ("directed", "everything")]
    found = ask(case, model, graphs, task="graph", method=method)
    for why, data in zip(found, graphs, strict=True):
        data = data.clone()
        data.batch = torch.zeros(data.num_nodes, dtype=torch.long)
        if method == "occlusion":
            expected = by_runs(case, model, data, 0, why.target, "x")
        else:
            expected = by_autograd(case, model, data, 0, why.target, "x")
            expected = expected * data.x if method == "gradient_x_input" else expected
        assert_close(why.scores, expected, 1e-9)


class Encoded(nn.Module):
    """A linear encoder before the first layer, and the features again behind the last."""

    def __init__(self):
        super().__init__()
        self.encoder, self.jump = nn.Linear(zoo.FEATURES, 4), nn.Linear(zoo.FEATURES, 3)
        self.first, self.second = GCNConv(4, 4), GCNConv(4, 3)

    def forward(self, x, edge_index):
        hidden = self.encoder(x).relu()
        return self.second(self.first(hidden, edge_index).tanh(), edge_index) + self.jump(x)


class Frozen(Encoded):
    """The encoder runs without gradients."""

    def forward(self, x, edge_index):
        with torch.no_grad():
            hidden = self.encoder(x).relu()
        return self.second(self.first(hidden, edge_index).tanh(), edge_index)


class WeightsFromFeatures(nn.Module):
    """Edge weights are made from the features before the first layer."""

    def __init__(self):
        super().__init__()
        self.conv = GCNConv(zoo.FEATURES, 3)

    def forward(self, x, edge_index):
        weight = (x[edge_index[0]] * x[edge_index[1]]).sum(dim=1).sigmoid()
        return self.conv(x, edge_index, weight)


class Plain:
    """What the oracles ask of a case, for a model of this file."""

    mode, forward, arguments, local = None, None, {}, True


@pytest.mark.parametrize("kind", [Encoded, WeightsFromFeatures])
def test_what_stands_before_the_first_layer_is_gone_through(kind):
    model, data = zoo.randomise(kind()), zoo.GRAPHS["everything"]()
    for method in METHODS[:3]:
        for why in ew.features(model, data, method=method):
            if method == "occlusion":
                expected = by_runs(Plain, model, data, why.index, why.target, "x")
            else:
                expected = by_autograd(Plain, model, data, why.index, why.target, "x")
                expected = expected if method == "gradient" else expected * data.x
            assert_close(why.scores, expected, 1e-9)


class InFront(nn.Module):
    """An MLP before the first layer, with a LayerNorm; `centre` makes it one that mixes rows."""

    def __init__(self, *, centre=False):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(zoo.FEATURES, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 4))
        self.first, self.second, self.centre = GCNConv(4, 4), GCNConv(4, 3), centre

    def forward(self, x, edge_index):
        hidden = self.mlp(x - x.mean(dim=0) if self.centre else x)
        return self.second(self.first(hidden, edge_index).relu(), edge_index)


@pytest.mark.parametrize("method", METHODS)
def test_an_encoder_in_front_of_lowered_layers_is_gone_through(method):
    model, data = zoo.randomise(InFront()), zoo.GRAPHS["everything"]()
    steps = {"steps": 7} if method == "integrated_gradients" else {}
    every = ew.features(model, data, method=method, **steps)
    assert every.settings["way"] == "lowered"
    for why in every:
        if method == "occlusion":
            expected = by_runs(Plain, model, data, why.index, why.target, "x")
        elif method == "integrated_gradients":
            expected = torch.zeros_like(data.x)
            for point, share in zip(*np.polynomial.legendre.leggauss(7), strict=True):
                moved = changed(data, x=data.x * (0.5 + 0.5 * point))
                expected += 0.5 * share * by_autograd(Plain, model, moved, why.index, why.target, "x") * data.x
        else:
            expected = by_autograd(Plain, model, data, why.index, why.target, "x")
            expected = expected if method == "gradient" else expected * data.x
        assert_close(why.scores, expected, 1e-9)


class ByCount(InFront):
    """An encoder that does something else with few rows, or with many, as a norm that wants a batch of some size."""

    def __init__(self, does_more):
        super().__init__()
        self.does_more, self.norm = does_more, nn.Linear(4, 4)

    def forward(self, x, edge_index):
        hidden = self.mlp(x)
        if self.does_more(len(x)):
            hidden = self.norm(hidden)
        return self.second(self.first(hidden, edge_index).relu(), edge_index)


@pytest.mark.parametrize("method", METHODS[:3])
@pytest.mark.parametrize("does_more", [lambda n: n > 7, lambda n: n < 7, lambda n: n < 40, lambda n: n % 2 == 0])
def test_an_encoder_gets_as_many_rows_as_there_are_nodes(does_more, method):
    torch.manual_seed(0)
    model, data = zoo.randomise(ByCount(does_more)), zoo.GRAPHS["everything"]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        every = ew.features(model, data, method=method)
    assert every.settings["way"] == "lowered"
    for why in every:
        if method == "occlusion":
            expected = by_runs(Plain, model, data, why.index, why.target, "x")
        else:
            expected = by_autograd(Plain, model, data, why.index, why.target, "x")
            expected = expected if method == "gradient" else expected * data.x
        assert_close(why.scores, expected, 1e-9)


def test_an_encoder_that_mixes_rows_is_run_as_it_is():
    model, data = zoo.randomise(InFront(centre=True)), zoo.GRAPHS["everything"]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        found = ew.features(model, data, [1, 4], method="gradient")
    assert found.settings["way"] != "lowered"
    for why in found:
        assert_close(why.scores, by_autograd(Plain, model, data, why.index, why.target, "x"), 1e-9)


def test_a_stopped_gradient_is_refused_and_occlusion_is_not():
    model, data = zoo.randomise(Frozen()), zoo.GRAPHS["everything"]()
    with pytest.raises(ew.ModelError, match="stopped='keep'"):
        ew.features(model, data, 1)
    assert bool((ew.features(model, data, 1, stopped="keep").scores == 0).all())
    why = ew.features(model, data, 1, method="occlusion")
    assert_close(why.scores, by_runs(Plain, model, data, 1, why.target, "x"), 1e-9)


@pytest.mark.parametrize("case_name", LOWERED)
@pytest.mark.parametrize("method", METHODS)
def test_blocks_and_order_change_nothing(case_name, method):
    case, model, data, _ = node_problem(case_name, "everything")
    every = ask(case, model, data, method=method)
    assert every.settings["way"] == "lowered"
    for options in ({"batch_size": 1}, {"memory": 20_000}, {"index": [6, 1, 1, 0]}):
        for why in ask(case, model, data, method=method, **options):
            assert_close(why.scores, every.of(why.index).scores, 1e-11)


@pytest.mark.parametrize("method", METHODS)
def test_nodes_that_cannot_reach_the_target_have_zeros(method):
    case, model, _, _ = node_problem("gcn", "everything")  # three layers
    data = zoo.graph([(0, 1), (1, 2), (2, 3), (3, 4), (5, 5)], 6)
    why = ask(case, model, data, index=4, method=method)
    assert bool((why.scores[[0, 5]] == 0).all())
    assert bool((why.scores[1:5] != 0).any(dim=1).all())


@pytest.mark.parametrize("method", [*METHODS, "cam", "grad_cam"])
def test_nothing_is_left_behind(method):
    model, data = (
        zoo.randomise(zoo.Pooled(GCNConv(zoo.FEATURES, 4), GCNConv(4, 4), pool=global_add_pool)),
        zoo.GRAPHS["everything"](),
    )
    data.x.requires_grad_()
    data.x.grad = torch.ones_like(data.x)
    model.train()
    footprint = Footprint(model, data)
    ew.features(model, data, task="graph", method=method)
    footprint.assert_unchanged()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case_name", ["gcn", "gat_with_attributes"])
def test_nothing_is_left_behind_of_a_question_about_nodes(case_name, method):
    case, data = zoo.BY_NAME[case_name], zoo.GRAPHS["everything"]()
    model = case.build(0)
    model.train()
    footprint = Footprint(model, data)
    ask(case, model, data, method=method)
    footprint.assert_unchanged()


def test_the_result_has_sums_the_strongest_and_names():
    case, model, data, _ = node_problem("gcn", "everything")
    data = with_zeros(data)
    data.feature_names = ["a", "b", "c", "d", "e"]
    why = ask(case, model, data, index=1)
    assert_close(why.per_node(), why.scores.sum(dim=1), 1e-12)
    assert_close(why.per_feature(), why.scores.sum(dim=0), 1e-12)
    score, node, feature, name = why.top(1)[0]
    assert score == float(why.scores.max()) == float(why.scores[node, feature])
    assert name == "abcde"[feature]
    against = why.top(3, by="opposition")
    assert [row[0] for row in against] == sorted(why.scores.reshape(-1).tolist())[:3]
    assert why.method == "gradient_x_input"
    assert why.edge_scores is None
    assert why.settings["adds_up_to"]


@pytest.mark.parametrize("method", METHODS)
def test_top_keeps_the_strongest_scores_of_each_target(method):
    case, model, data, _ = node_problem("gcn", "everything")
    whole, kept = (ask(case, model, data, method=method, top=top) for top in (None, 3))
    for why, few in zip(whole, kept, strict=True):
        strong = why.scores.abs().reshape(-1).sort(descending=True).values[:3]
        assert_close(few.scores.abs().reshape(-1).sort(descending=True).values[:3], strong, 1e-11)
        assert int((few.scores != 0).sum()) <= 3


@pytest.mark.parametrize("method", [*METHODS, "grad_cam"])
def test_a_set_is_a_sequence_that_can_be_saved_and_loaded(method, tmp_path):
    case, model, data, _ = node_problem("gat_with_attributes", "everything")
    every = ask(case, model, data, method=method)
    every.save(tmp_path / "all.npz")
    again = ew.load(tmp_path / "all.npz")
    assert isinstance(again, ew.FeatureSet)
    assert len(again) == len(every) == data.num_nodes
    assert again.settings == every.settings
    for one, two, three in zip(every, again, every[::-1][::-1], strict=True):
        assert torch.equal(one.per_node(), two.per_node())
        assert torch.equal(one.per_node(), three.per_node())
        if one.edge_scores is not None:
            assert torch.equal(one.edge_scores, two.edge_scores)
    with pytest.raises(ew.FileError, match="npz"):
        every.save(tmp_path / "all.txt")


def test_a_question_answers_the_same():
    _, model, data, _ = node_problem("gcn", "everything")
    found = ew.Question(model, data, index=[1, 4]).features("occlusion")
    for one, two in zip(found, ew.features(model, data, [1, 4], method="occlusion"), strict=True):
        assert torch.equal(one.scores, two.scores)


def test_what_cannot_be_scored_is_refused():
    _, model, data, _ = node_problem("gcn", "everything")
    with pytest.raises(ew.SettingError, match="gradient_x_input"):
        ew.features(model, data, 1, method="gradient_times_input")
    with pytest.raises(ew.SettingError, match="steps"):
        ew.features(model, data, 1, method="integrated_gradients", step=3)
    named = data.clone()
    named.feature_names = ["a"]
    with pytest.raises(ew.InputError, match="feature_names"):
        ew.features(model, named, 1)


@pytest.mark.parametrize("pool", [global_mean_pool, global_add_pool])
def test_cam_and_grad_cam_follow_their_formulas(pool):
    model = zoo.randomise(zoo.Pooled(GCNConv(zoo.FEATURES, 4), GCNConv(4, 4), pool=pool))
    data = zoo.GRAPHS["everything"]()
    batch = torch.zeros(data.num_nodes, dtype=torch.long)
    with torch.no_grad():
        maps = model.embed(data.x, data.edge_index, batch)  # [N, width]
    cam = ew.features(model, data, task="graph", method="cam")
    weight = model.head.weight[cam.target].detach()
    assert cam.scores is None
    assert_close(cam.per_node(), maps @ weight, 1e-9)
    share = 1 / data.num_nodes if pool is global_mean_pool else 1.0
    assert_close(ew.features(model, data, task="graph", method="grad_cam").per_node(), maps @ (weight * share), 1e-9)


class WithHead(nn.Module):
    """A node model with a linear head, or one with a bend, behind its layers."""

    def __init__(self, *, bent=False):
        super().__init__()
        self.first, self.second, self.head, self.bent = GCNConv(zoo.FEATURES, 4), GCNConv(4, 4), nn.Linear(4, 3), bent

    def forward(self, x, edge_index):
        hidden = self.second(self.first(x, edge_index).tanh(), edge_index).relu()
        return self.head(hidden) ** 2 if self.bent else self.head(hidden)


def test_for_a_node_cam_is_its_own_part_and_grad_cam_weighs_its_neighbourhood():
    model, data = zoo.randomise(WithHead()), zoo.GRAPHS["everything"]()
    cam, grad_cam = (ew.features(model, data, 1, method=method) for method in ("cam", "grad_cam"))
    with torch.no_grad():
        maps = model.second(model.first(data.x, data.edge_index).tanh(), data.edge_index).relu()
        weight = model.head.weight[cam.target]
    expected = torch.zeros(data.num_nodes, dtype=torch.float64)
    weight, bias = weight.detach(), float(model.head.bias[cam.target].detach())
    expected[1] = maps[1] @ weight
    assert_close(cam.per_node(), expected, 1e-9)
    assert abs(float(expected[1]) + bias - cam.value) < 1e-9
    reach = ew.features(model, data, 1, method="gradient").per_node() != 0
    assert_close(grad_cam.per_node()[reach], (maps @ weight / data.num_nodes)[reach], 1e-9)
    assert cam.top(1, by="magnitude") == [(float(expected[1]), 1)]
    with pytest.raises(ew.InputError, match="per_node"):
        cam.per_feature()


@pytest.mark.parametrize("bend", ["head", "pool", "no head"])
def test_cam_is_refused_where_the_number_is_no_linear_function_of_the_maps(bend):
    data = zoo.GRAPHS["everything"]()
    pooled = zoo.Pooled(GCNConv(zoo.FEATURES, 4), GCNConv(4, 4), pool=global_max_pool)
    model = {"head": WithHead(bent=True), "pool": pooled, "no head": zoo.Chain(GCNConv(zoo.FEATURES, 4), GCNConv(4, 3))}
    task = {"task": "graph"} if bend == "pool" else {"index": 1}
    with pytest.raises(ew.ModelError, match="Class activation maps"):
        ew.features(zoo.randomise(model[bend]), data, method="cam", **task)


class OffFor(nn.Module):
    """A sum over all nodes decides whether a unit is on, and here it is off."""

    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(2, 3)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index) + (x.sum() - 5).relu()


@pytest.mark.filterwarnings("ignore::edgewise.errors.LocalityWarning")
def test_nodes_outside_a_neighbourhood_count_although_they_change_nothing_as_they_are():
    torch.manual_seed(0)
    model = OffFor().double().eval()
    x = torch.full((6, 2), 0.1, dtype=torch.float64)
    x[4, 0], x[5, 0] = 50.0, -50.0  # it is off for all nodes, and for every part of them
    data = Data(x=x, edge_index=torch.tensor([[0, 2, 3], [1, 3, 4]]))
    changed = x.clone()
    changed[5, 0] = 0.0
    before, after = model(x, data.edge_index).detach(), model(changed, data.edge_index).detach()
    for node in (1, 3):
        why = ew.features(model, data, node, method="occlusion", mode="multiclass")
        lost = before[node, why.target] - after[node, why.target]
        assert lost < -40
        assert_close(why.scores[5, 0], lost, 1e-12)
