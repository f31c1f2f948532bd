"""Every answer about a part that was cut out of a graph is the one that the whole graph gives: columns, nodes and numbers."""

import warnings

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, SimpleConv

import edgewise as ew
from checks import assert_close
from edgewise.graph import cut
from edgewise.trust import certify, sign_flips

NODES, INDEX = 90, [71, 12, 70]


class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.one = kind(5, 6) if kind is not SimpleConv else nn.Linear(5, 6)
        self.mix = SimpleConv("sum") if kind is SimpleConv else nn.Identity()
        self.two = SAGEConv(6, 3)

    def forward(self, x, edge_index):
        hidden = self.mix(self.one(x), edge_index) if self.kind is SimpleConv else self.one(x, edge_index)
        return self.two(hidden.relu(), edge_index)


def problem(kind):
    """A ring with chords, its columns in no order: a target has a few dozen of them in reach."""
    torch.manual_seed(0)
    ring = torch.arange(NODES)
    ends = torch.stack([torch.cat([ring, ring]), torch.cat([(ring + 1) % NODES, (ring + 7) % NODES])])
    ends = torch.cat([ends, ends.flip(0)], dim=1)
    data = Data(x=torch.randn(NODES, 5).double(), edge_index=ends[:, torch.randperm(ends.size(1))])
    return Net(kind).double().eval(), data


def scores(found):
    return torch.stack([why.edge_scores() for why in found])


def walk_rows(found):
    return [[(walk.nodes, round(walk.score, 9)) for walk in walks] for walks in found]


def pairs(found, part):
    table = torch.zeros(len(INDEX), 10 * NODES, dtype=torch.float64)
    table[found.owner, found.edge_id] = part.double()
    return table


ANSWERS = {
    **{
        f"explain {name}": lambda model, data, name=name: scores(ew.explain(model, data, INDEX, method=name))
        for name in ew.methods()
        if name not in ("goat_walks",)
    },
    "self scores": lambda m, d: torch.stack(
        [own.nan_to_num(7.0) for why in ew.explain(m, d, INDEX, level="layer") if (own := why.self_scores) is not None]
    ),
    "top 3": lambda m, d: scores(ew.explain(m, d, INDEX, top=3, method="occlusion")),
    "walks": lambda m, d: walk_rows(ew.walks(m, d, INDEX, k=5)),
    "walk relevance": lambda m, d: ew.walk_relevance(
        m, d, INDEX[0], walks=[w.nodes for w in ew.walks(m, d, INDEX[0], k=4)]
    ),
    "subgraph relevance": lambda m, d: ew.subgraph_relevance(m, d, INDEX[0], nodes=[71, 70, 72, 64, 78]),
    "sign flips": lambda m, d: pairs(found := sign_flips(m, d, INDEX), found.gradient),
    "lowest gradients": lambda m, d: pairs(found := sign_flips(m, d, INDEX), found.lowest),
    "certificate": lambda m, d: pairs(found := certify(m, d, INDEX), found.keeps),
    "features": lambda m, d: torch.stack([f.scores for f in ew.features(m, d, INDEX)]),
    "occluded features": lambda m, d: torch.stack([f.scores for f in ew.features(m, d, INDEX, method="occlusion")]),
    "fidelity": lambda m, d: ew.metrics.fidelity(ew.explain(m, d, INDEX), m, d, k=3, by="support").plus.value,
    "removal": lambda m, d: (
        ew.metrics.fidelity(ew.explain(m, d, INDEX), m, d, k=3, by="support", how="removing").minus.value
    ),
    "unfaithfulness": lambda m, d: ew.metrics.unfaithfulness(ew.explain(m, d, INDEX), m, d, k=3, by="support").value,
    "best subgraph": lambda m, d: [b.columns.tolist() for b in ew.best_subgraph(m, d, ew.explain(m, d, INDEX))],
    "similarity": lambda m, d: ew.similarity(ew.explain(m, d, INDEX), ew.explain(m, d, INDEX, method="occlusion")),
}


@pytest.mark.parametrize("kind", [GCNConv, GATConv, SimpleConv], ids=["gcn", "gat", "simple"])
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_on_a_cut_is_that_of_the_whole_graph(name, kind, monkeypatch):
    model, data = problem(kind)
    found = []
    for small in (0, 10**9):
        monkeypatch.setattr(cut, "_SMALL", small)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert ew.Question(model, data, INDEX)._posed.cut.is_whole == (small > 0)
            try:
                found.append(ANSWERS[name](model, data))
            except ew.EdgewiseError as error:
                found.append(str(error))
    if isinstance(found[0], torch.Tensor):
        assert_close(found[0], found[1], 1e-9)
    else:
        assert found[0] == found[1]


class WeighedByStates(nn.Module):
    """Weights of edges are made from both ends, and a GCN layer adds them up at each sender."""

    def __init__(self):
        super().__init__()
        self.one, self.gate, self.two = GCNConv(3, 4), nn.Linear(8, 1), GCNConv(4, 2)

    def forward(self, x, edge_index):
        h = self.one(x, edge_index).tanh()
        ends = torch.cat([h[edge_index[0]], h[edge_index[1]]], dim=1)
        return self.two(h, edge_index, self.gate(ends).sigmoid().view(-1))


@pytest.mark.parametrize("limit", [0, 2**17])
def test_weights_that_are_made_from_nodes_and_added_up_at_senders_reach_one_hop_further(monkeypatch, limit):
    monkeypatch.setattr(cut, "_SMALL", limit)
    torch.manual_seed(2)
    model = WeighedByStates().double().eval()
    model.gate.weight.data *= 5
    senders = torch.arange(5)  # 0 → 1 → 2 → 3 → 4 → 5
    data = Data(x=torch.randn(12, 3).double(), edge_index=torch.stack([senders, senders + 1]))
    with pytest.warns(ew.LocalityWarning, match="normalise them by sums|outside a neighbourhood"):
        (found,) = ew.explain(model, data, [5], level="layer")

    def value(change):
        def scaled(module, inputs, output):
            output = output.clone()
            output[2] *= change  # 2 → 3, three hops before 5
            return output

        handle = model.one.register_message_forward_hook(scaled)
        with torch.no_grad():
            out = model(data.x, data.edge_index)[5, found.target]
        handle.remove()
        return float(out)

    slope = (value(1 + 1e-5) - value(1 - 1e-5)) / 2e-5
    assert abs(slope) > 1e-4
    assert float(found.scores[0, 2]) == pytest.approx(slope, rel=1e-4)


class MeanBehindARelu(nn.Module):
    """A mean over all nodes counts behind a unit that is off at the given features."""

    def __init__(self):
        super().__init__()
        self.conv = SAGEConv(2, 2)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index) + (x.mean(0, keepdim=True)[:, :1] - 3 * x[:, :1]).relu()


def test_features_that_wake_what_is_cut_off_are_tried_on_the_whole_graph(monkeypatch):
    monkeypatch.setattr(cut, "_SMALL", 0)
    torch.manual_seed(0)
    model = MeanBehindARelu().double().eval()
    x = torch.rand(12, 2).double() + 1
    data = Data(x=x, edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    true = model(x, data.edge_index).detach()
    (found,) = ew.features(model, data, [3], method="occlusion")
    for node, feature in [(3, 0), (2, 0), (3, 1)]:
        changed = x.clone()
        changed[node, feature] = 0
        lost = true[3, found.target] - model(changed, data.edge_index)[3, found.target].detach()
        assert float(found.scores[node, feature]) == pytest.approx(float(lost), abs=1e-9)


class PairsBehindARelu(MeanBehindARelu):
    """The same of links."""

    def forward(self, x, edge_index, edge_label_index):
        h = super().forward(x, edge_index)
        return (h[edge_label_index[0]] * h[edge_label_index[1]]).sum(dim=1)


def test_features_of_a_link_are_tried_on_the_whole_graph_as_well(monkeypatch):
    monkeypatch.setattr(cut, "_SMALL", 0)
    torch.manual_seed(0)
    model = PairsBehindARelu().double().eval()
    x = torch.rand(12, 2).double() + 1
    data = Data(x=x, edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), edge_label_index=torch.tensor([[3], [5]]))
    (found,) = ew.features(model, data, task="link", method="occlusion", output="logit")
    true = model(x, data.edge_index, data.edge_label_index).detach()
    for node, feature in [(3, 0), (2, 0), (5, 1)]:
        changed = x.clone()
        changed[node, feature] = 0
        lost = true - model(changed, data.edge_index, data.edge_label_index).detach()
        assert float(found.scores[node, feature]) == pytest.approx(float(lost), abs=1e-9)
