"""Blocks of attention layers in closed form, against derivatives at private copies of every row (`by_copies`)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv

import edgewise as ew
import zoo
from checks import assert_close
from edgewise.question import pose
from edgewise.walk import block_builder, node_jacobians
from edgewise.walk.attention_blocks import attention_blocks, attention_products
from edgewise.walk.block_builder import by_copies
from edgewise.walk.calls import Calls
from edgewise.walk.lrp import Rule
from edgewise.walk.record import reuse
from pyg_versions import RESIDUAL
from zoo import EDGE_FEATURES, FEATURES

OPTIONS = {
    GATConv: [{}, {"add_self_loops": False}, RESIDUAL, {"negative_slope": 0.5}],
    GATv2Conv: [{}, {"add_self_loops": False}, RESIDUAL, {"share_weights": True}],
    TransformerConv: [{}, {"root_weight": False}, {"bias": False}],
}


class One(nn.Module):
    """A single conv, with or without edge features."""

    def __init__(self, kind, *, concat, edges, **options):
        super().__init__()
        given = {"edge_dim": EDGE_FEATURES} if edges else {}
        self.conv, self.edges = kind(FEATURES, 3, heads=2, concat=concat, **given, **options), edges

    def forward(self, x, edge_index, edge_attr):
        return self.conv(x, edge_index, edge_attr) if self.edges else self.conv(x, edge_index)


def call_of(model, data, *, merged):
    """The layer of the only call, its pairs, its rows and its edges."""
    question = pose(
        model, data, [0], target=None, task="node", mode=None, of="logit", output=None, forward=None, device=None,
        without_itself=False,
    )  # fmt: skip
    subject = question.node_model
    with subject.loan.taken():
        recording = reuse(subject.trace, subject.lowering, subject.graph)
    calls = Calls(recording, Rule("gradient", 0.0, 0.0), "full", merged=merged)
    message = calls.chain.messages[0]
    return message.layer, calls.geometry(0), recording.table(message), recording.hop(0)


@given(
    st.sampled_from([(kind, options) for kind, every in OPTIONS.items() for options in every]),
    st.sampled_from(["everything", "directed", "isolated", "parallel_loops"]),
    st.booleans(), st.booleans(), st.booleans(), st.integers(0, 10**6),
)  # fmt: skip
def test_the_closed_form_is_the_derivative_at_private_copies(layer, graph, concat, edges, merged, seed):
    kind, options = layer
    model = zoo.randomise(One(kind, concat=concat, edges=edges, **options), seed)
    call = call_of(model, zoo.GRAPHS[graph](), merged=merged)
    assert_close(attention_blocks(*call), by_copies(*call), 1e-9)
    along = torch.randn(call[2].shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    assert_close(attention_products(*call, along), by_copies(*call, along), 1e-9)


@pytest.mark.parametrize("kind", OPTIONS)
def test_walks_through_attention_differentiate_no_copies(kind, monkeypatch):
    def refuse(*args):
        raise AssertionError("the derivatives of attention are known")

    for file in (block_builder, node_jacobians):
        monkeypatch.setattr(file, "by_copies", refuse)
    convs = [kind(FEATURES if i == 0 else 6, 3, heads=2) for i in range(3)]
    model = zoo.randomise(zoo.Chain(*convs, act=torch.relu))
    assert ew.walks(model, zoo.GRAPHS["everything"](), 1, k=3).exact


def test_a_model_in_single_precision_has_blocks_of_double_precision_at_its_own_activations():
    data, model = zoo.GRAPHS["everything"](), zoo.randomise(One(GATv2Conv, concat=True, edges=False))
    exact = call_of(model, data, merged=True)
    data.x, data.edge_attr = data.x.float(), data.edge_attr.float()
    single = call_of(model.float(), data, merged=True)
    found = attention_blocks(*single)
    assert found.dtype == torch.double
    assert_close(found, attention_blocks(*exact), 1e-5)  # features and weights were rounded to 6e-8 of their size
