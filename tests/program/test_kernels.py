"""Compiled loops (numba) and their torch twins give the same scores: the same sums, in another order, to 1e-9."""

import importlib.util
import os
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, SAGEConv, SGConv

import edgewise as ew
import zoo
from checks import LEVELS, assert_close, own_scores_of, scores_of
from edgewise.program import kernels
from zoo import CLASSES, FEATURES, WIDTH, Chain, ChainWithWeights, mlp

if importlib.util.find_spec("numba") is None:
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        raise ImportError("numba is missing, and this run must compare the compiled loops: install edgewise[fast]")
    pytest.skip(
        "numba is not installed (extra `fast`): there are no compiled loops to compare", allow_module_level=True
    )

from edgewise.program.kernels import compilation, loops

METHODS = {
    "gradient": {},
    "occlusion": {},
    "integrated_gradients": {"steps": 2},
    "gnn_explainer": {"epochs": 3},
}


class Spy:
    """The kernels, and who was called."""

    def __init__(self):
        self.called = set()

    def __getattr__(self, name):
        self.called.add(name)
        return getattr(loops, name)


def explain_compiled(*args, **options):
    """With every loop compiled, however little work there is; and the names of the kernels that ran."""
    with pytest.MonkeyPatch.context() as patch:
        spy = Spy()
        patch.setattr(kernels, "_WORTH_IT", 0)
        patch.setattr(kernels, "_kernels", lambda: spy)
        found = ew.explain(*args, **options)
    assert found.settings["way"] == "lowered"
    return found, spy.called


def walks_both_ways(*args, **options):
    """Walks with every loop compiled, and with none; and the names of the kernels that ran."""
    spy, found = Spy(), []
    for kernels_or_none in (spy, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "_WORTH_IT", 0)
            patch.setattr(kernels, "_kernels", lambda chosen=kernels_or_none: chosen)
            found.append(ew.walks(*args, **options))
    return *found, spy.called


def assert_walks_agree(model, data, **options):
    found, expected, called = walks_both_ways(model, data, **options)
    for walks, others in zip(found, expected, strict=True):
        assert walks.exact == others.exact
        assert [walk.nodes for walk in walks] == [walk.nodes for walk in others]
        assert_close(torch.tensor([w.score for w in walks]), torch.tensor([w.score for w in others]), 1e-9)
    return called


def explain_plain(*args, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "_kernels", lambda: None)
        return ew.explain(*args, **options)


def assert_twins_agree(model, data, *, methods=METHODS, tolerance=1e-9, **asked):
    """All methods and levels; the names of the kernels that were compared."""
    called = set()
    for method in methods:
        for level in LEVELS:
            options = {"method": method, "level": level, **METHODS[method], **asked}
            found, names = explain_compiled(model, data, **options)
            expected = explain_plain(model, data, **options)
            called |= names
            assert_close(scores_of(found), scores_of(expected), tolerance, f"{method} at {level} level")
            own = own_scores_of(expected)
            if own is not None:
                assert_close(own_scores_of(found), own, tolerance, f"self scores of {method} at {level} level")
    return called


def _leaky(x):
    return torch.nn.functional.leaky_relu(x, 0.3)


def _three(conv, act, kind=Chain, last=CLASSES):
    return lambda: kind(conv(FEATURES, WIDTH), conv(WIDTH, WIDTH), conv(WIDTH, last), act=act)


# With and without coefficients, loops, roots; a ReLU, a leaky one, a smooth one; an affine last layer and others.
MODELS = {
    "gcn, relu": _three(GCNConv, torch.relu),
    "gcn, leaky relu": _three(GCNConv, _leaky),
    "gcn, tanh, weights": _three(GCNConv, torch.tanh, ChainWithWeights),
    "gcn, no loops, relu": _three(lambda a, b: GCNConv(a, b, add_self_loops=False), torch.relu),
    "sage, no root, relu": _three(lambda a, b: SAGEConv(a, b, root_weight=False), torch.relu),
    "sage, sum, leaky relu": _three(lambda a, b: SAGEConv(a, b, aggr="sum"), _leaky),
    "graph conv, identity": _three(GraphConv, lambda x: x),
    "gin, relu": _three(lambda a, b: GINConv(mlp(a, b)), torch.relu),
    "gat, relu": _three(GATConv, torch.relu),
    "sgc": lambda: SGConv(FEATURES, CLASSES, K=3),
    "residual, relu": lambda: zoo.Residual(lambda: GCNConv(WIDTH, WIDTH), linear=False, after=True, act=torch.relu),
}


@st.composite
def graphs(draw):
    nodes = draw(st.integers(1, 9))
    ends = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(ends, ends), max_size=24))
    return zoo.graph(edges, nodes, seed=draw(st.integers(0, 99)), weighted=True)


@pytest.mark.parametrize("name", MODELS)
def test_compiled_loops_give_the_scores_of_their_twins(name):
    data = zoo.graph(zoo._EVERYTHING, 8, weighted=True)
    called = assert_twins_agree(
        zoo.randomise(MODELS[name]()), data, index=[1, 4, 1, 5, 7, 1], target=[0, 2, 1, 1, 0, 2]
    )
    assert called, "no compiled loop ran, so nothing was compared"


@pytest.mark.parametrize("name", ["gcn, relu", "sage, no root, relu", "gat, relu"])
@given(data=graphs(), seed=st.integers(0, 99), asked=st.data())
def test_on_any_graph_and_for_any_nodes_the_twins_agree(name, data, seed, asked):
    index = asked.draw(st.lists(st.integers(0, data.num_nodes - 1), min_size=1, max_size=6))
    target = asked.draw(st.lists(st.integers(0, CLASSES - 1), min_size=len(index), max_size=len(index)))
    model = zoo.randomise(MODELS[name](), seed)
    assert_twins_agree(model, data, methods=["gradient", "occlusion"], index=index, target=target)


@pytest.mark.parametrize("search", ["exact", "dag", "amp_ave"])
@pytest.mark.parametrize("name", MODELS)
def test_compiled_loops_find_the_walks_of_their_twins(name, search):
    data = zoo.graph(zoo._EVERYTHING, 8, weighted=True)
    for sign in ("positive", "negative", "magnitude"):
        assert_walks_agree(zoo.randomise(MODELS[name]()), data, k=4, search=search, sign=sign)


def test_what_is_kept_of_a_compiled_loop_counts_for_all_files_of_the_folder(tmp_path, monkeypatch):
    """Numba itself looks at the loop's own file alone: a step in another one could be an old one."""
    for name in loops.__all__:
        found = getattr(loops, name)
        if hasattr(found, "py_func"):
            assert found._cache._cache_file._source_stamp[1] == compilation._state_of_files(), name
    one, other = tmp_path / "a.py", tmp_path / "b.py"
    monkeypatch.setattr(compilation, "__file__", str(one))
    states = []
    for text in ("x = 1", "x = 2"):
        one.write_text("y = 1")
        other.write_text(text)
        states.append(compilation._state_of_files.__wrapped__())
    assert states[0] != states[1]


def test_every_kernel_is_compared_with_its_twin():
    data, called = zoo.graph(zoo._EVERYTHING, 8, weighted=True), set()
    for name in ("gcn, relu", "gcn, tanh, weights", "gat, relu"):
        called |= assert_twins_agree(zoo.randomise(MODELS[name]()), data, methods=["gradient", "occlusion"])
    for name in ("gcn, relu", "gin, relu"):
        for search in ("exact", "dag", "amp_ave"):
            called |= assert_walks_agree(zoo.randomise(MODELS[name]()), data, search=search)
    # for many targets, slots and orders: test_target_gradients.py, test_slot_drops.py, test_order_values.py
    called |= {"target_gradients", "slot_drops", "slot_names", "count_entries", "fill_entries"}
    called |= {"order_values"}
    # for coalitions, attention and whole graphs: test_shared_rows.py, test_attention_chain.py, test_graph_chain.py
    called |= {"equal_rows", "met_rows", "refilled", "attention_gradients", "attention_drops"}
    called |= {"graph_changes", "graph_gradients", "graph_values"}
    called |= {"row_attention", "row_sums", "row_sums_back"}  # test_attended_rows.py
    # under weights of edges: test_weighted_chain.py
    called |= {"weighted_backward", "weighted_forward"}
    assert called == {name for name, value in vars(loops).items() if hasattr(value, "py_func")}


@pytest.mark.parametrize(("mode", "of"), [("binary", "logit"), ("binary", "prob"), ("regression", "logit")])
def test_the_twins_agree_on_the_sign_of_a_binary_answer_and_the_column_of_a_regression(mode, of):
    data = zoo.graph(zoo._EVERYTHING, 8)
    model = zoo.randomise(_three(GCNConv, torch.relu, last=1 if mode == "binary" else 2)())
    options = {"mode": mode, "of": of, "index": [1, 4, 1, 0], "target": [1, 0, 0, 1]}
    assert_twins_agree(model, data, methods=["gradient", "occlusion"], **options)


@pytest.mark.parametrize("name", ["gcn, leaky relu", "sage, no root, relu", "gin, relu"])
def test_in_single_precision_they_agree_to_one_in_a_hundred_thousand(name):
    data = zoo.graph(zoo.random_edges(30, 120), 30)
    data = Data(x=data.x.float(), edge_index=data.edge_index)
    model = zoo.randomise(MODELS[name]()).float()
    found, called = explain_compiled(model, data, method="occlusion", level="layer")
    assert called
    assert scores_of(found).dtype == torch.float32
    expected = explain_plain(model, data, method="occlusion", level="layer")
    assert_close(scores_of(found), scores_of(expected), 1e-5)


def test_a_graph_of_some_size_is_explained_by_compiled_loops_without_asking(monkeypatch):
    spy = Spy()
    monkeypatch.setattr(kernels, "_kernels", lambda: spy)
    data = zoo.graph(zoo.random_edges(200, 800), 200)
    model = zoo.randomise(MODELS["gcn, relu"]())
    found = {method: ew.explain(model, data, method=method, level="layer") for method in ("gradient", "occlusion")}
    assert spy.called
    for method, compiled_scores in found.items():
        expected = explain_plain(model, data, method=method, level="layer")
        assert_close(scores_of(compiled_scores), scores_of(expected), 1e-9, method)


# Choosing #############################################################################################################


@pytest.fixture
def forgetful():
    """The choice is made once a process: forget it before and after."""
    kernels._kernels.cache_clear()
    yield
    kernels._kernels.cache_clear()


@pytest.mark.usefixtures("forgetful")
def test_the_environment_can_turn_the_compiled_loops_off(monkeypatch):
    work = torch.zeros(1, dtype=torch.float64)
    assert kernels.kernels_for(10**9, work) is loops
    kernels._kernels.cache_clear()
    monkeypatch.setenv("EDGEWISE_COMPILED", "0")
    assert kernels.kernels_for(10**9, work) is None


@pytest.mark.usefixtures("forgetful")
def test_without_numba_everything_works_all_the_same(monkeypatch):
    monkeypatch.setattr(kernels, "_WORTH_IT", 0)
    monkeypatch.setitem(sys.modules, "edgewise.program.kernels.loops", None)  # importing it raises ImportError
    monkeypatch.delattr(kernels, "loops", raising=False)
    data, model = zoo.graph(zoo._EVERYTHING, 8), zoo.randomise(MODELS["gcn, relu"]())
    found = ew.explain(model, data, method="occlusion", level="layer")
    assert kernels._kernels() is None
    assert_close(scores_of(found), scores_of(explain_plain(model, data, method="occlusion", level="layer")), 0.0)


def test_little_work_and_odd_numbers_stay_with_torch():
    double = torch.zeros(1, dtype=torch.float64)
    assert kernels.kernels_for(0, double) is None
    assert kernels.kernels_for(10**9, double.half()) is None
    assert kernels.kernels_for(10**9, double.to(torch.complex128)) is None
