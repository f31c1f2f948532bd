"""Methods `lrp` and `goat_walks`: every walk one by one, every matrix by hand, summed over the walks through an edge.

A step of a call is a column, or staying: along an added loop (GCN), which is an adjacency entry, or through a root matrix
(SAGE, GraphConv), which is none.
"""

from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch_geometric.nn import GCNConv, GraphConv, SAGEConv

import edgewise as ew
import zoo
from checks import assert_close, scores_of
from footprint import Footprint

CALLS = 3
CONVS = {
    "gcn": lambda a, b, bias: GCNConv(a, b, bias=bias),
    "sage_sum": lambda a, b, bias: SAGEConv(a, b, aggr="sum", bias=bias),
    "graph_conv": lambda a, b, bias: GraphConv(a, b, bias=bias),
}
GRAPHS = ["directed", "loops_on_some"]


def chain(conv, *, bias=True, seed=0):
    widths = [zoo.FEATURES, zoo.WIDTH, zoo.WIDTH, zoo.CLASSES]
    convs = [CONVS[conv](a, b, bias) for a, b in pairwise(widths)]
    return zoo.randomise(zoo.Chain(*convs, act=torch.relu), seed)


@dataclass(frozen=True)
class Step:
    sender: int
    receiver: int
    factor: float
    column: int | None = None
    root: bool = False


def steps_of(conv, data):
    """Every way in which a node receives from a node, itself included."""
    pairs = [tuple(pair) for pair in data.edge_index.t().tolist()]
    if not isinstance(conv, GCNConv):
        edges = [Step(u, v, 1.0, column) for column, (u, v) in enumerate(pairs)]
        return edges + [Step(v, v, 1.0, root=True) for v in range(data.num_nodes)]
    loops = [(v, v) for v in range(data.num_nodes) if (v, v) not in pairs]
    degree = [sum(b == v for _, b in pairs + loops) for v in range(data.num_nodes)]
    every = [(u, v, column) for column, (u, v) in enumerate(pairs)] + [(v, v, None) for v, _ in loops]
    return [Step(u, v, (degree[u] * degree[v]) ** -0.5, column) for u, v, column in every]


def parts_of(conv):
    """W, R (or None), b (or None)."""
    if isinstance(conv, GCNConv):
        return conv.lin.weight, None, conv.bias
    if isinstance(conv, SAGEConv):
        return conv.lin_l.weight, conv.lin_r.weight, conv.lin_l.bias
    return conv.lin_rel.weight, conv.lin_root.weight, conv.lin_rel.bias


@torch.no_grad()
def walks_of(model, data, epsilon=0.0, gamma=0.0):
    """For every node: [(steps from the features on, relevance)] of all walks that end there."""
    x = data.x
    arriving = [((), node, x[node]) for node in range(data.num_nodes)]
    for number, conv in enumerate(model.convs):
        raised = [None if part is None else part + gamma * part.clamp(min=0) for part in parts_of(conv)]
        plain, steps, last = parts_of(conv), steps_of(conv, data), number == len(model.convs) - 1
        sums = {}
        for name, (weight, root, bias) in (("plain", plain), ("raised", raised)):
            q = torch.zeros(data.num_nodes, len(weight), dtype=torch.double)
            for step in steps:
                q[step.receiver] += step.factor * ((root if step.root else weight) @ x[step.sender])
            sums[name] = q if bias is None else q + bias
        output = sums["plain"] if last else sums["plain"].relu()
        below = sums["raised"] + epsilon * torch.where(sums["raised"] >= 0, 1.0, -1.0).double()
        share = torch.where(below == 0, 0.0, output / below)
        arriving = [
            (
                (*walk, step),
                step.receiver,
                share[step.receiver] * (step.factor * ((raised[1] if step.root else raised[0]) @ row)),
            )
            for walk, node, row in arriving
            for step in steps
            if step.sender == node
        ]
        x = output
    column = x.argmax(dim=1)
    return [[(walk, float(row[column[v]])) for walk, node, row in arriving if node == v] for v in range(data.num_nodes)]


def through_edges(walks, edges):
    """[T, L, E]: the relevance of all walks that use a column in a call."""
    found = torch.zeros(len(walks), CALLS, edges, dtype=torch.double)
    for target, mine in enumerate(walks):
        for walk, relevance in mine:
            for call, step in enumerate(walk):
                if step.column is not None:
                    found[target, call, step.column] += relevance
    return found


RULES = [
    ({"rule": "gradient"}, {}),
    ({"epsilon": 0.1}, {"epsilon": 0.1}),
    ({}, {"epsilon": 1e-9}),
    ({"rule": "lrp-gamma", "gamma": 0.5}, {"gamma": 0.5}),
]


@pytest.mark.parametrize(("settings", "formula"), RULES, ids=["gradient", "epsilon", "as given", "gamma"])
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("conv", CONVS)
def test_lrp_is_the_sum_over_all_walks_through_an_edge(conv, graph, settings, formula):
    model, data = chain(conv), zoo.GRAPHS[graph]()
    data.x = data.x.abs()  # γ needs inputs that are not negative
    expected = through_edges(walks_of(model, data, **formula), data.edge_index.size(1))
    layers = ew.explain(model, data, method="lrp", level="layer", **settings)
    assert_close(scores_of(layers), expected, 1e-9)
    assert_close(scores_of(ew.explain(model, data, method="lrp", **settings)), expected.sum(dim=1), 1e-9)


@given(seed=st.integers(0, 10**6), conv=st.sampled_from(sorted(CONVS)))
def test_so_it_is_on_random_graphs(seed, conv):
    edges = list(dict.fromkeys(map(tuple, zoo.random_edges(5, 9, seed))))
    model, data = chain(conv, seed=seed), zoo.graph(edges, 5, seed=seed)
    expected = through_edges(walks_of(model, data, epsilon=0.01), len(edges))
    assert_close(scores_of(ew.explain(model, data, method="lrp", epsilon=0.01, level="layer")), expected, 1e-9)


@pytest.mark.parametrize("conv", CONVS)
def test_without_biases_lrp_by_gradients_is_the_layer_gradient(conv):
    model, data = chain(conv, bias=False), zoo.GRAPHS["everything"]()
    gradient = scores_of(ew.explain(model, data, method="gradient", level="layer"))
    walks = scores_of(ew.explain(model, data, method="lrp", rule="gradient", level="layer"))
    assert_close(walks, gradient, 1e-9)


def goat(walks, edges):
    """[T, E]: relevance / (2L + distinct adjacency entries), once for each distinct edge of a walk."""
    found = torch.zeros(len(walks), edges, dtype=torch.double)
    for target, mine in enumerate(walks):
        for walk, relevance in mine:
            entries = {(step.sender, step.receiver) for step in walk if not step.root}
            for column in {step.column for step in walk if step.column is not None}:
                found[target, column] += relevance / (2 * CALLS + len(entries))
    return found


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("conv", CONVS)
def test_goat_shares_every_walk_among_its_distinct_factors(conv, graph):
    model, data = chain(conv), zoo.GRAPHS[graph]()
    expected = goat(walks_of(model, data), data.edge_index.size(1))
    assert_close(scores_of(ew.explain(model, data, method="goat_walks")), expected, 1e-9)


@given(seed=st.integers(0, 10**6), conv=st.sampled_from(sorted(CONVS)))
def test_so_it_does_on_random_graphs(seed, conv):
    edges = list(dict.fromkeys(map(tuple, zoo.random_edges(5, 9, seed))))
    model, data = chain(conv, seed=seed), zoo.graph(edges, 5, seed=seed)
    assert_close(scores_of(ew.explain(model, data, method="goat_walks")), goat(walks_of(model, data), len(edges)), 1e-9)


def test_a_walk_that_uses_an_edge_twice_has_a_factor_less_worked_out_by_hand():
    model = zoo.Chain(*[SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False) for _ in range(2)], act=nn.Identity())
    model = model.double().eval()
    for conv, weight in zip(model.convs, (2.0, 3.0), strict=True):
        conv.lin_l.weight.data.fill_(weight)
    data = zoo.graph([(0, 0), (1, 0)], 2)
    data.x = torch.tensor([[1.0], [5.0]], dtype=torch.double)
    # Walks to node 0: 0→0→0 with relevance 6 and one entry, 1→0→0 with 30 and two; four other factors each.
    why = ew.explain(model, data, 0, method="goat_walks", target=0, mode="regression")
    assert why.scores.tolist() == pytest.approx([6 / 5 + 30 / 6, 30 / 6])
    relevance = ew.explain(model, data, 0, method="lrp", target=0, mode="regression", level="layer").scores
    assert_close(relevance, torch.tensor([[6.0, 30.0], [36.0, 0.0]]).double(), 1e-6)


@pytest.mark.parametrize("method", ["lrp", "goat_walks"])
def test_scores_do_not_depend_on_blocks_or_on_the_order_of_the_index(method):
    model, data = chain("gcn"), zoo.graph(zoo.random_edges(15, 30), 15)
    whole = scores_of(ew.explain(model, data, [3, 7, 3, 0], method=method))
    parts = scores_of(ew.explain(model, data, [3, 7, 3, 0], method=method, memory="10KB"))
    backwards = scores_of(ew.explain(model, data, [0, 3, 7, 3], method=method))
    assert_close(parts, whole, 1e-12)
    assert_close(backwards, whole[[3, 0, 1, 2]], 1e-12)


@pytest.mark.parametrize("method", ["lrp", "goat_walks"])
def test_graphs_have_the_sums_over_their_own_walks(method):
    case = zoo.GRAPH_BY_NAME["sum_pool"]
    graphs = [zoo.GRAPHS[name]() for name in ("directed", "parallel", "loops_on_some")]
    together = ew.explain(case.build(), graphs, task="graph", method=method)
    for graph, why in zip(graphs, together, strict=True):
        alone = ew.explain(case.build(), graph, task="graph", method=method)
        assert_close(why.scores, alone.scores, 1e-9)
        assert bool(why.scores.any())


@pytest.mark.parametrize("method", ["lrp", "goat_walks"])
def test_they_leave_no_trace(method):
    model, data = chain("gcn").train(), zoo.GRAPHS["everything"]()
    before = Footprint(model, data)
    ew.explain(model, data, [1, 2], method=method)
    before.assert_unchanged()


def test_goat_has_no_layers_and_says_so():
    with pytest.raises(ew.SettingError, match="no level 'layer'"):
        ew.explain(chain("gcn"), zoo.GRAPHS["directed"](), method="goat_walks", level="layer")
