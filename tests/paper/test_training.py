"""Training: the fast passes are the model's own, batches are PyG's, and an interrupted training ends where it would have."""

import pytest
import torch
from torch_geometric.data import Batch, Data

from edgewise.errors import ModelError
from edgewise_paper.data import GraphSet, NodeSet
from edgewise_paper.training import fast_forward, train
from edgewise_paper.training.networks import ARCHITECTURES, LINEAR, Recipe, graph_network, node_network
from edgewise_paper.training.train import Collated, accuracy, logits, train_on_graphs, train_on_nodes
from edgewise_paper.workers import Stopped, ask_to_stop, forget_stop


@pytest.fixture(autouse=True)
def _no_stop_was_asked():
    forget_stop()
    yield
    forget_stop()


def node_set(seed=0, nodes=30):
    generator = torch.Generator().manual_seed(seed)
    dense = torch.rand(nodes, nodes, generator=generator) < 0.12  # with loops, and nodes that receive nothing
    x = (torch.rand(nodes, 12, generator=generator) < 0.2).float()
    y = torch.randint(3, (nodes,), generator=generator)
    data = Data(x=x, edge_index=dense.nonzero().t().contiguous(), y=y)
    return NodeSet("made up", data, torch.arange(0, nodes, 2), torch.arange(1, nodes, 2), 3)


def graph_set(edge_features=4):
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for number in range(12):
        nodes = 3 + number % 4
        edges = (torch.rand(nodes, nodes, generator=generator) < 0.5).nonzero().t().contiguous()
        attributes = torch.rand(edges.size(1), edge_features, generator=generator)
        x = torch.rand(nodes, 5, generator=generator)
        graphs.append(Data(x=x, edge_index=edges, edge_attr=attributes, y=torch.tensor([number % 2])))
    return GraphSet("made up", graphs)


class Memory:
    """A checkpoint that keeps what is written."""

    def __init__(self):
        self.state = None

    def read(self):
        return self.state

    def write(self, state):
        self.state = {
            key: {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in value.items()}
            if key == "model"
            else value
            for key, value in state.items()
        }
        self.state["optimizer"] = torch.utils._pytree.tree_map(
            lambda v: v.clone() if isinstance(v, torch.Tensor) else v, state["optimizer"]
        )


# Fast passes ##########################################################################################################


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, LINEAR])
def test_a_fast_pass_and_its_gradients_are_those_of_the_model(architecture, layers, monkeypatch):
    data = node_set().data
    monkeypatch.setattr(fast_forward, "TOLERANCE", 1e9)  # whatever it gives is used
    model = node_network(architecture, 12, layers, 3).eval()
    forward = fast_forward.fast_forward(model, data)
    expected, found = model(data.x, data.edge_index), forward()
    assert torch.allclose(found, expected, atol=1e-5)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    weight = torch.randn_like(expected)
    slopes = [torch.autograd.grad((rows * weight).sum(), parameters) for rows in (expected, found)]
    for one, other in zip(*slopes, strict=True):
        assert torch.allclose(one, other, atol=1e-4)
        assert one.abs().max() > 0 or architecture != LINEAR


def test_attention_of_a_fast_pass_survives_scores_that_lie_far_apart():
    data, model = node_set().data, node_network("GAT", 12, 2, 3).eval()
    forward = fast_forward.fast_forward(model, data)
    with torch.no_grad():  # after the comparison: a training can end up here
        for conv in model.convs:
            conv.att *= 2000.0
    expected, found = model(data.x, data.edge_index), forward()
    assert found.isfinite().all()
    assert torch.allclose(found, expected, atol=1e-3)


def test_a_fast_pass_that_does_not_agree_is_not_used(monkeypatch):
    data, model = node_set().data, node_network("GCN", 12, 2, 3)
    monkeypatch.setitem(fast_forward._MAKERS, type(model), lambda *_: lambda: torch.zeros(30, 3))
    assert torch.equal(fast_forward.fast_forward(model.eval(), data)(), model(data.x, data.edge_index))


def test_fast_training_draws_the_dropout_of_the_model_itself(monkeypatch):
    recipe, found = Recipe("made up", "GCN", 3, 0, epochs=5), node_set()
    fast, _ = train_on_nodes(recipe, found, "cpu")
    monkeypatch.setattr(fast_forward, "_MAKERS", {})
    slow, _ = train_on_nodes(recipe, found, "cpu")
    for one, other in zip(fast.parameters(), slow.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


# Batches ##############################################################################################################


def test_batches_are_those_that_pyg_collates():
    graphs, order = graph_set().graphs, torch.tensor([5, 0, 7, 3, 11])
    found = list(Collated.of(graphs, "cpu").batches(order, 2))
    assert len(found) == 3
    for (batch, labels), chosen in zip(found, order.split(2), strict=True):
        expected = Batch.from_data_list([graphs[i] for i in chosen.tolist()])
        for name in ("x", "edge_index", "edge_attr", "batch"):
            assert torch.equal(batch[name], expected[name]), name
        assert torch.equal(labels, expected.y.float())


def test_a_graph_alone_and_in_a_batch_differ_where_the_norm_sees_the_batch():
    graphs = graph_set().graphs
    for architecture, same in (("GCN", True), ("GIN", False)):
        torch.manual_seed(0)
        model = graph_network(architecture, 5, 2, 4).eval()
        assert torch.allclose(logits(model, graphs), logits(model, graphs, 4), atol=1e-5) is same


def test_a_training_whose_weights_are_not_finite_is_an_error():
    recipe, found = Recipe("made up", "GCN", 2, 0, epochs=2), node_set()
    found.data.x[0] = torch.inf
    with pytest.raises(ModelError, match="not finite"):
        train_on_nodes(recipe, found, "cpu")


# Interruption #########################################################################################################


@pytest.mark.parametrize("stop_after", [1, 7])
def test_an_interrupted_training_ends_with_exactly_the_weights_of_one_that_was_not(stop_after, monkeypatch):
    recipe, found, checkpoint = Recipe("made up", "GAT", 2, 3, epochs=12), node_set(), Memory()
    whole, _ = train_on_nodes(recipe, found, "cpu")
    epochs = []
    real = train.stop_was_asked
    asked = lambda: (epochs.append(1), len(epochs) > 2 * stop_after - 2 or real())[1]  # noqa: E731 - twice an epoch
    monkeypatch.setattr(train, "stop_was_asked", asked)
    with pytest.raises(Stopped):
        train_on_nodes(recipe, found, "cpu", checkpoint)
    monkeypatch.setattr(train, "stop_was_asked", real)
    assert checkpoint.state["epoch"] == stop_after
    resumed, seconds = train_on_nodes(recipe, found, "cpu", checkpoint)
    assert seconds >= checkpoint.state["seconds"]
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_training_on_graphs_goes_on_with_the_same_shuffles():
    recipe = Recipe.for_graphs("made up", "GIN", 2, 1, epochs=6)
    found, checkpoint = graph_set(), Memory()
    whole, _ = train_on_graphs(recipe, found, "cpu")
    ask_to_stop()
    for epoch in range(1, 6):  # stopped after every epoch
        with pytest.raises(Stopped):
            train_on_graphs(recipe, found, "cpu", checkpoint)
        assert checkpoint.state["epoch"] == epoch
    forget_stop()
    resumed, _ = train_on_graphs(recipe, found, "cpu", checkpoint)
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_training_leaves_the_callers_random_numbers_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    model, _ = train_on_nodes(Recipe("made up", "GCN", 2, 0, epochs=3), node_set(), "cpu")
    assert torch.equal(torch.rand(3), expected)
    assert not model.training
    assert 0 <= accuracy(model, node_set()) <= 1


def test_training_learns():
    found = node_set()
    recipe = Recipe("made up", "GIN", 1, 0, epochs=300)
    model, _ = train_on_nodes(recipe, found, "cpu")
    predicted = model(found.data.x, found.data.edge_index).argmax(dim=1)
    assert (predicted == found.data.y)[found.training].double().mean() > 0.9
