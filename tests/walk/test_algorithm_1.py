"""Algorithm 1 of the paper (`search="dag"`): the very walks of a plain loop; exact for two layers, and not for three."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import GraphSAGE

import edgewise as ew
from walk_checks import SIGNS, assert_top, crowded
from walk_models import stack, wide_stack
from walk_oracles import graph_twin, node_twin
from walk_searches import algorithm_1


def assert_listed(found, expected):
    assert [walk.nodes for walk in found] == [nodes for nodes, _ in expected]
    assert [walk.score for walk in found] == pytest.approx([score for _, score in expected], abs=1e-9)


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("kind", ["gcn", "sage_sum", "gin", "gat", "graph_conv"])
def test_the_walks_are_those_of_a_plain_loop(kind, sign):
    data, model = crowded(), stack(kind, 4, seed=13, act=torch.tanh)  # bent, so that no two walks have one score
    twin = node_twin(model, data)
    for width, k in ((1, 1), (1, 3), (2, 1), (3, 5)):
        for node, found in enumerate(ew.walks(model, data, k=k, search="dag", sign=sign, width=width)):
            assert_listed(found, algorithm_1(twin, twin.ends[node], sign, width)[:k])


def test_the_walks_of_a_graph_are_those_of_a_plain_loop():
    data, model = crowded(), wide_stack("graph_conv", 3, seed=4, pool="sum", act=nn.functional.leaky_relu)
    twin = graph_twin(model, data)
    (found,) = ew.walks(model, [data], task="graph", search="dag")
    assert_listed(found, algorithm_1(twin, twin.ends[0])[:1])


@pytest.mark.parametrize("kind", ["gcn", "sage_sum", "gin", "gat"])
@pytest.mark.parametrize("calls", [1, 2])
def test_one_and_two_layers_are_proven_and_exact(kind, calls):
    data, model = crowded(), stack(kind, calls, seed=14)
    for sign in SIGNS:
        for found, scores in zip(
            ew.walks(model, data, search="dag", sign=sign), node_twin(model, data).walks(), strict=True
        ):
            assert_top(found, scores, 1, sign)


@given(seed=st.integers(0, 9999), sign=st.sampled_from(SIGNS))
def test_two_layers_are_exact_whatever_the_weights(seed, sign):
    data, model = crowded(6, 14, seed=seed), stack("sage_sum", 2, seed=seed, act=nn.functional.leaky_relu)
    for found, scores in zip(
        ew.walks(model, data, search="dag", sign=sign), node_twin(model, data).walks(), strict=True
    ):
        assert_top(found, scores, 1, sign)


def test_for_graphs_only_one_layer_is_proven():
    data = crowded()
    for calls in (1, 2):
        model = wide_stack("graph_conv", calls, seed=4, pool="mean", act=nn.functional.leaky_relu)
        (found,) = ew.walks(model, [data], task="graph", search="dag")
        assert found.exact == (calls == 1)
        if calls == 1:
            assert_top(found, graph_twin(model, data).walks()[0], 1, "positive")


def test_three_layers_are_never_called_exact():
    data, model = crowded(), stack("gcn", 3, seed=4)
    assert not any(found.exact for found in ew.walks(model, data, search="dag"))


@given(seed=st.integers(0, 9999))
def test_at_width_one_without_anything_negative_it_is_right(seed):
    """One number a node: a larger prefix stays larger after any factor that is not negative."""
    data, generator = crowded(6, 14, seed=seed), torch.Generator().manual_seed(seed)
    data.x = torch.rand(data.num_nodes, 1, generator=generator, dtype=torch.float64)
    model = GraphSAGE(1, 1, 4, 1, aggr="sum", bias=False).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=generator, dtype=torch.float64))
    options = {"mode": "regression", "target": 0}
    for found, best in zip(
        ew.walks(model, data, search="dag", **options), ew.walks(model, data, **options), strict=True
    ):
        assert [w.score for w in found] == pytest.approx([w.score for w in best])


def test_with_room_for_every_prefix_nothing_is_missed():
    data, model = crowded(), stack("graph_conv", 4, seed=2, act=torch.tanh)
    missed = {}
    best = [found[0].score for found in ew.walks(model, data, sign="magnitude")]
    for width in (1, 10_000):
        found = [found[0].score for found in ew.walks(model, data, search="dag", sign="magnitude", width=width)]
        missed[width] = sum(abs(a) < abs(b) - 1e-9 for a, b in zip(found, best, strict=True))
    assert missed[1] > 0
    assert missed[10_000] == 0
