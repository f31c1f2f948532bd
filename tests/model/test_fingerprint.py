"""A fingerprint says whether a model has changed, and where."""

import dataclasses
import time

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GCNConv, TransformerConv

import zoo
from edgewise.model.fingerprint import Fingerprint
from edgewise.model.twin import Watch


@dataclasses.dataclass
class Options:
    scale: float
    sizes: list


class Settled(nn.Module):
    """A model with one of everything that a fingerprint remembers."""

    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(5, 4, cached=True), GCNConv(4, 3)])
        self.relu, self.norm, self.dropout = nn.ReLU(), nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.scale, self.missing = 2.0, float("nan")
        self.names, self.table = ["a", ["b", {"c": 1}]], {"k": (1, 2)}
        self.weights, self.array = [torch.ones(2), torch.tensor([float("nan"), 1.0])], np.arange(3.0)
        self.options, self.graph = Options(1.0, [1, 2]), Data(x=torch.ones(2, 1))
        self.sparse = torch.eye(3).to_sparse()
        self.lookup, self.other = {"x", "y"}, object()

    def forward(self, x, edge_index):
        return self.convs[1](self.dropout(self.relu(self.norm(self.convs[0](x, edge_index)))), edge_index)


CHANGES = {
    "parameter convs.0.bias": lambda m: m.convs[0].bias.data.add_(1),
    "parameter convs.1.lin.weight": lambda m: m.convs[1].lin.weight.data.__setitem__((0, 0), 9.0),
    "buffer norm.running_mean": lambda m: m.norm.running_mean.add_(1),
    "attribute convs.1.add_self_loops": lambda m: setattr(m.convs[1], "add_self_loops", False),
    "attribute dropout.p": lambda m: setattr(m.dropout, "p", 0.4),
    "attribute scale": lambda m: setattr(m, "scale", 2.5),
    "attribute missing": lambda m: setattr(m, "missing", 0.0),
    "attribute names": lambda m: m.names[1][1].update(c=2),
    "attribute table": lambda m: m.table.update(k=(1, 3)),
    "attribute weights": lambda m: m.weights[0].zero_(),
    "attribute array": lambda m: m.array.__setitem__(0, 7.0),
    "attribute options": lambda m: m.options.sizes.append(3),
    "attribute graph": lambda m: m.graph.x.zero_(),
    "attribute sparse": lambda m: m.sparse.values().add_(1),
    "attribute lookup": lambda m: m.lookup.add("z"),
    "attribute other": lambda m: setattr(m, "other", object()),
    "attribute extra": lambda m: setattr(m, "extra", 1),
    "attribute relu._forward_hooks": lambda m: m.relu.register_forward_hook(lambda *_: None),
    "module relu was replaced": lambda m: setattr(m, "relu", nn.ReLU()),
    "module tail was added": lambda m: m.add_module("tail", nn.ReLU()),
    "module relu was removed": lambda m: delattr(m, "relu"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_every_kind_of_change_is_named(what):
    model = Settled()
    before = Fingerprint(model)
    assert before.changed(model) == ""
    CHANGES[what](model)
    assert before.changed(model) == what
    assert before.differences(model) == [what]


def test_what_a_prediction_in_eval_mode_leaves_behind_is_no_change():
    model, data = Settled().eval(), zoo.GRAPHS["everything"]()
    before = Fingerprint(model)
    with torch.no_grad():
        model(data.x.float(), data.edge_index)
    assert model.convs[0]._cached_edge_index is not None
    model.train()
    model.convs[1].bias.requires_grad_(False)
    assert before.changed(model) == ""


def test_a_watch_of_ours_on_all_modules_is_no_change_and_a_hook_of_a_user_is():
    model = nn.Sequential(nn.Linear(2, 2))
    watch, register = Watch(nn.Linear(1, 1)), nn.modules.module.register_module_forward_pre_hook
    before = Fingerprint(model)
    assert before.changed(model) == ""  # the quick look is ready now
    watch.start()
    try:
        assert before.differences(model) == []
        assert before.changed(model) == ""
        during = Fingerprint(model)
    finally:
        watch.stop()
    assert during.changed(model) == ""
    assert before.changed(model) == ""
    handle = register(lambda module, given: None)
    try:
        assert "hooks in front of all modules" in before.changed(model)
        assert "hooks in front of all modules" in during.changed(model)
    finally:
        handle.remove()
    assert before.changed(model) == ""


def test_not_a_number_is_equal_to_itself_and_to_nothing_else():
    model = Settled()
    model.norm.running_mean[0] = float("nan")
    before = Fingerprint(model)
    model.missing = float("nan")
    assert before.changed(model) == ""
    model.norm.running_mean[1] = float("nan")
    assert before.changed(model) == "buffer norm.running_mean"


def test_an_edit_that_leaves_the_version_alone_is_seen_and_can_be_undone():
    model = Settled()
    before = Fingerprint(model)
    version = model.convs[0].bias._version
    model.convs[0].bias.data[0] += 1
    assert model.convs[0].bias._version == version
    assert before.changed(model)
    model.convs[0].bias.data[0] -= 1
    assert before.changed(model) == ""


class Keeps(nn.Module):
    """Keeps what it has seen: in `forward`, in a method that it calls, and in one that it does not call."""

    def __init__(self):
        super().__init__()
        self.conv, self.seen, self.kept, self.scale = TransformerConv(5, 3), None, None, 2.0

    def keep(self, x):
        self.kept = x

    def rescale(self, scale):
        self.scale = scale

    def forward(self, x, edge_index):
        self.seen = x
        self.keep(x)
        return self.scale * self.conv(x, edge_index)


def test_what_forward_keeps_for_itself_is_no_change_and_what_it_reads_is():
    model, data = Keeps().double(), zoo.GRAPHS["everything"]()
    before = Fingerprint(model)
    model(data.x, data.edge_index)
    model.conv._alpha = data.x  # as while another thread predicts
    assert model.kept is not None
    assert before.changed(model) == ""
    model.rescale(3.0)
    assert before.changed(model) == "attribute scale"


def test_a_value_of_another_kind_is_a_change():
    model = Settled()
    before = Fingerprint(model)
    model.names = tuple(model.names)
    assert before.changed(model) == "attribute names"
    model.names = list(model.names)
    model.scale = 2
    assert before.changed(model) == "attribute scale"
    model.scale = 2.0
    model.double()
    assert before.changed(model) == "parameter convs.0.bias"


def test_a_hundred_thousand_parameters_are_compared_in_a_moment():
    model = GCN(100, 260, 3, 40)
    assert sum(parameter.numel() for parameter in model.parameters()) > 100_000
    before = Fingerprint(model)
    seconds = []
    for _ in range(50):
        start = time.perf_counter()
        assert before.changed(model) == ""
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 2e-3  # a tenth of it on a machine that does nothing else
