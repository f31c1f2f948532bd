"""`print(question)`: true counts, prices of methods that would answer, and words that say what they mean."""

import math
import re

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import edgewise as ew
import zoo
from edgewise.algorithms.registry import methods
from edgewise.api import preflight
from typed_zoo import typed_model


def neighbourhoods(question):
    return [float(n) for n in re.search(r"neighbourhoods +(\S+) nodes and (\S+) edges", str(question)).groups()]


def test_senders_count_as_nodes_of_a_neighbourhood():
    star = Data(x=torch.randn(6, 4), edge_index=torch.tensor([[1, 2, 3, 4, 5], [0] * 5]))
    assert neighbourhoods(ew.Question(SAGEConv(4, 2), star, 0)) == [6, 5]
    assert neighbourhoods(ew.Question(SAGEConv(4, 2), star, 3)) == [1, 0]  # no edge reaches it
    chain = Data(x=torch.randn(4, 4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    twice = nn.ModuleList([SAGEConv(4, 4), SAGEConv(4, 2)])
    ask = ew.Question(twice, chain, 3, forward=lambda m, d: m[1](m[0](d.x, d.edge_index), d.edge_index))
    assert neighbourhoods(ask) == [3, 2]


def test_neighbourhoods_of_a_graph_that_is_cut_are_counted_by_its_own_columns():
    nodes = 3000  # × 60 features: more than is run whole
    chain = Data(x=torch.randn(nodes, 60), edge_index=torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)]))
    ask = ew.Question(SAGEConv(60, 2), chain, [2500, 2999])
    assert ask._posed.cut.num_nodes > ask._posed.cut.data.num_nodes
    assert neighbourhoods(ask) == [2, 1]


def test_typed_neighbourhoods_are_counted_too():
    model, data = typed_model("to_hetero sage", 6)
    nodes, edges = neighbourhoods(ew.Question(model, data, ("user", [0, 1])))
    assert 1 <= nodes <= 2 * edges + 1


class Stopped(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = SAGEConv(zoo.FEATURES, 4), SAGEConv(4, zoo.CLASSES)

    def forward(self, x, edge_index):
        hidden = self.one(x, edge_index)
        return self.two((hidden / hidden.norm()).detach(), edge_index)


@pytest.mark.parametrize("model", ["stopped", "gcn", "sage_max", "gat", "regression"])
@pytest.mark.filterwarnings("ignore::edgewise.errors.LocalityWarning")
def test_what_has_a_price_answers_and_what_would_be_refused_has_its_reason(model, monkeypatch):
    monkeypatch.setattr(preflight, "_TRIAL", math.inf)  # also where the machine is slow
    case = None if model == "stopped" else zoo.BY_NAME[model]
    ask = ew.Question(
        zoo.randomise(Stopped()) if case is None else case.build(),
        zoo.GRAPHS["everything_once"](),
        [0, 1],
        **({} if case is None else case.arguments),
    )
    text = str(ask)
    refused = "".join(line for line in text.splitlines() if line.startswith("Refused here"))
    priced = set(re.findall(r"^(\w+) +(?:input|layer) +\S", text, re.MULTILINE))
    for name, method in methods().items():
        if method.chooses:
            continue
        small = {key: 2 for key in ("epochs", "samples", "beam") if key in method.settings}
        why = refusal(ask, name, small)
        assert (name in priced) == (why == "")
        assert why in text
        assert (f"{name} (" in refused) == (why != "")


def refusal(ask, name, settings):
    try:
        ask.explain(name, **settings)
    except ew.EdgewiseError as error:
        return str(error)
    return ""


def test_whole_graph_is_explained():
    ask = ew.Question(zoo.BY_NAME["gcn"].build(), zoo.GRAPHS["directed"](), 4)
    assert "whole graph (the graph is small enough to be taken whole, nothing was cut out)" in str(ask)
