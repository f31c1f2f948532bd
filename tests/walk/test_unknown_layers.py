"""Layers without a lowering: blocks are derivatives at private copies, with the senders' in-edges only where they matter."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GPSConv, MessagePassing, ResGatedGraphConv, SAGEConv, global_mean_pool
from torch_geometric.utils import degree

import edgewise as ew
import zoo
from edgewise.errors import ModelError
from edgewise.program.layers.module import ModuleLayer
from walk_checks import assert_alive, assert_walks
from walk_models import Stack
from walk_oracles import node_twin
from zoo import CLASSES, FEATURES, WIDTH


class SendersShare(MessagePassing):
    """What a node sends is divided by how much it receives itself."""

    def __init__(self, inputs, outputs):
        super().__init__(aggr="add")
        self.lin = nn.Linear(inputs, outputs)

    def forward(self, x, edge_index):
        share = 1 / (1 + degree(edge_index[1], len(x), dtype=x.dtype))
        return self.propagate(edge_index, x=self.lin(x) * share.view(-1, 1))

    def message(self, x_j):
        return torch.tanh(x_j)


class Crowd(SendersShare):
    """What a node receives is divided by how many nodes there are."""

    def forward(self, x, edge_index):
        return super().forward(x, edge_index) / len(x)


def two(kind):
    return zoo.randomise(Stack(kind(FEATURES, WIDTH), kind(WIDTH, CLASSES)))


def max_sage(inputs, outputs):
    return SAGEConv(inputs, outputs, aggr="max")


@pytest.mark.parametrize(("kind", "needs_rim"), [(ResGatedGraphConv, False), (max_sage, False), (SendersShare, True)])
@pytest.mark.parametrize("graph", ["everything", "directed"])
def test_walks_are_products_of_full_jacobians_with_the_rim_or_without(kind, needs_rim, graph, monkeypatch):
    model, data, used = two(kind), zoo.GRAPHS[graph](), []
    copied = ModuleLayer._copied
    monkeypatch.setattr(ModuleLayer, "_copied", lambda *a, rim: used.append(rim) or copied(*a, rim=rim))
    assert_walks(model, data, assert_alive(node_twin(model, data).walks()), ks=(1, 50))
    assert (True in used) == needs_rim


def test_with_the_rim_blocks_are_the_same_where_it_is_not_needed(monkeypatch):
    model, data = two(ResGatedGraphConv), zoo.GRAPHS["everything"]()
    monkeypatch.setattr(ModuleLayer, "_is_true", lambda *a: False)
    assert_walks(model, data, node_twin(model, data).walks(), ks=(50,))


def test_right_outputs_with_wrong_derivatives_are_noticed(monkeypatch):
    """Copies that are cut off from their rows have the outputs of the graph, but not its derivatives."""
    seen, copied = [], ModuleLayer._copied

    def detached(self, rows, known, *, rim):
        seen.append(rim)
        found = copied(self, rows, known, rim=rim)
        return found if rim else found.detach() + 0 * rows.sum()

    monkeypatch.setattr(ModuleLayer, "_copied", detached)
    model, data = two(ResGatedGraphConv), zoo.GRAPHS["directed"]()
    assert_walks(model, data, node_twin(model, data).walks(), ks=(5,))
    assert {False, True} <= set(seen)


def test_a_layer_that_counts_nodes_is_refused():
    with pytest.raises(ModelError, match=r"another output|cannot be followed|whole graph"):
        ew.walks(two(Crowd), zoo.GRAPHS["everything"](), 1)


class Attending(nn.Module):
    """Attention between all nodes beside a layer: torch has no forward derivative of it."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = GPSConv(8, GCNConv(8, 8), heads=2), nn.Linear(8, 3)

    def forward(self, x, edge_index, batch):
        return self.head(global_mean_pool(self.conv(x, edge_index, batch), batch))


def test_what_torch_cannot_differentiate_forwards_is_refused_in_words(tmp_path):
    torch.manual_seed(0)
    graphs = [Data(x=torch.randn(n, 8), edge_index=torch.randint(0, n, (2, 2 * n))) for n in (4, 6, 5)]
    model = Attending().eval()
    with pytest.raises(ew.ModelError, match="walks of this model cannot be followed"):
        ew.walks(model, graphs, 0, task="graph")
    assert "walks" in str(ew.check(model, graphs, 0, task="graph"))
    ew.write_page(tmp_path / "why.html", model, graphs, 0, task="graph", epochs=2)


def test_a_root_at_0_is_no_mix_of_nodes():
    class Rooted(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GCNConv(3, 2)

        def forward(self, x, edge_index):
            return self.conv(x.abs().sqrt(), edge_index)

    data = Data(x=torch.tensor([[0.0, 1, 2], [1, 2, 3]]), edge_index=torch.tensor([[0], [1]]))
    with pytest.raises(ew.ModelError, match="no finite slope"):
        ew.walks(Rooted().eval(), data, 1)
