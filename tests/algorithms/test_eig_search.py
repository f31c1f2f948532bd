"""`eig_search` is (z − z with ω_e = w_base) / |1 − w_base|, and `best_subgraph` the best prefix of the ranked edges."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.nn import SAGEConv

import edgewise as ew
import oracles
import zoo
from checks import assert_close, explain_graph, explain_nodes, graph_problem, node_problem, on_pairs, quietly, scores_of
from footprint import Footprint

on_every_model = on_pairs(zoo.node_pairs())


def twin(numbers, edge_index, *, w_base=0.0, undirected=False, level="input"):
    """[rows, E] or [rows, L, E] from the definition, one edge after another."""
    edge, own = numbers.ones()
    reverse = reverses(edge_index) if undirected else {column: column for column in range(edge.shape[1])}
    groups = [slice(None)] if level == "input" else [slice(layer, layer + 1) for layer in range(len(edge))]
    with torch.no_grad():
        full = numbers()
        found = torch.zeros(len(full), len(groups), edge.shape[1], dtype=full.dtype)
        for number, group in enumerate(groups):
            for column in range(edge.shape[1]):
                weight = edge.clone()
                weight[group, [column, reverse[column]]] = w_base
                found[:, number, column] = (full - numbers(weight, own)) / abs(1 - w_base)
    return found[:, 0] if level == "input" else found


def reverses(edge_index):
    """The column of v → u for each column u → v; of parallel edges the first belongs to the first, and so on."""
    pairs = [tuple(pair) for pair in edge_index.t().tolist()]
    turn = [pairs[:column].count(pair) for column, pair in enumerate(pairs)]
    where = {(*pair, k): column for column, (pair, k) in enumerate(zip(pairs, turn, strict=True))}
    return {c: where.get((v, u, turn[c]), c) for c, (u, v) in enumerate(pairs)}


# Scores ###############################################################################################################


@on_every_model
def test_with_weight_zero_it_is_occlusion_for_every_architecture(case_name, graph_name):
    case, model, data, numbers = node_problem(case_name, graph_name)
    found = explain_nodes(case, model, data, method="eig_search")
    assert_close(scores_of(found), scores_of(explain_nodes(case, model, data, method="occlusion")), 1e-6)
    assert_close(scores_of(found), oracles.input_occlusion(numbers), 1e-9)
    assert found[0].self_scores is None


@pytest.mark.parametrize("level", ["input", "layer"])
@pytest.mark.parametrize("w_base", [0.0, 0.4, 2.0, -1.0])
@pytest.mark.parametrize("case_name", ["gcn", "gat", "gin", "sgc", "binary", "layer_norm_of_graphs"])
def test_linear_gradients_equal_their_definition(case_name, w_base, level):
    case, model, data, numbers = node_problem(case_name, "everything")
    found = explain_nodes(case, model, data, method="eig_search", w_base=w_base, level=level)
    assert_close(scores_of(found), twin(numbers, data.edge_index, w_base=w_base, level=level), 1e-9)


@pytest.mark.parametrize("level", ["input", "layer"])
@pytest.mark.parametrize("graph_name", ["directed", "parallel", "loops_on_some", "everything"])
@pytest.mark.parametrize("case_name", ["gcn", "sage_mean", "layer_norm_of_graphs"])
def test_undirected_edges_change_in_both_directions(case_name, graph_name, level):
    case, model, data, numbers = node_problem(case_name, graph_name)
    found = scores_of(explain_nodes(case, model, data, method="eig_search", undirected=True, level=level))
    expected = twin(numbers, data.edge_index, undirected=True, level=level)
    if case.local:  # the reverse of an edge that can reach the target may itself not reach it: no score
        inside = torch.stack([oracles.reach(data.edge_index, node, case.layers) for node in range(data.num_nodes)])
        expected = expected * (inside if level == "layer" else inside.any(dim=1))
    assert_close(found, expected, 1e-9)


@pytest.mark.parametrize("settings", [{}, {"w_base": 0.3}, {"undirected": True}])
def test_graph_models_are_scored_like_node_models(settings):
    case, model, data, numbers = graph_problem("sum_pool", "everything")
    found = explain_graph(case, model, data, method="eig_search", **settings)
    assert_close(found.scores, twin(numbers, data.edge_index, **settings)[0], 1e-9)
    graphs = [zoo.GRAPHS[name]() for name in ("directed", "everything", "no_edges")]
    together = ew.explain(model, graphs, task="graph", method="eig_search", **settings)
    assert_close(together[1].scores, found.scores, 1e-9)


def test_without_edges_there_are_no_scores():
    model, data = zoo.BY_NAME["gcn_relu"].build(), zoo.GRAPHS["no_edges"]()
    assert ew.explain(model, data, index=1, method="eig_search").scores.shape == (0,)


@pytest.mark.parametrize(
    ("settings", "fix"),
    [({"w_base": 1}, "Use w_base=0.0"), ({"w_base": "low"}, "a number"), ({"undirected": 1}, "True or False")],
)
def test_settings_out_of_their_range_are_refused(settings, fix):
    model, data = zoo.BY_NAME["gcn"].build(), zoo.GRAPHS["directed"]()
    with pytest.raises(ew.SettingError, match=fix):
        ew.explain(model, data, index=1, method="eig_search", **settings)


# The best subgraph ####################################################################################################


def slow_search(numbers, row, scores, edge_index, *, w_base=0.0, undirected=False, max_edges=None):
    """Every prefix, one forward pass each: (columns, alone, without)."""
    edge, own = numbers.ones()
    partner = reverses(edge_index) if undirected else {}
    order = sorted((c for c in range(len(scores)) if scores[c] != 0), key=lambda c: (-float(scores[c]), c))
    leads = [c for c in order if not undirected or c == min(c, partner[c]) or scores[partner[c]] == 0]
    best = None
    with torch.no_grad():
        for size in range(1, 1 + min(len(leads), max_edges or len(leads))):
            chosen = [c for lead in leads[:size] for c in dict.fromkeys([lead, partner.get(lead, lead)])]
            only, rest = torch.full_like(edge, w_base), edge.clone()
            only[:, chosen], rest[:, chosen] = 1.0, w_base
            alone, without = float(numbers(only, own)[row]), float(numbers(rest, own)[row])
            if best is None or alone - without > best[1] - best[2] + 1e-12:
                best = (chosen, alone, without)
    return best


@given(
    seed=st.integers(0, 10**6),
    case_name=st.sampled_from(["gcn_relu", "gat", "sage_mean"]),
    w_base=st.sampled_from([0.0, 0.3]),
    undirected=st.booleans(),
    max_edges=st.sampled_from([None, 3]),
)
def test_the_best_prefix_is_found(seed, case_name, w_base, undirected, max_edges):
    case = zoo.BY_NAME[case_name]
    model, data = case.build(seed), zoo.graph(zoo.random_edges(7, 14, seed), 7, seed=seed)
    numbers = oracles.Numbers(model, data)
    found = ew.explain(model, data, method="eig_search", w_base=w_base, undirected=undirected)
    best = ew.best_subgraph(model, data, found, max_edges=max_edges)
    assert len(best) == 7
    for row, (why, mine) in enumerate(zip(found, best, strict=True)):
        expected = slow_search(
            numbers, row, why.scores, data.edge_index, w_base=w_base, undirected=undirected, max_edges=max_edges
        )
        if expected is None:
            assert len(mine) == 0
            assert mine.alone == pytest.approx(mine.without + mine.gain)
            continue
        assert (mine.alone, mine.without) == pytest.approx(expected[1:], abs=1e-9)
        columns, expected_columns = (
            {c for c in part if why.scores[c] != 0} for part in (mine.columns.tolist(), expected[0])
        )
        assert columns == expected_columns
        alone = ew.best_subgraph(model, data, why, max_edges=max_edges)
        assert torch.equal(alone.columns, mine.columns)


def test_a_search_worked_out_by_hand():
    # z = 2·1 + 2·(−3) + 2·2: the edges with 2 and 1 support, the one with −3 opposes.
    conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)
    conv.lin_l.weight.data.fill_(2.0)
    data = zoo.graph([(0, 3), (1, 3), (2, 3)], 4)
    data.x = torch.tensor([[1.0], [-3.0], [2.0], [0.0]])
    best = ew.best_subgraph(conv, data, ew.explain(conv, data, index=3, target=1, method="eig_search"))
    assert best.columns.tolist() == [2, 0]
    assert (best.alone, best.without, best.gain, best.index, best.target) == (6.0, -6.0, 12.0, 3, 1)


@pytest.mark.parametrize("method", ["gradient", "occlusion", "full"])
def test_the_scores_of_any_method_can_be_searched(method):
    _, model, data, numbers = node_problem("gcn", "everything")
    found = ew.explain(model, data, index=[4, 1, 4], method=method)
    for why, mine in zip(found, ew.best_subgraph(model, data, found, batch_size=1), strict=True):
        expected = slow_search(numbers, int(why.index), why.scores, data.edge_index)
        assert (mine.alone, mine.without) == pytest.approx(expected[1:], abs=1e-9)
        assert mine.columns.tolist() == expected[0]


def test_graphs_have_best_subgraphs_too():
    _, model, data, numbers = graph_problem("pooled_binary", "everything")
    graphs = [zoo.GRAPHS["directed"](), data]
    found = ew.explain(model, graphs, task="graph", method="eig_search", of="prob")
    best = ew.best_subgraph(model, graphs, found)[1]
    numbers = oracles.Numbers(model, numbers.twin.data, mode="binary", of="prob")
    assert (best.alone, best.without) == pytest.approx(
        slow_search(numbers, 0, found[1].scores, data.edge_index)[1:], abs=1e-9
    )


def test_a_model_that_is_not_local_has_a_best_subgraph():
    case, model, data, numbers = node_problem("layer_norm_of_graphs", "directed")
    with quietly(case):
        why = ew.explain(model, data, index=2, method="eig_search")
        best = ew.best_subgraph(model, data, why)
    assert (best.alone, best.without) == pytest.approx(
        slow_search(numbers, 2, why.scores, data.edge_index)[1:], abs=1e-9
    )


def test_the_search_leaves_no_trace():
    model, data = zoo.BY_NAME["gat"].build().train(), zoo.GRAPHS["everything"]()
    found = ew.explain(model, data, method="eig_search")
    before = Footprint(model, data)
    ew.best_subgraph(model, data, found)
    before.assert_unchanged()


def test_what_cannot_be_searched_is_refused():
    model, data = zoo.BY_NAME["gcn"].build(), zoo.GRAPHS["directed"]()
    why = ew.explain(model, data, index=1, method="eig_search")
    with pytest.raises(ew.InputError, match=r"must be an Explanation"):
        ew.best_subgraph(model, data, why.scores)
    with pytest.raises(ew.InputError, match="level='input'"):
        ew.best_subgraph(model, data, ew.explain(model, data, index=1, level="layer"))
    with pytest.raises(ew.InputError, match="another method"):
        ew.best_subgraph(model, data, ew.explain(model, data, index=[1], method="random"))
    with pytest.raises(ew.InputError, match="edge_index differs"):
        ew.best_subgraph(model, zoo.GRAPHS["isolated"](), why)
    with pytest.raises(ew.SettingError, match="max_edges"):
        ew.best_subgraph(model, data, why, max_edges=0)
