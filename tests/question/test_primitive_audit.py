"""What an answer uses is compared with runs of the model: where a fast way is wrong, the next one is taken, and it is said."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, global_add_pool

import edgewise as ew
from checks import assert_close
from edgewise.program.graph_drops import GraphDrops
from edgewise.program.perturbation_forward import ForwardChange
from edgewise.question import pose
from edgewise.question.audit_sample import audited_positions
from hooked_twin import HookedTwin


class Two(nn.Module):
    def __init__(self, conv, *, pools=False):
        super().__init__()
        self.one, self.two, self.pools = conv(4, 6), conv(6, 3), pools

    def forward(self, x, edge_index, batch=None):
        h = self.two(self.one(x, edge_index).relu(), edge_index)
        return global_add_pool(h, batch) if self.pools else h


def problem(conv=GATConv, *, pools=False, seed=0):
    torch.manual_seed(seed)
    model = Two(conv, pools=pools).double().eval()
    edges = torch.randint(12, (2, 40))
    return model, Data(x=torch.randn(12, 4, dtype=torch.double), edge_index=edges[:, edges[0] != edges[1]])


def gin(inputs, outputs):
    return GINConv(nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs)))


def too_large(kind, name, monkeypatch):
    """A fast way that is wrong by a half."""
    plain = getattr(kind, name)
    monkeypatch.setattr(kind, name, lambda *given: 1.5 * plain(*given))


@pytest.mark.parametrize("level", ["input", "layer"])
@pytest.mark.parametrize("index", [None, [3, 1], 5])
def test_occlusion_that_the_model_does_not_confirm_is_found_through_the_model(index, level, monkeypatch):
    model, data = problem()
    lost = HookedTwin(model, data.x, data.edge_index).losses(level)
    too_large(ForwardChange, "_run_again", monkeypatch)
    found = ew.explain(model, data, index, method="occlusion", level=level)
    for why in [found] if index == 5 else found:
        assert why.settings["way"] == "copies"
        assert_close(why.scores, lost[..., why.index, why.target], 1e-12)


def test_the_same_of_graphs(monkeypatch):
    problems = [problem(gin, pools=True, seed=seed) for seed in range(4)]
    model, graphs = problems[0][0], [data for _, data in problems]
    plain = ew.explain(model, graphs, task="graph", method="occlusion")
    assert plain[0].settings["way"] == "lowered"
    assert plain[0].settings["audit"]["occlusion"] < 1e-9
    too_large(GraphDrops, "_drops", monkeypatch)
    found = ew.explain(model, graphs, task="graph", method="occlusion")
    assert found[0].settings["way"] == "copies"
    for one, other in zip(found, plain, strict=True):
        assert_close(one.scores, other.scores, 1e-12)


def test_the_same_of_features(monkeypatch):
    model, data = problem(GCNConv)
    plain = ew.features(model, data, [1, 2, 3, 4], method="occlusion")
    assert plain[0].settings["way"] == "lowered"
    assert plain[0].settings["audit"]["feature_occlusion"] < 1e-9
    lost = HookedTwin(model, data.x, data.edge_index).feature_losses()
    from edgewise.algorithms import feature_program

    too_large(feature_program, "run_changed", monkeypatch)
    for why in ew.features(model, data, [1, 2, 3, 4], method="occlusion"):
        assert why.settings["way"] == "copies"
        assert_close(why.scores, lost[..., why.index, why.target], 1e-12)


def test_new_targets_are_audited_anew(monkeypatch):
    model, data = problem()
    ask = ew.Question(model, data, [1, 2])
    ask.explain(method="occlusion")
    too_large(ForwardChange, "_run_again", monkeypatch)
    lost = HookedTwin(model, data.x, data.edge_index).losses("input")
    for why in ask.of([5, 6]).explain(method="occlusion"):
        assert why.settings["way"] == "copies"
        assert_close(why.scores, lost[..., why.index, why.target], 1e-12)


def test_settings_name_what_was_compared_and_how_far_it_was_off():
    model, data = problem(GCNConv)
    ask = ew.Question(model, data, range(8))
    assert set(ask.explain().settings["audit"]) == {"value", "weighted", "slope", "targets", "undecided"}
    audit = ask.explain(method="occlusion").settings["audit"]
    assert audit["targets"] >= 3
    assert audit["occlusion"] < 1e-9
    assert "feature_occlusion" in ask.features(method="occlusion").settings["audit"]
    assert ask.explain(method="occlusion").settings["audit"]["occlusion"] < 1e-9


def test_with_top_only_what_is_kept_is_compared():
    model, data = problem()
    why = ew.explain(model, data, method="occlusion", top=2)
    assert why[0].settings["way"] == "lowered"
    assert why[0].settings["audit"]["occlusion"] < 1e-9


def test_the_audited_targets_do_not_depend_on_the_order_of_the_index():
    model, data = problem(GCNConv)
    asked = [[1, 9, 4, 0, 7, 3, 11], [11, 7, 9, 0, 1, 4, 3]]
    chosen = [set(q.index[audited_positions(q)].tolist()) for q in (pose(model, data, index) for index in asked)]
    assert chosen[0] == chosen[1]
    assert {0, 11} <= chosen[0]


def test_graphs_that_are_special_are_audited():
    torch.manual_seed(0)
    graphs = [
        Data(x=torch.randn(5, 4).double(), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])) for _ in range(90)
    ]
    graphs[40] = Data(x=torch.randn(4, 4).double(), edge_index=torch.zeros(2, 0, dtype=torch.long))
    graphs[51] = Data(x=torch.randn(1, 4).double(), edge_index=torch.zeros(2, 0, dtype=torch.long))
    question = pose(Two(gin, pools=True).double().eval(), graphs, None, task="graph")
    assert {0, 40, 51, 89} <= set(audited_positions(question).tolist())
