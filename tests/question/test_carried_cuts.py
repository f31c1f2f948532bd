"""A held question carries its proved program to cuts around other nodes: the answers are those of a new question."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GINConv, GraphConv, SAGEConv

import edgewise as ew
from checks import assert_close
from edgewise.graph import cut

NODES = 90
METHODS = ("occlusion", "gnn_explainer", "shapley")


class Net(nn.Module):
    """Two layers; with `branch` the model looks at numbers and does something else where they are large."""

    def __init__(self, conv, branch=False):
        super().__init__()
        self.one, self.two, self.branch = conv(5, 6), conv(6, 3), branch

    def forward(self, x, edge_index):
        hidden = self.one(x, edge_index)
        hidden = hidden.tanh() if self.branch and bool(hidden.abs().max() > 6) else hidden.relu()
        return self.two(hidden, edge_index)


CONVS = {
    "gcn": GCNConv,
    "mean": SAGEConv,
    "sum": lambda a, b: GraphConv(a, b),
    "gin": lambda a, b: GINConv(nn.Linear(a, b), train_eps=True),
}


def ring(seed=0, loops=()):
    """A ring with chords, its columns in no order, and some nodes with a loop."""
    torch.manual_seed(seed)
    node = torch.arange(NODES)
    ends = torch.stack([torch.cat([node, node]), torch.cat([(node + 1) % NODES, (node + 7) % NODES])])
    own = torch.tensor([list(loops), list(loops)], dtype=torch.long)
    ends = torch.cat([ends, ends.flip(0), own], dim=1)
    return Data(x=torch.randn(NODES, 5).double(), edge_index=ends[:, torch.randperm(ends.size(1))])


@pytest.fixture(autouse=True)
def cuts(monkeypatch):
    """Small graphs are cut, too."""
    monkeypatch.setattr(cut, "_SMALL", 0)


@pytest.mark.parametrize("name", CONVS)
@pytest.mark.parametrize("method", METHODS)
def test_answers_of_a_held_question_are_those_of_a_new_one(name, method):
    torch.manual_seed(1)
    model, data = Net(CONVS[name]).double().eval(), ring()
    held = ew.Question(model, data, 3)
    assert held._posed.node_model.carried() is not None
    for node in (40, 77):
        found = held.of(node).explain(method=method, level="input", seed=5)
        assert_close(found.scores, ew.explain(model, data, node, method=method, seed=5).scores, 1e-9)


@given(seed=st.integers(0, 10**6), node=st.integers(0, NODES - 1), name=st.sampled_from(sorted(CONVS)))
def test_gradients_walks_and_self_scores_of_a_carried_cut(seed, node, name):
    torch.manual_seed(seed)
    model, data = Net(CONVS[name]).double().eval(), ring(seed, loops=(3, 10, 11))
    held, new = ew.Question(model, data, 45).of(node), ew.Question(model, data, node)
    mine, theirs = held.explain(level="layer"), new.explain(level="layer")
    assert_close(mine.scores, theirs.scores, 1e-9)
    assert_close(mine.self_scores.nan_to_num(7.0), theirs.self_scores.nan_to_num(7.0), 1e-9)
    assert [w.nodes for w in held.walks(k=3)] == [w.nodes for w in new.walks(k=3)]
    assert mine.settings["locality"] == theirs.settings["locality"] == "proved"


def test_a_model_that_looks_at_numbers_is_recorded_around_every_node():
    torch.manual_seed(0)
    model, data = Net(GCNConv, branch=True).double().eval(), ring()
    data.x[60] *= 40  # there the model takes its other branch
    held = ew.Question(model, data, 3)
    assert held._posed.node_model.carried() is None
    assert_close(held.of(61).explain().scores, ew.explain(model, data, 61).scores, 1e-9)


def test_a_program_that_does_not_give_the_models_values_elsewhere_is_not_used(monkeypatch):
    """The coefficients are wrong on purpose: the model is recorded again, and the answer is right."""
    torch.manual_seed(0)
    model, data = Net(GCNConv).double().eval(), ring()
    held = ew.Question(model, data, 3)
    assert held.of(20)._posed._carried is not None
    monkeypatch.setattr("edgewise.question.node_model.degrees_in", lambda graph: wrong_degrees(graph))
    assert_close(held.of(50).explain().scores, ew.explain(model, data, 50).scores, 1e-9)


def wrong_degrees(graph):
    from edgewise.program.transfer import degrees_in

    found = degrees_in(graph)
    return found._replace(edges=found.edges + 1)
