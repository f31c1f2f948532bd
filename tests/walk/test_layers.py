"""Both ways to the true top k, `exact` and `exhaustive`, against products of full Jacobians: all layers, all depths."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GraphConv, LayerNorm

import zoo
from checks import alternating
from walk_checks import assert_alive, assert_walks, crowded
from walk_models import ATTENTION, KINDS, Stack, mlp, stack, wide_stack
from walk_oracles import node_twin
from zoo import CLASSES, FEATURES, WIDTH


@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_gives_the_walks_of_its_full_jacobians(kind, calls):
    data, model = zoo.GRAPHS["everything"](), stack(kind, calls, seed=10 + calls)
    assert_walks(model, data, assert_alive(node_twin(model, data).walks()), ks=(1, 5, 50) if calls == 3 else (5,))


@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("kind", ATTENTION)
def test_attention_may_be_held_fixed(kind, calls):
    data, model = zoo.GRAPHS["everything"](), stack(kind, calls, seed=10 + calls)
    scores = node_twin(model, data, attention="fixed").walks()
    assert scores != node_twin(model, data).walks()
    assert_walks(model, data, scores, ks=(5,), attention="fixed")


_DEEP = ["gcn", "sage_sum", "gin", "gine", "graph_conv", "gat", "gatv2", "sgc"]


@pytest.mark.parametrize(("kind", "calls"), alternating(_DEEP, (4, 5)))
def test_deep_models_have_hundreds_of_walks(kind, calls):
    data, model = crowded(), stack(kind, calls, seed=20 + calls, act=nn.functional.leaky_relu)
    scores = node_twin(model, data).walks()
    assert max(map(len, scores)) > 100
    assert_walks(model, data, scores, ks=(1, 5, 50) if calls == 5 else (5,))


@pytest.mark.parametrize("act", [torch.tanh, nn.functional.leaky_relu, nn.functional.elu, nn.Identity()])
def test_any_activation_is_part_of_the_blocks(act):
    data, model = crowded(), stack("graph_conv", 3, act=act)
    assert_walks(model, data, assert_alive(node_twin(model, data).walks()), ks=(1, 50))


@pytest.mark.parametrize("residual", ["before", "after", "linear"])
@pytest.mark.parametrize("kind", ["gcn", "sage_without_root", "gin", "gat"])
def test_a_residual_is_staying_on_the_node(kind, residual):
    data = zoo.GRAPHS["everything"]()
    model = wide_stack(kind, 3, seed=5, residual=residual, inputs=WIDTH, encoder=nn.Linear(FEATURES, WIDTH))
    assert_walks(model, data, assert_alive(node_twin(model, data).walks()), ks=(1, 50))


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_residual_around_the_first_and_the_last_call_counts(calls):
    data = crowded()
    data.x = data.x[:, :WIDTH]
    model = stack("sage_without_root", calls, seed=6, residual="after", inputs=WIDTH, outputs=WIDTH)
    assert_walks(model, data, assert_alive(node_twin(model, data).walks()), ks=(1, 50))


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, lambda width: LayerNorm(width, mode="node"), nn.LayerNorm])
@pytest.mark.parametrize("residual", [None, "after"])
def test_norms_of_single_nodes_are_part_of_the_blocks(norm, residual):
    data = zoo.GRAPHS["everything"]()
    model = wide_stack("gcn", 3, seed=7, residual=residual, norms=[norm(WIDTH) for _ in range(3)])
    assert_walks(model, data, assert_alive(node_twin(model, data).walks()), ks=(1, 50))


@pytest.mark.parametrize(
    "head", [nn.Linear(WIDTH, CLASSES), mlp(WIDTH, CLASSES), nn.Sequential(nn.BatchNorm1d(WIDTH), mlp(WIDTH, CLASSES))]
)
@pytest.mark.parametrize("calls", [1, 3])
def test_what_follows_the_last_call_is_part_of_the_gradient(head, calls):
    data, model = crowded(), wide_stack("sage_mean", calls, seed=8, head=head)
    assert_walks(model, data, assert_alive(node_twin(model, data).walks()), ks=(1, 50))


@pytest.mark.parametrize("kind", ["gcn", "gin", "gatv2", "gine"])
@pytest.mark.parametrize("calls", [1, 3])
def test_what_precedes_the_first_call_is_part_of_the_first_block(kind, calls):
    data = zoo.GRAPHS["everything"]()
    encoder = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.ReLU())
    model = wide_stack(kind, calls, seed=9, inputs=WIDTH, encoder=encoder)
    assert_walks(model, data, assert_alive(node_twin(model, data).walks()), ks=(1, 50))


@pytest.mark.parametrize("kind", ["gcn", "sage_sum", "gat"])
def test_negative_weights_and_negative_features_change_no_rule(kind):
    data, model = crowded(seed=4), stack(kind, 3, seed=11, act=nn.functional.leaky_relu)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(-parameter.abs() if parameter.dim() > 1 else parameter)
    data.x = -data.x.abs()
    assert_walks(model, data, assert_alive(node_twin(model, data).walks()), ks=(1, 50))


def test_edge_weights_of_either_sign_are_part_of_the_blocks():
    data = crowded()
    data.edge_weight = torch.randn(data.num_edges, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    convs = [GraphConv(FEATURES, WIDTH), GraphConv(WIDTH, WIDTH), GraphConv(WIDTH, CLASSES)]
    model = zoo.randomise(Stack(*convs, extra="edge_weight"))
    assert_walks(model, data, assert_alive(node_twin(model, data).walks()), ks=(1, 50))


def test_layers_of_different_kinds_may_follow_each_other():
    data = zoo.GRAPHS["everything"]()
    kinds = ["sage_without_root", "gat", "gin", "gcn"]
    parts = [
        stack(kind, 1, inputs=FEATURES if n == 0 else WIDTH, outputs=WIDTH).convs[0] for n, kind in enumerate(kinds)
    ]
    model = zoo.randomise(Stack(*parts, head=nn.Linear(WIDTH, CLASSES), act=nn.functional.leaky_relu))
    assert_walks(model, data, assert_alive(node_twin(model, data).walks()), ks=(1, 50))
