"""Subclasses of known layers, and models whose first graph has no edges: nothing is taken for what it only looks like."""

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

import edgewise as ew
from checks import assert_close
from zoo import mlp, randomise


def marked(base):
    """A subclass that reads its rows itself, before its base does."""

    def forward(self, x, edge_index):
        return base.forward(self, x, edge_index) * x[:, :1].sigmoid()

    return type(f"Marked{base.__name__}", (base,), {"forward": forward})  # PyG knows a layer by its name


LAYERS = {
    "sage": lambda: marked(pyg.SAGEConv)(4, 4),
    "graph conv": lambda: marked(pyg.GraphConv)(4, 4),
    "gin": lambda: marked(pyg.GINConv)(mlp(4, 4)),
    "gat": lambda: marked(pyg.GATConv)(4, 4),
}


class Net(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.first, self.second, self.head = layer, pyg.GCNConv(4, 4), nn.Linear(4, 3)

    def forward(self, x, edge_index):
        return self.head(self.second(self.first(x, edge_index).tanh(), edge_index))


def graph(seed, nodes=6, edges=12):
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, nodes, (2, edges), generator=generator)
    x = torch.randn(nodes, 4, generator=generator, dtype=torch.float64)
    return Data(x=x, edge_index=ends[:, ends[0] != ends[1]])


@pytest.mark.parametrize("name", LAYERS)
def test_a_subclass_that_reads_its_rows_itself_is_explained(name):
    model, data = randomise(Net(LAYERS[name]())), graph(1)
    why = ew.explain(model, data, 2, level="layer", method="occlusion")
    for layer, conv in enumerate((model.first, model.second)):
        for column in range(data.edge_index.size(1)):

            def silenced(module, _inputs, messages, column=column):
                weight = torch.ones(messages.size(0), dtype=messages.dtype)
                weight[column] = 0
                return messages * weight.view(-1, *[1] * (messages.dim() - 1))

            with torch.no_grad():
                handle = conv.register_message_forward_hook(silenced)
                without = model(data.x, data.edge_index)[2, why.target]
                handle.remove()
            assert float(why.scores[layer, column]) == pytest.approx(float(why.value - without), abs=1e-12)


class Turned(nn.Module):
    """A layer on the edges turned round, which cannot be told from the edges where there are none."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = pyg.SAGEConv(4, 4), nn.Linear(4, 3)

    def forward(self, x, edge_index, batch):
        return self.head(pyg.global_mean_pool(self.conv(x, edge_index.flip(0)).relu(), batch))


@pytest.mark.parametrize("index", [[0, 1, 2], [0]])
def test_columns_are_followed_in_all_graphs_if_the_first_has_no_edges(index):
    model, graphs = randomise(Turned()), [graph(0, edges=0), graph(1), graph(2)]
    found = ew.Question(model, graphs, index, task="graph").of([0, 2, 1]).explain()
    for why in found:
        alone = ew.explain(model, graphs[why.index], task="graph")
        assert_close(why.scores, alone.scores, 1e-12)
    assert float(found.of(1).scores.abs().max()) > 0
