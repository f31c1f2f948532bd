"""Chains of GATv2 in compiled loops, against the passes over all targets at once that they stand for."""

import importlib.util

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GATv2Conv

import edgewise as ew
from checks import assert_same_scores
from edgewise.program import attention_chain, attention_drops

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="numba is not installed (extra `fast`)"
)


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """However little the work is."""
    for file in (attention_chain, attention_drops):
        monkeypatch.setattr(file, "_MANY", 1)
        monkeypatch.setattr(file, "_WORK", 0)
    monkeypatch.setattr("edgewise.program.kernels._WORTH_IT", 0)


class Attentive(nn.Module):
    """Layers of two heads side by side; the heads of the last one are averaged."""

    def __init__(self, layers, between=torch.relu, kind=GATv2Conv, **options):
        super().__init__()
        last = {"heads": 3, "concat": False, **options}
        self.convs = nn.ModuleList(kind(5 if i == 0 else 4, 2, heads=2, **options) for i in range(layers - 1))
        self.convs.append(kind(5 if layers == 1 else 4, 3, **last))
        self.between = between

    def forward(self, x, edge_index):
        for conv in self.convs[:-1]:
            x = self.between(conv(x, edge_index))
        return self.convs[-1](x, edge_index)


def graph(seed, *, loops=False):
    """Eight nodes, twenty edges, some twice."""
    draw = torch.Generator().manual_seed(seed)
    source, shift = torch.randint(8, (20,), generator=draw), torch.randint(1, 8, (20,), generator=draw)
    ends = torch.stack([source, (source + shift) % 8])
    ends = torch.cat([ends, torch.tensor([[3], [3]])], dim=1) if loops else ends
    return Data(x=3 * torch.randn(8, 5, generator=draw, dtype=torch.double), edge_index=ends)


def both(model, data, method, level, **options):
    """By the loops, and with their door shut; and whether the loops were used."""
    used = []
    ask = ew.Question(model.double().eval(), data, [3, 0, 3, 7], **options)
    with pytest.MonkeyPatch.context() as patch:
        for kind in (attention_chain.AttentionGradients, attention_drops.AttentionDrops):
            run = kind.run
            patch.setattr(kind, "run", lambda *a, run=run, **k: used.append(1) or run(*a, **k))
        fast = ask.explain(method, level=level)
        for file in (attention_chain, attention_drops):
            patch.setattr(file, "is_attention_chain", lambda *a: False)
        count = len(used)
        slow = ask.explain(method, level=level)
        assert len(used) == count
    return fast, slow, bool(used)


@given(
    st.integers(1, 3),
    st.sampled_from([torch.relu, nn.ELU(), lambda h: h]),
    st.sampled_from([{}, {"share_weights": True}, {"add_self_loops": False}, {"bias": False}]),
    st.sampled_from(["input", "layer"]),
    st.integers(0, 10**6),
)
def test_gradients_are_those_of_the_reverse_pass(layers, between, options, level, seed):
    torch.manual_seed(seed)
    fast, slow, used = both(Attentive(layers, between, **options), graph(seed), "gradient", level)
    assert used
    assert_same_scores(fast, slow)


@given(
    st.integers(1, 3),
    st.sampled_from([torch.relu, nn.LeakyReLU(0.3), lambda h: h]),
    st.sampled_from([{}, {"share_weights": True}, {"add_self_loops": False}, {"bias": False}]),
    st.sampled_from(["input", "layer"]),
    st.sampled_from([1.0, 20.0]),
    st.integers(0, 10**6),
)
def test_drops_are_those_of_blocks_of_slots(layers, between, options, level, size, seed):
    """With large features attention is all on one message: sums are then not brought up to date."""
    torch.manual_seed(seed)
    data = graph(seed)
    data.x = size * data.x
    fast, slow, used = both(Attentive(layers, between, **options), data, "occlusion", level)
    assert used
    assert_same_scores(fast, slow)


@pytest.mark.parametrize("of", ["prob", "log_prob"])
def test_probabilities_are_explained_too(of):
    fast, slow, used = both(Attentive(2), graph(1), "gradient", "layer", of=of)
    assert used
    assert_same_scores(fast, slow)


@pytest.mark.parametrize(
    ("model", "loops"),
    [
        (Attentive(2, kind=GATConv), False),
        (Attentive(2), True),
        (Attentive(7), False),
        (Attentive(2, between=lambda h: h.softmax(dim=-1)), False),
    ],
    ids=["GAT", "explicit loops", "seven layers", "a softmax between"],
)
@pytest.mark.parametrize("method", ["gradient", "occlusion"])
def test_what_is_no_such_chain_takes_the_other_way(model, loops, method):
    fast, slow, used = both(model, graph(5, loops=loops), method, "layer")
    assert not used
    assert_same_scores(fast, slow)
