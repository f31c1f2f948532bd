"""Walks on graphs with loops, parallel edges, lonely nodes or no edges at all; walks of whole graphs; random graphs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.data import Data

import edgewise as ew
import zoo
from checks import assert_close
from walk_checks import SEARCHES, SIGNS, assert_alive, assert_top, assert_walks, crowded
from walk_models import KINDS, mlp, stack, wide_stack
from walk_oracles import graph_twin, node_twin
from zoo import CLASSES, WIDTH

SPECIAL = [name for name in zoo.GRAPHS if name != "weighted"]
FAMILIES = ["gcn", "sage_mean", "sage_without_root", "gine", "gat_without_loops"]


@pytest.mark.parametrize("graph", SPECIAL)
@pytest.mark.parametrize("kind", FAMILIES)
def test_special_graphs_have_the_walks_of_the_oracle(kind, graph):
    data, model = zoo.GRAPHS[graph](), stack(kind, 2, seed=1)
    assert_walks(model, data, node_twin(model, data).walks(), ks=(1, 5))


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("kind", ["sage_without_root", "gat_without_loops", "gcn"])
def test_without_edges_only_staying_is_left(kind, search):
    data, model = zoo.GRAPHS["no_edges"](), stack(kind, 2, act=nn.functional.leaky_relu)
    found = ew.walks(model, data, search=search, sign="magnitude", k=9)
    expected = [[] if kind != "gcn" else [(node, node, node)] for node in range(data.num_nodes)]
    assert [sorted({walk.nodes for walk in one if walk.score != 0}) for one in found] == expected


@pytest.mark.parametrize("search", SEARCHES)
def test_a_target_that_nothing_reaches_has_no_walks_and_that_is_proven(search):
    data, model = zoo.GRAPHS["no_in_edges"](), stack("sage_without_root", 2, act=nn.functional.leaky_relu)
    found = ew.walks(model, data, 3, search=search)
    assert len(found) == 0
    assert found.upper_bound == 0
    assert found.num_layers == 0
    assert found.edge_scores().tolist() == [0.0] * data.num_edges
    if search in ("exact", "exhaustive"):
        assert found.exact


def test_results_do_not_depend_on_the_company_or_the_order_of_the_targets():
    data, model = crowded(), stack("gin", 3, seed=2)
    everyone = ew.walks(model, data, k=5)
    for index in ([6, 1, 1, 4], torch.tensor([0, 7])):
        for position, one in zip(torch.as_tensor(index).tolist(), ew.walks(model, data, index, k=5), strict=True):
            assert one.walks == everyone[position].walks
            assert one.index == position
    assert ew.walks(model, data, 3, k=5).walks == everyone[3].walks


def test_another_class_and_another_number_have_their_own_walks():
    data, model = crowded(), stack("gcn", 2, seed=4)
    target = torch.full((data.num_nodes,), 2)
    assert_walks(model, data, assert_alive(node_twin(model, data, target=target).walks()), ks=(5,), target=2)
    logit = ew.walks(model, data, 1, k=5, target=2, sign="magnitude")
    prob = ew.walks(model, data, 1, k=5, target=2, sign="magnitude", of="prob")
    assert logit[0].score != pytest.approx(prob[0].score)
    assert prob.value == pytest.approx(float(model(data.x, data.edge_index)[1].softmax(0)[2].detach()))


def test_one_logit_speaks_for_the_predicted_class():
    data, model = crowded(), stack("sage_sum", 2, seed=3, outputs=1)
    with torch.no_grad():
        output = model(data.x, data.edge_index).view(-1)
    assert (output > 0).any()
    assert (output < 0).any()
    plain = node_twin(model, data, target=torch.zeros(data.num_nodes, dtype=torch.long)).walks()
    signed = [{w: s if z > 0 else -s for w, s in one.items()} for one, z in zip(plain, output, strict=True)]
    assert_walks(model, data, signed, ks=(5,))


# Whole graphs #########################################################################################################


@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("pool", ["mean", "sum", "max"])
@pytest.mark.parametrize("kind", ["gcn", "sage_without_root", "gine", "gat"])
def test_walks_of_a_graph_end_anywhere(kind, pool, calls):
    data, model = zoo.GRAPHS["everything"](), wide_stack(kind, calls, seed=5 + calls, pool=pool, act=torch.tanh)
    assert_walks(model, [data], assert_alive(graph_twin(model, data).walks()), ks=(50,), task="graph")


@pytest.mark.parametrize("kind", ["gcn", "graph_conv", "sgc", "gatv2"])
def test_a_head_of_several_layers_is_part_of_the_gradient(kind):
    data = crowded()
    model = wide_stack(kind, 3, seed=6, pool="sum", head=mlp(WIDTH, CLASSES), act=nn.functional.leaky_relu)
    assert_walks(model, [data], assert_alive(graph_twin(model, data).walks()), ks=(1, 5), task="graph")


@pytest.mark.parametrize("memory", [None, "100KB"])
def test_graphs_of_a_list_are_answered_one_by_one_with_their_own_node_numbers(memory):
    graphs = [zoo.GRAPHS[name]() for name in ("everything", "no_edges", "directed", "isolated", "parallel_loops")]
    model = wide_stack("gin", 2, seed=7, pool="mean")
    found = ew.walks(model, graphs, task="graph", k=5, sign="magnitude", memory=memory)
    for position, (one, data) in enumerate(zip(found, graphs, strict=True)):
        assert_top(one, graph_twin(model, data).walks()[0], 5, "magnitude")
        assert (one.index, one.num_nodes) == (position, data.num_nodes)
        assert torch.equal(one.edge_index, data.edge_index)
    (alone,) = ew.walks(model, graphs, [2], task="graph", k=5, sign="magnitude")
    assert alone.walks == found[2].walks


def test_one_graph_alone_gives_one_walk_set():
    data, model = zoo.GRAPHS["directed"](), wide_stack("gcn", 2, pool="mean")
    found = ew.walks(model, data, task="graph", k=3)
    assert_top(found, graph_twin(model, data).walks()[0], 3, "positive")


# Random graphs ########################################################################################################


@st.composite
def graphs(draw):
    nodes = draw(st.integers(1, 6))
    end = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(end, end), max_size=12))
    return zoo.graph(edges, nodes, seed=draw(st.integers(0, 99)))


@given(
    data=graphs(),
    kind=st.sampled_from(KINDS),
    calls=st.integers(1, 4),
    seed=st.integers(0, 99),
    k=st.sampled_from([1, 2, 5, 50]),
    sign=st.sampled_from(SIGNS),
    act=st.sampled_from([torch.relu, torch.tanh, nn.functional.leaky_relu]),
)
def test_random_models_on_random_graphs_have_the_walks_of_the_oracle(data, kind, calls, seed, k, sign, act):
    model = stack(kind, calls, seed=seed, act=act)
    scores = node_twin(model, data).walks()
    for search in ("exact", "exhaustive"):
        for one, expected in zip(ew.walks(model, data, k=k, sign=sign, search=search), scores, strict=True):
            assert_top(one, expected, k, sign)


@given(
    data=graphs(), seed=st.integers(0, 99), pool=st.sampled_from(["mean", "sum", "max"]), sign=st.sampled_from(SIGNS)
)
def test_random_graphs_as_wholes_have_the_walks_of_the_oracle(data, seed, pool, sign):
    model = wide_stack("graph_conv", 3, seed=seed, pool=pool, act=nn.functional.leaky_relu)
    (found,) = ew.walks(model, [data], task="graph", k=5, sign=sign)
    assert_top(found, graph_twin(model, data).walks()[0], 5, sign)


@given(data=graphs(), seed=st.integers(0, 99), order=st.randoms(use_true_random=False))
def test_renaming_the_nodes_renames_the_walks(data, seed, order):
    model = stack("sage_mean", 3, seed=seed, act=torch.tanh)
    name = list(range(data.num_nodes))
    order.shuffle(name)
    name = torch.tensor(name)
    x = torch.empty_like(data.x).index_copy_(0, name, data.x)
    renamed = Data(x=x, edge_index=name[data.edge_index])
    before, after = (ew.walks(model, some, k=9, sign="magnitude") for some in (data, renamed))
    for node in range(data.num_nodes):
        one, other = before[node], after[int(name[node])]
        assert_close(torch.tensor([w.score for w in one]), torch.tensor([w.score for w in other]), 1e-9)
