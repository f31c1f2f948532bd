"""Walks of equal score: ordered by their nodes from the explained node back, and never gone through one by one."""

from itertools import product

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import edgewise as ew
import zoo
from walk_checks import SIGNS, assert_alive, assert_walks
from walk_models import stack, wide_stack
from walk_oracles import graph_twin, node_twin


def ring(nodes):
    """Both ways around, all features equal."""
    here = torch.arange(nodes)
    edge_index = torch.stack([here.repeat(2), torch.cat([(here + 1) % nodes, (here - 1) % nodes])])
    return Data(x=torch.ones(nodes, zoo.FEATURES, dtype=torch.float64), edge_index=edge_index)


def signed(found):
    """The sign that this target has walks of."""
    return next(sign for sign in SIGNS if len(found(sign)))


@pytest.mark.parametrize("kind", ["gcn", "gat", "sage_without_root", "gin"])
def test_on_a_small_ring_ties_are_ordered_as_the_oracle_orders_them(kind):
    data, model = ring(5), stack(kind, 3, seed=1, act=nn.functional.leaky_relu)
    assert_walks(model, data, assert_alive(node_twin(model, data).walks()))


@pytest.mark.parametrize("kind", ["gcn", "gin"])
def test_on_a_small_ring_ties_of_the_whole_graph_too(kind):
    data, model = ring(5), wide_stack(kind, 2, seed=1, pool="mean", act=nn.functional.leaky_relu)
    assert_walks(model, [data], assert_alive(graph_twin(model, data).walks()), task="graph")


@pytest.mark.parametrize("calls", [6, 10])
def test_on_a_large_ring_the_first_of_many_equal_walks_are_found_at_once(calls):
    """Three ways on at every step, so 3^10 = 59,049 walks of one score; the search does not look at all of them."""
    data, model = ring(40), stack("gcn", calls, seed=1, act=nn.functional.leaky_relu)
    sign = signed(lambda sign: ew.walks(model, data, 20, sign=sign))
    found = ew.walks(model, data, 20, k=10, sign=sign)
    steps = product([-1, 0, 1], repeat=calls)  # read from the explained node back: smaller ids first
    first = [
        tuple(20 + sum(step[:n]) for n in reversed(range(calls + 1))) for step, _ in zip(steps, range(10), strict=False)
    ]
    assert [walk.nodes for walk in found] == first
    assert max(walk.score for walk in found) == pytest.approx(min(walk.score for walk in found), rel=1e-12)
    assert found.exact
    assert found.upper_bound == pytest.approx(abs(found[0].score))
    assert found.expansions < 300


def test_where_the_ring_closes_the_smallest_number_comes_first():
    data, model = ring(40), stack("gcn", 6, seed=1, act=nn.functional.leaky_relu)
    sign = signed(lambda sign: ew.walks(model, data, 0, sign=sign))
    found = ew.walks(model, data, 0, k=3, sign=sign)
    assert [walk.nodes[::-1] for walk in found] == [(0,) * 7, (0,) * 6 + (1,), (0,) * 6 + (39,)]


def test_a_budget_that_is_spent_on_ties_is_no_proof():
    data, model = ring(40), stack("gcn", 6, seed=1, act=nn.functional.leaky_relu)
    sign = signed(lambda sign: ew.walks(model, data, 0, sign=sign))
    found = ew.walks(model, data, 0, k=10, sign=sign, budget=8)
    assert not found.exact
    assert found.upper_bound >= abs(found[0].score) * (1 - 1e-12)
