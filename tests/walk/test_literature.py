"""AMP-ave, its additive variant and EMP-neu against plain loops and against enumeration of every neuron-level walk."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, GINConv

import edgewise as ew
import zoo
from edgewise.errors import ModelError
from walk_checks import SIGNS, assert_top, crowded
from walk_models import Stack, edge_counts, mlp, stack, wide_stack
from walk_oracles import graph_twin, key_of, node_twin, twin
from walk_searches import amp_ave, amp_ave_additive, neuron_walks, relevance
from zoo import CLASSES, FEATURES, WIDTH

LOOPS = {"amp_ave": amp_ave, "amp_ave_additive": amp_ave_additive}


def assert_listed(found, expected):
    assert [walk.nodes for walk in found] == [nodes for nodes, _ in expected]
    assert [walk.score for walk in found] == pytest.approx([score for _, score in expected], abs=1e-9)


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("kind", ["gcn", "sage_mean", "gin", "gat", "graph_conv"])
@pytest.mark.parametrize("search", LOOPS)
def test_amp_ave_gives_the_walks_of_a_plain_loop(search, kind, sign):
    data, model = crowded(), stack(kind, 4, seed=13, act=torch.tanh)
    oracle = node_twin(model, data)
    for k in (1, 4):
        for node, found in enumerate(ew.walks(model, data, k=k, search=search, sign=sign)):
            assert_listed(found, LOOPS[search](oracle, oracle.ends[node], k, sign))


@pytest.mark.parametrize("search", LOOPS)
def test_amp_ave_of_a_graph_gives_the_walks_of_a_plain_loop(search):
    data, model = crowded(), wide_stack("graph_conv", 3, seed=4, pool="mean", act=torch.tanh)
    oracle = graph_twin(model, data)
    (found,) = ew.walks(model, [data], task="graph", k=5, search=search)
    assert_listed(found, LOOPS[search](oracle, oracle.ends[0], 5))


@pytest.mark.parametrize("search", [*LOOPS, "dag"])
def test_for_one_layer_nothing_is_approximated(search):
    data, model = crowded(), stack("sage_sum", 1)
    for found, scores in zip(ew.walks(model, data, search=search), node_twin(model, data).walks(), strict=True):
        assert_top(found, scores, 1, "positive")


def test_the_variants_differ_from_each_other_and_from_the_truth():
    data, model = crowded(), stack("gcn", 4, seed=13, act=torch.tanh)
    top = {
        search: [found[0].nodes if len(found) else None for found in ew.walks(model, data, search=search)]
        for search in (*LOOPS, "exact")
    }
    assert top["amp_ave"] != top["amp_ave_additive"]
    assert top["amp_ave"] != top["exact"]


def test_the_additive_variant_lists_walks_in_its_own_order_with_their_true_relevance():
    data, model = crowded(), stack("gcn", 4, seed=13, act=torch.tanh)
    oracle = node_twin(model, data)
    lists = ew.walks(model, data, k=8, search="amp_ave_additive")
    for node, found in enumerate(lists):
        assert [w.score for w in found] == pytest.approx([relevance(oracle, oracle.ends[node], w.nodes) for w in found])
    assert any([w.score for w in found] != sorted((w.score for w in found), reverse=True) for found in lists)


# Neuron-level walks ###################################################################################################

TINY = zoo.graph([(0, 1), (1, 1), (1, 2), (1, 2), (2, 0), (3, 2)], 4, seed=2)


def assert_neurons(found, everything, k, sign):
    """The top k of all neuron-level walks."""
    expected = sorted((key_of(s, sign) for s in everything.values() if key_of(s, sign) > 1e-12), reverse=True)
    assert len(found) == min(k, len(expected))
    assert [key_of(w.score, sign) for w in found] == pytest.approx(expected[:k], abs=1e-9)
    for walk in found:
        assert walk.score == pytest.approx(everything[walk.nodes, walk.neurons], abs=1e-9)
    assert len({(w.nodes, w.neurons) for w in found}) == len(found)
    assert found.exact
    rest = expected[k] if len(expected) > k else 0.0
    assert found.upper_bound >= rest - 1e-12


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("kind", ["gcn", "sage_sum", "sage_without_root", "gat", "graph_conv"])
@pytest.mark.parametrize("calls", [1, 2, 3])
def test_emp_neu_finds_the_best_of_all_neuron_level_walks(kind, calls, sign):
    model = stack(kind, calls, seed=5, act=nn.functional.leaky_relu)
    oracle = node_twin(model, TINY)
    for k in (1, 7):
        for node, found in enumerate(ew.walks(model, TINY, k=k, search="emp_neu", sign=sign)):
            assert_neurons(found, neuron_walks(oracle, oracle.ends[node]), k, sign)


def test_the_last_neuron_of_a_gin_is_one_of_its_first_linear_map():
    """What follows inside its MLP belongs to the gradient of the number."""
    conv = GINConv(mlp(WIDTH, CLASSES), eps=0.3)
    model = zoo.randomise(Stack(GCNConv(FEATURES, WIDTH), conv, act=torch.tanh))
    with torch.no_grad():
        target = model(TINY.x, TINY.edge_index).argmax(dim=1)
    mixing = edge_counts(TINY) + 1.3 * torch.eye(4, dtype=torch.float64)
    calls = [lambda x: torch.tanh(model.convs[0](x, TINY.edge_index)), lambda x: conv.nn[0](mixing @ x)]
    oracle = twin(calls, lambda x: conv.nn[1:](x).gather(1, target.view(-1, 1)).view(-1), TINY.x)
    for node, found in enumerate(ew.walks(model, TINY, k=5, search="emp_neu")):
        assert_neurons(found, neuron_walks(oracle, oracle.ends[node]), 5, "positive")


def test_neuron_level_walks_of_a_node_walk_sum_to_its_relevance():
    model = stack("sage_sum", 2, seed=5, act=nn.functional.leaky_relu)
    scores = node_twin(model, TINY).walks()[2]
    found = ew.walks(model, TINY, 2, k=100_000, search="emp_neu", sign="magnitude")
    for nodes, score in scores.items():
        assert sum(walk.score for walk in found if walk.nodes == nodes) == pytest.approx(score, abs=1e-9)


def test_the_best_neuron_level_walk_need_not_lie_on_the_best_walk():
    model = stack("sage_sum", 3, seed=5, act=nn.functional.leaky_relu)
    data = crowded()
    best, neurons = (ew.walks(model, data, search=search) for search in ("exact", "emp_neu"))
    assert any(a[0].nodes != b[0].nodes for a, b in zip(best, neurons, strict=True))


def test_a_residual_around_the_first_or_last_call_has_no_neuron_and_is_refused():
    data = crowded()
    data.x = data.x[:, :WIDTH]
    model = stack("sage_sum", 2, residual="after", inputs=WIDTH, outputs=WIDTH)
    with pytest.raises(ModelError, match=r"residual.*search='exact'"):
        ew.walks(model, data, 0, search="emp_neu")
