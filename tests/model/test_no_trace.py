"""After a call, also one that failed or was interrupted, nothing is different from before."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, SGConv, TransformerConv

import edgewise as ew
import zoo
from checks import LEVELS, METHODS, assert_close, scores_of
from footprint import Footprint

SETTINGS = {"gnn_explainer": {"epochs": 3}, "integrated_gradients": {"steps": 3}}
every_method = pytest.mark.parametrize("method", METHODS)
every_level = pytest.mark.parametrize("level", LEVELS)


class Fuse:
    """When to fail, and how; a plain object beside the model, so that counting is no trace on it."""

    def __init__(self):
        self.at, self.error, self.calls, self.went_off = None, RuntimeError, 0, False

    def __deepcopy__(self, memo):
        return self  # a copy of the model burns the same fuse

    def light(self, at, error=RuntimeError):
        self.at, self.error, self.calls, self.went_off = at, error, 0, False


class Bomb(nn.Module):
    """Does nothing, until the call that its fuse names; from then on it always fails."""

    def __init__(self, fuse):
        super().__init__()
        self.fuse = fuse

    def forward(self, x):
        self.fuse.calls += 1
        if self.fuse.at is not None and self.fuse.calls >= self.fuse.at:
            self.fuse.went_off = True
            raise self.fuse.error("the fuse has burnt down")
        return x


class Delicate(nn.Module):
    """Cached convs, running statistics, dropout, attention, a bomb, and a conv that is used twice."""

    def __init__(self, fuse):
        super().__init__()
        self.sgc = SGConv(5, 4, K=2, cached=True)
        self.gcn = GCNConv(4, 4, cached=True)
        self.norm, self.dropout, self.bomb = nn.BatchNorm1d(4), nn.Dropout(0.5), Bomb(fuse)
        self.gin = GINConv(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()), train_eps=True)
        self.gat, self.transformer, self.sage = GATConv(4, 2, heads=2), TransformerConv(4, 4, beta=True), SAGEConv(4, 3)

    def forward(self, x, edge_index):
        x = self.norm(self.gcn(self.sgc(x, edge_index), edge_index)).tanh()
        x = self.gcn(self.gin(x, edge_index), edge_index)
        x = self.bomb(self.dropout(x))
        return self.sage(self.transformer(self.gat(x, edge_index), edge_index).relu(), edge_index)


def _nothing(*_):
    return None


def delicate(*, filled=True):
    """(model, data, fuse): mixed training flags, some gradients, some frozen parameters, hooks of the user's own."""
    fuse = Fuse()
    model = zoo.randomise(Delicate(fuse))
    data = zoo.GRAPHS["everything"]()
    if filled:
        with torch.no_grad():
            model(data.x, data.edge_index)
    model.train()
    model.norm.eval()
    model.gat.eval()
    for position, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(position % 3 != 0)
        if position % 2:
            parameter.grad = torch.full_like(parameter, 0.5)
    model.sage.register_message_forward_hook(_nothing)
    model.gcn.register_propagate_forward_pre_hook(_nothing)
    model.gat.register_forward_hook(_nothing)
    return model, data, fuse


@every_method
@every_level
@pytest.mark.parametrize("filled", [False, True])
def test_success_leaves_no_trace(method, level, filled):
    model, data, _ = delicate(filled=filled)
    before = Footprint(model, data)
    for index in (1, [0, 1, 4]):
        found = ew.explain(model, data, index=index, method=method, level=level, **SETTINGS.get(method, {}))
    before.assert_unchanged()
    assert len(found) == 3


@every_method
@every_level
@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_layer_that_raises_leaves_no_trace(method, level, at):
    model, data, fuse = delicate()
    before = Footprint(model, data)
    fuse.light(at)
    heard = ""
    try:
        ew.explain(model, data, index=[0, 1, 4], method=method, level=level, **SETTINGS.get(method, {}))
    except Exception as error:
        heard = _story(error)
    before.assert_unchanged()
    assert ("the fuse has burnt down" in heard) == fuse.went_off, "the model failed and nobody heard of it"
    assert fuse.went_off or at > 1


@every_method
@every_level
@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_interrupt_inside_a_layer_leaves_no_trace(method, level, at):
    model, data, fuse = delicate()
    before = Footprint(model, data)
    fuse.light(at, KeyboardInterrupt)
    try:
        ew.explain(model, data, index=[0, 1, 4], method=method, level=level, **SETTINGS.get(method, {}))
        heard = False
    except KeyboardInterrupt:
        heard = True
    assert heard == fuse.went_off, "an interrupt was swallowed"
    assert heard or at > 1
    before.assert_unchanged()


def _story(error):
    """The texts of an error and of what caused it."""
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    return " / ".join(texts)


@pytest.mark.parametrize(
    "problem", [{"index": 99}, {"method": "guess"}, {"target": 9}, {"epochs": 3}, {"level": "edge"}]
)
def test_a_refused_call_leaves_no_trace(problem):
    model, data, _ = delicate()
    before = Footprint(model, data)
    with pytest.raises(ew.EdgewiseError):
        ew.explain(model, data, **{"index": 1, **problem})
    before.assert_unchanged()


@every_method
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_calls_without_gradients_give_the_same_and_leave_no_trace(method, mode):
    model, data, _ = delicate()
    expected = scores_of(
        ew.explain(model, data, index=[0, 1, 4], method=method, level="layer", **SETTINGS.get(method, {}))
    )
    before = Footprint(model, data)
    with mode():
        found = ew.explain(model, data, index=[0, 1, 4], method=method, level="layer", **SETTINGS.get(method, {}))
    before.assert_unchanged()
    assert_close(scores_of(found), expected, 1e-12)


def test_features_made_in_inference_mode_are_explained_like_any_other():
    model, data, _ = delicate()
    expected = scores_of(ew.explain(model, data, index=[0, 1]))
    with torch.inference_mode():
        made_there = data.clone()
    assert made_there.x.is_inference()
    assert_close(scores_of(ew.explain(model, made_there, index=[0, 1])), expected, 1e-12)


def test_no_result_holds_on_to_a_graph_of_gradients():
    model, data, _ = delicate()
    for method in METHODS:
        why = ew.explain(model, data, index=1, method=method, **SETTINGS.get(method, {}))
        assert not why.scores.requires_grad
        assert why.self_scores is None or not why.self_scores.requires_grad
        assert not getattr(why.value, "requires_grad", False)


def test_a_score_borrows_the_model_only_while_it_runs():
    model, data, fuse = delicate()
    before = Footprint(model, data)
    score = ew.Score(model, data, [0, 1])
    before.assert_unchanged()
    weight = score.ones().requires_grad_()
    values = score(weight)
    before.assert_unchanged()
    values.sum().backward()
    assert weight.grad is not None
    before.assert_unchanged()
    fuse.light(1, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        score(score.ones())
    before.assert_unchanged()


def test_a_score_still_right_after_the_model_was_put_to_other_use():
    model, data, _ = delicate()
    score = ew.Score(model, data, [0, 1])
    first = score(score.ones()).detach()
    other = zoo.GRAPHS["directed"]()
    model.sgc._cached_x = model.gcn._cached_edge_index = None
    with torch.no_grad():
        model.eval()(other.x, other.edge_index)
    assert_close(score(score.ones()).detach(), first, 1e-12)


def test_graph_tasks_leave_no_trace():
    model = zoo.GRAPH_BY_NAME["pooled_with_attributes"].build().train()
    graphs = [zoo.GRAPHS[name]() for name in ("directed", "everything")]
    before = [Footprint(model, data) for data in graphs]
    for method in METHODS:
        ew.explain(model, graphs, task="graph", method=method, level="layer", **SETTINGS.get(method, {}))
    for footprint in before:
        footprint.assert_unchanged()


def test_the_random_generators_of_the_caller_stay_where_they_are():
    model, data, _ = delicate()
    torch.manual_seed(5), random.seed(5)
    expected = torch.rand(3), random.random()
    torch.manual_seed(5), random.seed(5)
    state = np.random.get_state()[1].tolist()
    ew.explain(model, data, index=[0, 1], method="gnn_explainer", epochs=2)
    ew.explain(model, data, index=[0, 1], method="random")
    assert torch.equal(torch.rand(3), expected[0])
    assert random.random() == expected[1]
    assert np.random.get_state()[1].tolist() == state


def test_the_result_does_not_change_when_the_user_changes_the_data_later():
    model, data, _ = delicate()
    why = ew.explain(model, data, index=1)
    kept = why.edge_index.clone()
    data.edge_index.zero_()
    assert torch.equal(why.edge_index, kept)
