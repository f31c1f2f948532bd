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
