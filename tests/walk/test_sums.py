"""All walks together make the explained number, and all walks through an edge its layer gradient: where, and where not."""

from collections import Counter
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch_geometric.nn import LayerNorm

import edgewise as ew
import zoo
from walk_checks import all_of
from walk_models import stack, wide_stack
from zoo import WIDTH

ACTS = {"linear": nn.Identity(), "relu": torch.relu, "leaky": nn.functional.leaky_relu}
HOMOGENEOUS = ["gcn", "sage_sum", "sage_mean", "sage_without_root", "graph_conv", "gin", "sgc"]


def assert_sum(model, data, **options):
    total, value = all_of(model, data, **options)
    assert float(value.abs().max()) > 0.01
    assert torch.allclose(total, value, rtol=1e-9, atol=1e-9)


def assert_no_sum(model, data, **options):
    total, value = all_of(model, data, **options)
    assert float((total - value).abs().max()) > 1e-3


# Where they hold ######################################################################################################


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("kind", HOMOGENEOUS)
def test_without_biases_all_walks_sum_to_the_number(kind, act):
    assert_sum(stack(kind, 3, seed=13, bias=False, act=ACTS[act]), zoo.GRAPHS["everything"]())


@pytest.mark.parametrize("residual", ["before", "after", "linear"])
@pytest.mark.parametrize("kind", ["gcn", "gin", "sage_without_root"])
def test_with_residuals_too(kind, residual):
    model = wide_stack(kind, 3, seed=13, bias=False, residual=residual)
    assert_sum(model, zoo.GRAPHS["everything"]())


@pytest.mark.parametrize("pool", ["mean", "sum", "max"])
@pytest.mark.parametrize("kind", ["gcn", "gin"])
def test_and_for_graphs(kind, pool):
    graphs = [zoo.GRAPHS["everything"](), zoo.GRAPHS["directed"]()]
    assert_sum(wide_stack(kind, 2, seed=15, bias=False, pool=pool), graphs, task="graph")


@pytest.mark.parametrize("kind", ["gat", "gat_averaged", "gat_without_loops", "gat_attributes"])
def test_and_for_attention_that_is_held_fixed(kind):
    assert_sum(stack(kind, 3, seed=13, bias=False), zoo.GRAPHS["everything"](), attention="fixed")


# Where they do not ####################################################################################################


@pytest.mark.parametrize("kind", HOMOGENEOUS)
def test_not_with_biases(kind):
    assert_no_sum(stack(kind, 3, seed=13), zoo.GRAPHS["everything"]())


def test_not_with_a_bent_activation():
    assert_no_sum(stack("gcn", 3, seed=13, bias=False, act=torch.tanh), zoo.GRAPHS["everything"]())


def test_not_with_edge_features_inside_a_relu():
    assert_no_sum(stack("gine", 3, seed=13, bias=False), zoo.GRAPHS["everything"]())


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_not_with_full_attention(kind):
    assert_no_sum(stack(kind, 3, seed=13, bias=False), zoo.GRAPHS["everything"]())


def test_not_below_a_norm():
    norms = [LayerNorm(WIDTH, mode="node", affine=False)]
    assert_no_sum(stack("gcn", 3, seed=13, bias=False, norms=norms), zoo.GRAPHS["everything"]())


# Through one step #####################################################################################################


def steps_of(found, call):
    """{(u, v): the sum over all walks that go from u to v in a call}."""
    total = Counter()
    for walk in found:
        total[list(pairwise(walk.nodes))[call]] += walk.score
    return total


def gradients_of(why, call):
    """{(u, v): the layer gradients of all edges from u to v, and the self score if u = v}."""
    total = Counter({(node, node): float(s) for node, s in enumerate(why.self_scores[call])})
    for (source, receiver), score in zip(why.edge_index.t().tolist(), why.scores[call].tolist(), strict=True):
        total[source, receiver] += score
    return total


def largest_gap(model, data, call):
    """Over all nodes and steps of a call: how far the sum of walks is from the layer gradient."""
    walks = ew.walks(model, data, k=100_000, sign="magnitude", search="exhaustive")
    gradients = ew.explain(model, data, level="layer")
    gaps = [0.0]
    for found, why in zip(walks, gradients, strict=True):
        one, other = steps_of(found, call), gradients_of(why, call)
        gaps += [abs(one[step] - other[step]) for step in one.keys() | other.keys()]
    return max(gaps)


@pytest.mark.parametrize("act", [torch.relu, nn.functional.leaky_relu])
@pytest.mark.parametrize("kind", HOMOGENEOUS)
def test_walks_through_a_step_sum_to_its_layer_gradient(kind, act):
    data, model = zoo.GRAPHS["everything"](), stack(kind, 3, seed=13, bias=False, act=act)
    assert max(largest_gap(model, data, call) for call in range(3)) < 1e-9


@pytest.mark.parametrize("kind", HOMOGENEOUS)
def test_in_the_first_call_biases_and_bent_activations_do_not_matter(kind):
    data, model = zoo.GRAPHS["everything"](), stack(kind, 3, seed=13, act=torch.tanh)
    assert largest_gap(model, data, 0) < 1e-9


@pytest.mark.parametrize(("bias", "act"), [(True, torch.relu), (False, torch.tanh)])
def test_in_later_calls_they_do(bias, act):
    data, model = zoo.GRAPHS["everything"](), stack("gcn", 3, seed=13, bias=bias, act=act)
    assert min(largest_gap(model, data, call) for call in (1, 2)) > 1e-3


def test_messages_that_are_bent_in_the_sender_have_other_gradients_even_in_the_first_call():
    data, model = zoo.GRAPHS["everything"](), stack("gine", 2, seed=13, bias=False)
    assert largest_gap(model, data, 0) > 1e-3
