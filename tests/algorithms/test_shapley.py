"""`shapley`: the mean over random orders of what an edge adds to the edges before it; ω = 0 for those that have not come."""

from itertools import permutations
from math import ceil, factorial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import edgewise as ew
import oracles
import zoo
from checks import assert_close, explain_graph, explain_nodes, graph_problem, node_problem, quietly, scores_of
from edgewise import random_numbers
from edgewise.student_intervals import student_quantile
from footprint import Footprint

MODELS = ["gcn", "gat", "gin", "sage_max", "sgc", "binary", "layer_norm_of_graphs"]


def empty_and_full(numbers):
    edge, own = numbers.ones()
    with torch.no_grad():
        return numbers(torch.zeros_like(edge), own), numbers(edge, own)


def of_order(numbers, row, order, edge, own):
    """What each of [L, E] entries adds when they come in this order; an entry is (layers, column)."""
    weight, found = torch.zeros_like(edge), {}
    before = float(numbers(weight, own)[row])
    for layers, column in order:
        weight[layers, column] = 1.0
        after = float(numbers(weight, own)[row])
        found[str(layers), column], before = after - before, after
    return found


def twin(numbers, row, edge_index, layers, *, samples, level="input"):
    """The same random orders, one coalition after another: mean and standard error of each entry."""
    found = orders_of(numbers, row, edge_index, layers, samples=samples, level=level)
    mean, error = found.mean(dim=0), found.std(dim=0) / samples**0.5 * tails(found)
    return (mean, error) if level == "layer" else (mean[0], error[0])


def orders_of(numbers, row, edge_index, layers, *, samples, seed=0, level="input"):
    """`[samples, G, E]`: what each entry adds in each order."""
    edge, own = numbers.ones()
    inside = oracles.reach(edge_index, row, layers)
    inside = inside if level == "layer" else inside.any(dim=0, keepdim=True)
    players = inside.nonzero().tolist()
    found = torch.zeros(samples, *inside.shape, dtype=edge.dtype)
    with torch.no_grad():
        for sample in range(samples):
            draw = {
                (group, column): random_numbers.uniform(
                    seed, *(torch.tensor([n]) for n in (row, sample, group, column))
                )
                for group, column in players
            }
            order = sorted(players, key=lambda player: float(draw[tuple(player)]))
            moves = [(slice(None) if level == "input" else group, column) for group, column in order]
            gains = of_order(numbers, row, moves, edge, own)
            for (group, column), (layers_, _) in zip(order, moves, strict=True):
                found[sample, group, column] = gains[str(layers_), column]
    return found


def tails(found):
    """By how much intervals are too narrow, from what each of `[samples, …]` orders added: halves beside each other."""
    halves = found[0::2].flatten(1), found[1::2].flatten(1)
    if len(halves[1]) < 4:
        return 1.0
    ratios = []
    for half, other in (halves, halves[::-1]):
        for column in range(half.size(1)):
            spread = float(half[:, column].std())
            if spread > 1e-12:
                apart = abs(float(half[:, column].mean() - other[:, column].mean()))
                ratios.append(apart / (2**0.5 * spread / len(half) ** 0.5))
    if len(ratios) < 40:
        return 1.0
    high = sorted(ratios)[ceil(0.95 * (len(ratios) - 1))]
    return max(1.0, 1 + (high / student_quantile(0.975, len(halves[1]) - 1) - 1) / 2**0.5)


@pytest.mark.parametrize("level", ["input", "layer"])
@pytest.mark.parametrize("case_name", ["gcn", "gat", "sgc", "binary"])
def test_values_and_standard_errors_equal_their_definition(case_name, level):
    case, model, data, numbers = node_problem(case_name, "everything")
    found = explain_nodes(case, model, data, index=[4, 1], method="shapley", samples=4, level=level)
    for why in found:
        mean, error = twin(numbers, int(why.index), data.edge_index, case.layers, samples=4, level=level)
        assert_close(why.scores, mean, 1e-9)
        assert_close(why.standard_errors, error, 1e-9)
        assert why.self_scores is None


@pytest.mark.parametrize("level", ["input", "layer"])
def test_standard_errors_grow_where_the_halves_of_the_orders_differ_too_much(level):
    case, data = zoo.BY_NAME["gin"], zoo.graph(zoo.random_edges(6, 26, 3), 6)
    model = case.build()
    numbers, samples = oracles.Numbers(model, data), 8
    grown = 0
    for why in ew.explain(model, data, [0, 1], method="shapley", samples=samples, level=level):
        found = orders_of(numbers, int(why.index), data.edge_index, case.layers, samples=samples, level=level)
        error = (found.std(dim=0) / samples**0.5).view_as(why.scores)
        assert_close(why.scores, found.mean(dim=0).view_as(why.scores), 1e-9)
        assert_close(why.standard_errors, error * tails(found), 1e-9)
        grown += tails(found) > 1
    assert grown > 0


NOT_LOCAL_BY_LAYER = pytest.param(
    "layer_norm_of_graphs", "layer", marks=pytest.mark.slow
)  # a pass a layer, edge and node
MODELS_AND_LEVELS = [(name, level) for name in MODELS for level in ("input", "layer")]


@pytest.mark.parametrize(("case_name", "level"), [*MODELS_AND_LEVELS[:-1], NOT_LOCAL_BY_LAYER])
def test_values_sum_to_the_difference_between_all_edges_and_none(case_name, level):
    case, model, data, numbers = node_problem(case_name, "everything_once")
    none, everything = empty_and_full(numbers)
    for samples in (1, 3):
        found = scores_of(explain_nodes(case, model, data, method="shapley", samples=samples, level=level))
        assert_close(found.flatten(1).sum(dim=1), everything - none, 1e-9)


def test_graph_models_sum_too():
    case, model, data, numbers = graph_problem("max_pool", "everything")
    none, everything = empty_and_full(numbers)
    found = explain_graph(case, model, data, method="shapley", samples=2)
    assert_close(found.scores.sum(), (everything - none)[0], 1e-9)


def test_with_many_samples_they_are_the_shapley_values():
    model = zoo.BY_NAME["gcn_relu"].build()
    data = zoo.graph([(1, 0), (2, 0), (2, 1), (3, 2), (0, 1)], 4)
    numbers = oracles.Numbers(model, data)
    edge, own = numbers.ones()
    exact = torch.zeros(5, dtype=torch.double)
    with torch.no_grad():
        for order in permutations(range(5)):
            gains = of_order(numbers, 0, [(slice(None), column) for column in order], edge, own)
            for (_, column), gain in gains.items():
                exact[column] += gain / factorial(5)
    found = ew.explain(model, data, index=0, method="shapley", samples=2000)
    assert ((found.scores - exact).abs() <= 4 * found.standard_errors + 1e-12).all()
    assert (found.standard_errors < 0.05 * exact.abs().max()).all()
    few = ew.explain(model, data, index=0, method="shapley", samples=20)
    ratio = few.standard_errors / found.standard_errors
    assert 4 < ratio[found.standard_errors > 0].mean() < 25  # √100 = 10


def test_one_sample_has_no_standard_error():
    _, model, data, _ = node_problem("gcn", "directed")
    found = ew.explain(model, data, index=1, method="shapley", samples=1)
    assert found.standard_errors[found.scores != 0].isnan().all()


@given(seed=st.integers(0, 10**6), case_name=st.sampled_from(["gcn_relu", "gat", "gine", "mean_pool"]))
def test_values_do_not_depend_on_blocks_or_on_the_order_of_the_index(seed, case_name):
    graph_task = case_name in zoo.GRAPH_BY_NAME
    model = (zoo.GRAPH_BY_NAME if graph_task else zoo.BY_NAME)[case_name].build(seed)
    graphs = [zoo.graph(zoo.random_edges(6, size, seed + size), 6, seed=seed) for size in (0, 4, 9, 12)]
    data, task = (graphs, "graph") if graph_task else (graphs[3], "node")
    options = {"task": task, "method": "shapley", "samples": 3, "seed": seed}
    whole = ew.explain(model, data, index=[0, 1, 3, 2], **options)
    split = ew.explain(model, data, index=[3, 2, 1, 0], batch_size=1, **options)
    for why in whole:
        other = split.of(int(why.index))
        assert_close(other.scores, why.scores, 1e-9)
        assert_close(other.standard_errors, why.standard_errors, 1e-9)


def test_seeds_draw_different_orders():
    _, model, data, _ = node_problem("gcn", "everything")
    one, same, other = (ew.explain(model, data, index=4, method="shapley", samples=3, seed=s).scores for s in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_targets_draw_different_orders():
    # Two nodes with the very same neighbourhood: with few samples, only the orders tell them apart.
    data = zoo.graph([(0, 2), (1, 2), (0, 3), (1, 3)], 4)
    data.x[3] = data.x[2]
    model = zoo.BY_NAME["sage_mean_relu"].build()
    pairs = [ew.explain(model, data, index=[2, 3], method="shapley", samples=1, seed=s) for s in range(20)]
    assert any(not torch.allclose(a.scores[:2], b.scores[2:]) for a, b in pairs)


def test_standard_errors_travel_with_a_set(tmp_path):
    _, model, data, _ = node_problem("gcn", "everything")
    found = ew.explain(model, data, method="shapley", samples=3, level="layer")
    for ending in ("npz", "parquet"):
        found.save(tmp_path / f"all.{ending}")
        again = ew.load(tmp_path / f"all.{ending}")
        for one, other in zip(found[2:5], again[2:5], strict=True):
            assert torch.equal(one.standard_errors, other.standard_errors)
    assert ew.explain(model, data, index=1).standard_errors is None


def test_top_cuts_scores_and_leaves_standard_errors():
    _, model, data, _ = node_problem("gcn", "everything")
    cut, whole = (ew.explain(model, data, index=4, method="shapley", samples=3, top=top) for top in (2, None))
    assert (cut.scores != 0).sum() == 2
    assert torch.equal(cut.standard_errors, whole.standard_errors)


def test_without_edges_there_is_nothing_to_share():
    case, model, data, _ = node_problem("gcn", "no_edges")
    found = explain_nodes(case, model, data, method="shapley", samples=2)
    assert scores_of(found).numel() == 0


@pytest.mark.parametrize("case_name", ["gcn_relu", "gat", "layer_norm_of_graphs"])
def test_shapley_leaves_no_trace(case_name):
    case = zoo.BY_NAME[case_name]
    model, data = case.build().train(), zoo.GRAPHS["everything"]()
    before = Footprint(model, data)
    with quietly(case):
        ew.explain(model, data, index=[1, 2], method="shapley", samples=2)
    before.assert_unchanged()


@pytest.mark.parametrize("samples", [0, 2.5, True, None])
def test_a_number_of_samples_that_is_none_is_refused(samples):
    with pytest.raises(ew.SettingError, match="Use samples=50"):
        ew.explain(zoo.BY_NAME["gcn"].build(), zoo.GRAPHS["directed"](), index=1, method="shapley", samples=samples)


def test_intervals_are_students_and_there_is_none_where_samples_do_not_differ():
    _, model, data, _ = node_problem("gcn", "everything")
    why = ew.explain(model, data, 1, method="shapley", samples=5)
    low, high = why.intervals()
    known = why.standard_errors > 0
    assert_close(
        (high - low)[known], 2 * 2.7764451052 * why.standard_errors[known], 1e-8
    )  # t with 4 degrees of freedom
    assert bool(low[~known].isnan().all())
    with pytest.raises(ew.InputError, match="shapley"):
        ew.explain(model, data, 1).intervals()


@pytest.mark.slow
@pytest.mark.parametrize("samples", [20, 50])
def test_intervals_hold_for_edges_that_act_in_a_tenth_of_the_orders(samples, trained_infection):
    """Against the mean of all orders; an edge acts in an order if it changes the number there."""
    model, data = trained_infection.model, trained_infection.graphs.test
    index, orders = [10, 40, 50], 1200
    runs = [ew.explain(model, data, index, method="shapley", samples=samples, seed=s) for s in range(orders // samples)]
    inside = total = 0
    for position in range(len(index)):
        scores = torch.stack([run[position].scores for run in runs])
        truth = scores.double().mean(dim=0)
        zero = torch.stack([run[position].standard_errors == 0 for run in runs]).double().mean(dim=0)
        active = zero < 0.9**samples  # a tenth of the orders: an edge that acts less often is still more often
        for run in runs:
            low, high = run[position].intervals()
            known = active & ~low.isnan()
            inside += int(((low <= truth) & (truth <= high))[known].sum())
            total += int(known.sum())
    assert 0.93 <= inside / total <= 0.97
