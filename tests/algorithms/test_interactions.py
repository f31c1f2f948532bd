"""`ew.shapley_interactions`: what two players do together beyond what each does; the twin is the definition, pair by pair."""

from itertools import combinations
from math import factorial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import edgewise as ew
import oracles
import zoo
from checks import assert_close, graph_problem, node_problem
from edgewise.algorithms import interactions as module


def definition(value, count):
    """(interactions, Shapley values) of a function of sets of players."""
    matrix, shapley = torch.zeros(count, count, dtype=torch.double), torch.zeros(count, dtype=torch.double)
    for i in range(count):
        others = set(range(count)) - {i}
        for size in range(count):
            weight = factorial(size) * factorial(count - size - 1) / factorial(count)
            for chosen in map(frozenset, combinations(sorted(others), size)):
                shapley[i] += weight * (value(chosen | {i}) - value(chosen))
    for i, j in combinations(range(count), 2):
        others = sorted(set(range(count)) - {i, j})
        for size in range(count - 1):
            weight = factorial(size) * factorial(count - size - 2) / factorial(count - 1)
            for chosen in map(frozenset, combinations(others, size)):
                change = value(chosen | {i, j}) - value(chosen | {i}) - value(chosen | {j}) + value(chosen)
                matrix[i, j] += weight * change
    return matrix + matrix.t(), shapley


def slow_value(numbers, row, on_of):
    """v of sets of players, each run once; `on_of(set)` gives the columns that are on."""
    known = {}

    def value(chosen):
        on = frozenset(on_of(chosen))
        if on not in known:
            edge, own = numbers.ones()
            off = [column for column in range(edge.size(1)) if column not in on]
            edge[:, off] = 0.0
            with torch.no_grad():
                known[on] = float(numbers(edge, own)[row])
        return known[on]

    return value


def columns_of(data, node, layers):
    return oracles.reach(data.edge_index, node, layers).any(dim=0).nonzero().view(-1).tolist()


@pytest.mark.parametrize("case_name", ["gin", "gat", "sage_max"])
def test_edges_equal_the_definition(case_name):
    case, model, data, numbers = node_problem(case_name, "directed")
    node = 1
    columns = columns_of(data, node, case.layers)
    found = ew.shapley_interactions(model, data, node)
    assert found.exact
    assert list(found.players) == columns
    value = slow_value(numbers, node, lambda chosen: [columns[player] for player in chosen])
    matrix, shapley = definition(value, len(columns))
    assert_close(found.matrix, matrix, 1e-9)
    assert_close(found.shapley, shapley, 1e-9)
    assert not found.error.any()


@given(st.integers(0, 1000))
def test_on_random_graphs_nodes_equal_the_definition(seed):
    generator = torch.Generator().manual_seed(seed)
    data = zoo.graph([tuple(pair) for pair in torch.randint(6, (8, 2), generator=generator).tolist()], 6)
    model = zoo.BY_NAME["gcn_relu"].build(seed)
    numbers = oracles.Numbers(model, data)
    columns, ends = columns_of(data, 0, 3), data.edge_index.t().tolist()
    found = ew.shapley_interactions(model, data, 0, players="nodes")
    nodes = sorted({node for column in columns for node in ends[column]} - {0})
    assert list(found.players) == nodes

    def on_of(chosen):
        inside = {nodes[player] for player in chosen} | {0}
        return [column for column in columns if set(ends[column]) <= inside]

    matrix, shapley = definition(slow_value(numbers, 0, on_of), len(nodes))
    assert_close(found.matrix, matrix, 1e-9)
    assert_close(found.shapley, shapley, 1e-9)


def test_drawn_interactions_are_within_their_standard_errors(monkeypatch):
    _, model, data, _ = node_problem("gin", "directed")
    exact = ew.shapley_interactions(model, data, 1)
    monkeypatch.setattr(module, "EXACT_PLAYERS", 2)
    drawn = ew.shapley_interactions(model, data, 1, samples=400)
    assert not drawn.exact
    off = (drawn.matrix - exact.matrix).abs()
    assert bool((off <= 4.5 * drawn.error + 1e-9).all())
    assert float(off.max()) > 0
    assert_close(drawn.shapley, exact.shapley, 0.25)
    again = ew.shapley_interactions(model, data, [4, 1], samples=400)[1]
    assert torch.equal(again.matrix, drawn.matrix)  # of a target, whatever else is asked


def test_edges_that_only_add_up_do_not_interact_and_a_path_needs_all_of_its_edges():
    model, data = zoo.randomise(zoo.chain(zoo.LINEAR_CONVS["sage_sum"], 1), 0), zoo.GRAPHS["directed"]()
    assert_close(ew.shapley_interactions(model, data, 1).matrix.abs().max(), torch.tensor(0.0).double(), 1e-12)


def test_two_directions_can_be_one_player():
    _, model, _, _ = node_problem("gin", "directed")
    data = zoo.graph([(0, 1), (1, 0), (1, 2), (2, 1), (3, 2)], 4)
    found = ew.shapley_interactions(model, data, 2, undirected=True)
    assert found.players == ((0,), (2, 3), (4,))  # 1 → 0 is three steps away from node 2
    assert found.matrix.shape == (3, 3)


def test_graphs_and_lists_and_the_strongest_pairs():
    _, model, data, _ = graph_problem("sum_pool", "directed")
    found = ew.shapley_interactions(model, [data, data], task="graph", players="nodes")
    assert len(found) == 2
    assert_close(found[0].matrix, found[1].matrix, 1e-12)
    strongest = found[0].top(3)
    assert [abs(value) for value, _, _ in strongest] == sorted((abs(value) for value, _, _ in strongest), reverse=True)
    assert strongest[0][0] == pytest.approx(float(found[0].matrix.flatten()[found[0].matrix.abs().argmax()]))


def test_a_target_without_edges_has_no_players():
    model, data = zoo.BY_NAME["gcn"].build(), zoo.GRAPHS["no_edges"]()
    for players in ("edges", "nodes"):
        assert ew.shapley_interactions(model, data, 2, players=players).players == ()


def test_too_many_players_and_unknown_ones_are_refused(monkeypatch):
    _, model, data, _ = node_problem("gin", "directed")
    with pytest.raises(ew.SettingError, match="edges, nodes"):
        ew.shapley_interactions(model, data, 1, players="walks")
    monkeypatch.setattr(module, "MOST_PLAYERS", 2)
    with pytest.raises(ew.SettingError, match="players='nodes'"):
        ew.shapley_interactions(model, data, 1)
