"""`ew.subgraph_x`: the connected subgraph with the highest Shapley value; the twin tries all, coalition by coalition."""

from itertools import combinations
from math import factorial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import edgewise as ew
import oracles
import zoo
from checks import assert_close, explain_nodes, graph_problem, node_problem, quietly
from edgewise.algorithms.subgraph_x import NodeGame
from edgewise.score import Score


def connected(nodes, neighbours):
    """Whether a set of nodes hangs together."""
    seen, front = set(), [min(nodes)]
    while front:
        node = front.pop()
        if node not in seen:
            seen.add(node)
            front += [other for other in neighbours[node] & nodes if other not in seen]
    return seen == nodes


class SlowGame:
    """v of sets of nodes, one model run each, and Shapley values written from their definition."""

    def __init__(self, numbers, row, edge_index, layers, columns):
        self.numbers, self.row, self.layers = numbers, row, layers
        self.pairs = edge_index.t().tolist()
        self.columns = columns
        self.nodes = {node for column in columns for node in self.pairs[column]}
        self.neighbours = {node: set() for node in self.nodes}
        for column in columns:
            a, b = self.pairs[column]
            self.neighbours[a].add(b)
            self.neighbours[b].add(a)
        self.known = {}

    def value(self, coalition):
        on = frozenset(c for c in self.columns if set(self.pairs[c]) <= coalition)
        if on not in self.known:
            edge, own = self.numbers.ones()
            for column in set(self.columns) - on:
                edge[:, column] = 0.0
            with torch.no_grad():
                self.known[on] = float(self.numbers(edge, own)[self.row])
        return self.known[on]

    def shapley(self, chosen):
        reach = set(chosen)
        for _ in range(self.layers):
            reach |= {other for node in reach for other in self.neighbours[node]}
        others, n = sorted(reach - chosen), len(reach - chosen) + 1
        total = 0.0
        for size in range(n):
            weight = factorial(size) * factorial(n - size - 1) / factorial(n)
            for allies in combinations(others, size):
                total += weight * (self.value(set(allies) | chosen) - self.value(set(allies)))
        return total

    def best(self, max_nodes, must=None):
        found = {}
        for size in range(1, max_nodes + 1):
            for nodes in map(set, combinations(sorted(self.nodes), size)):
                if (must is None or must in nodes) and connected(nodes, self.neighbours):
                    found[frozenset(nodes)] = self.shapley(nodes)
        return found


def node_game(case_name, graph_name, node, seed=0):
    case, model, data, numbers = node_problem(case_name, graph_name, seed)
    columns = oracles.reach(data.edge_index, node, case.layers).any(dim=0).nonzero().view(-1).tolist()
    return model, data, SlowGame(numbers, node, data.edge_index, case.layers, columns)


@pytest.mark.parametrize("case_name", ["gcn", "gin", "gat", "sgc"])
@pytest.mark.parametrize("node", [1, 4])
def test_the_best_subgraph_equals_the_exhaustive_one(case_name, node):
    model, data, slow = node_game(case_name, "directed", node)
    every = slow.best(4, must=node)
    found = ew.subgraph_x(model, data, node, max_nodes=4, beam=10_000)
    assert found.proven
    assert found.error == 0
    assert found.shapley == pytest.approx(max(every.values()), abs=1e-9)
    assert every[frozenset(found.nodes.tolist())] == pytest.approx(found.shapley, abs=1e-9)
    chosen = set(found.nodes.tolist())
    assert found.columns.tolist() == [c for c in slow.columns if set(slow.pairs[c]) <= chosen]


@given(st.integers(0, 1000))
def test_so_it_does_on_random_graphs_with_the_default_beam(seed):
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randint(7, (10, 2), generator=generator).tolist()
    data, model = zoo.graph([tuple(pair) for pair in pairs], 7), zoo.BY_NAME["gcn_relu"].build(seed)
    numbers = oracles.Numbers(model, data)
    columns = oracles.reach(data.edge_index, 0, 3).any(dim=0).nonzero().view(-1).tolist()
    if not columns:
        return
    every = SlowGame(numbers, 0, data.edge_index, 3, columns).best(3, must=0)
    found = ew.subgraph_x(model, data, 0, max_nodes=3)
    assert found.proven
    assert found.shapley == pytest.approx(max(every.values()), abs=1e-9)


def test_a_graph_may_have_its_subgraph_anywhere():
    case, model, data, numbers = graph_problem("sum_pool", "directed")
    slow = SlowGame(numbers, 0, data.edge_index, case.layers, list(range(data.edge_index.size(1))))
    every = slow.best(3)
    found = ew.subgraph_x(model, data, task="graph", max_nodes=3, beam=10_000)
    assert found.shapley == pytest.approx(max(every.values()), abs=1e-9)


def test_drawn_coalitions_are_within_their_standard_errors(monkeypatch):
    _, model, data, _ = node_problem("gcn", "everything")
    exact = ew.subgraph_x(model, data, 4, max_nodes=3, beam=1000)
    monkeypatch.setattr("edgewise.algorithms.subgraph_x.EXACT_PLAYERS", 0)
    score = Score(model, data, [4])
    game = NodeGame(score, 2000, seed=3)
    members = torch.isin(game.nodes, exact.nodes).view(1, -1)
    value, error = game.shapley(members)
    assert 0 < float(error) < 0.1
    assert abs(float(value) - exact.shapley) < 4 * float(error)
    drawn = ew.subgraph_x(model, data, 4, max_nodes=3, samples=50)
    assert not drawn.proven
    assert drawn.error > 0
    again = ew.subgraph_x(model, data, 4, max_nodes=3, samples=50)
    assert (again.shapley, again.nodes.tolist()) == (drawn.shapley, drawn.nodes.tolist())


def test_a_narrow_beam_is_not_called_proven():
    _, model, data, _ = node_problem("gcn", "everything")
    assert not ew.subgraph_x(model, data, 4, max_nodes=4, beam=1).proven


@pytest.mark.parametrize("case_name", ["gcn", "sage_max"])
def test_as_a_method_the_edges_inside_have_the_subgraphs_value(case_name):
    case, model, data, _ = node_problem(case_name, "everything_once" if case_name == "sage_max" else "everything")
    explained = explain_nodes(case, model, data, index=[4, 1], method="subgraphx", max_nodes=3)
    with quietly(case):
        found = ew.subgraph_x(model, data, [4, 1], max_nodes=3)
    for why, best in zip(explained, found, strict=True):
        expected = torch.zeros_like(why.scores)
        expected[best.columns] = best.shapley
        assert_close(why.scores, expected, 1e-9)


def test_equal_coalitions_are_run_once():
    _, model, data, _ = node_problem("gcn", "directed")
    game = NodeGame(Score(model, data, [4]), 10, 0)
    nothing = torch.zeros(5, game.num_nodes, dtype=torch.bool)
    assert len(game.values(nothing).unique()) == 1
    assert (game.coalitions.asked, game.coalitions.run) == (5, 1)


def test_a_node_without_edges_is_its_own_subgraph():
    model, data = zoo.BY_NAME["gcn"].build(), zoo.GRAPHS["no_edges"]()
    found = ew.subgraph_x(model, data, 2)
    assert (found.nodes.tolist(), found.shapley, len(found.columns)) == ([2], 0.0, 0)


def test_a_graph_without_edges_has_an_empty_one():
    model, data = zoo.GRAPH_BY_NAME["sum_pool"].build(), zoo.GRAPHS["no_edges"]()
    found = ew.subgraph_x(model, data, task="graph")
    assert (found.nodes.tolist(), found.shapley, found.proven) == ([], 0.0, True)


@pytest.mark.parametrize(("wrong", "words"), [({"max_nodes": 0}, "max_nodes"), ({"task": "link"}, "node, graph")])
def test_impossible_settings_are_refused(wrong, words):
    _, model, data, _ = node_problem("gcn", "directed")
    with pytest.raises(ew.SettingError, match=words):
        ew.subgraph_x(model, data, 1, **wrong)
