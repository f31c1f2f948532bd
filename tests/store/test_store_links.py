"""Links of a graph on disk: the numbers of the same graph in memory, by every verb that takes links."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv

import edgewise as ew

PAIRS = [(3, 40), (7, 7), (12, 90), (100, 3)]


class Links(nn.Module):
    """Two layers, and the product of both ends."""

    def __init__(self, conv):
        super().__init__()
        self.first, self.second = conv(4, 6), conv(6, 5)

    def encode(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)

    def decode(self, z, edge_label_index):
        return (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(dim=1)


def graph():
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, 150, (2, 400), generator=generator)
    edges = torch.cat([edges, torch.tensor([[3, 40, 12], [40, 3, 90]])], dim=1)
    return Data(x=torch.randn(150, 4, generator=generator, dtype=torch.float64), edge_index=edges)


@pytest.mark.parametrize("conv", [GCNConv, SAGEConv])
@pytest.mark.parametrize("without_itself", [False, True])
def test_links_of_a_store_have_the_scores_of_the_graph_in_memory(tmp_path, conv, without_itself):
    torch.manual_seed(1)
    model, data = Links(conv).double().eval(), graph()
    store = ew.GraphStore.build(tmp_path / "store", data)
    for method, level in (("gradient", "layer"), ("occlusion", "input")):
        how = {"task": "link", "method": method, "level": level, "without_itself": without_itself}
        ours, theirs = ew.explain(model, store, PAIRS, **how), ew.explain(model, data, PAIRS, **how)
        assert torch.allclose(ours.value, theirs.value, atol=1e-12)
        for one, other in zip(ours, theirs, strict=True):
            assert torch.allclose(one.scores, other.scores, atol=1e-12)
            assert torch.allclose(one.self_scores, other.self_scores, atol=1e-12)


def test_other_verbs_take_links_of_a_store(tmp_path):
    torch.manual_seed(1)
    model, data = Links(GCNConv).double().eval(), graph()
    store = ew.GraphStore.build(tmp_path / "store", data)
    asked = ew.Question(model, store, PAIRS[:2], task="link")
    again = asked.of((12, 90)).explain()
    assert torch.allclose(again.scores, ew.explain(model, data, (12, 90), task="link").scores, atol=1e-12)
    assert again.index == (12, 90)
    ours, theirs = (ew.features(model, one, (3, 40), task="link") for one in (store, data))
    assert torch.allclose(ours.scores, theirs.scores, atol=1e-12)
    assert ours.scores.abs().sum() > 0
    flips = [ew.counterfactual(model, one, (3, 40), task="link", size=1) for one in (store, data)]
    assert flips[0].edges == flips[1].edges
    assert flips[0].lower_bound == flips[1].lower_bound
    saved = tmp_path / "links.npz"
    ew.explain(model, store, PAIRS, task="link").save(saved)
    assert ew.load(saved)[2].index == (12, 90)


def test_jobs_over_a_store_explain_nodes(tmp_path):
    store = ew.GraphStore.build(tmp_path / "store", graph())
    with pytest.raises(ew.InputError, match="explains nodes"):
        ew.jobs.run(Links(GCNConv).double(), store, PAIRS, out=tmp_path / "job", task="link")
