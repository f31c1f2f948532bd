"""Recovery, paths, sparsity, signs, stability, and the formulas: by hand, by sklearn, by loops."""

import json
import math
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn
from torch_geometric.data import Data
from torch_geometric.explain import metric as pyg
from torch_geometric.nn import GCN, SAGEConv

import edgewise as ew
import zoo
from checks import assert_close, explain_nodes
from edgewise.results.explanation import Explanation
from footprint import Footprint

STAR = torch.tensor([[0, 1, 2], [3, 3, 3]])


def star(*scores, target=0, index=3):
    return Explanation(torch.tensor(scores), STAR, 4, index=index, target=target, value=1.0)


rankings = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=12)


# --- formulas ---------------------------------------------------------------------------------------------------------


@given(rankings)
def test_auroc_and_average_precision_are_those_of_sklearn_ties_included(entries):
    score = torch.tensor([float(s) for s, _ in entries], dtype=torch.double)
    truth = torch.tensor([t for _, t in entries])
    auroc, average = ew.metrics.auroc(score, truth), ew.metrics.average_precision(score, truth)
    if len(set(score.tolist())) == 1 or len(set(truth.tolist())) == 1:
        assert auroc.isnan()
        assert average.isnan()
    else:
        assert float(auroc) == pytest.approx(sklearn.roc_auc_score(truth, score))
        assert float(average) == pytest.approx(sklearn.average_precision_score(truth, score))


@given(rankings, st.integers(1, 5))
def test_precision_at_k_is_the_mean_over_all_orders_of_equals(entries, k):
    score, truth = torch.tensor([float(s) for s, _ in entries]), torch.tensor([t for _, t in entries])
    found = ew.metrics.precision_at(score, truth, k)
    if len(set(score.tolist())) == 1 or len(set(truth.tolist())) == 1 or len(entries) < k:
        assert found.isnan()
        return
    cut = sorted(score.tolist(), reverse=True)[k - 1]
    above = [t for s, t in entries if s > cut]
    level = [t for s, t in entries if s == cut]
    choices = list(combinations(level, k - len(above)))
    expected = sum(sum(above) + sum(choice) for choice in choices) / len(choices) / k
    assert float(found) == pytest.approx(expected)


def test_rows_are_ranked_each_on_its_own():
    score = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [1.0, 1.0, 1.0]])
    truth = torch.tensor([[1, 0, 1], [0, 0, 1], [1, 0, 0]])
    assert ew.metrics.auroc(score, truth)[:2].tolist() == [0.5, 0.0]
    assert ew.metrics.auroc(score, truth)[2].isnan()
    assert ew.metrics.average_precision(score, truth)[:2].tolist() == pytest.approx([(1 + 2 / 3) / 2, 1 / 3])
    assert ew.metrics.precision_at(score, truth)[:2].tolist() == [0.5, 0.0]


@given(st.floats(0.01, 1), st.floats(0, 0.99), st.floats(0.1, 0.9))
def test_characterization_is_that_of_pyg_where_both_are_defined(plus, minus, weight):
    plus, minus = torch.tensor([plus], dtype=torch.double), torch.tensor([minus], dtype=torch.double)
    share = round(weight, 2)
    other = 1.0 - share
    if share + other == 1.0:
        expected = pyg.characterization_score(plus, minus, share, other)
        assert_close(ew.metrics.characterization(plus, minus, share), expected, 1e-12)


def test_characterization_of_nothing_is_zero_and_not_a_division_by_it():
    found = ew.metrics.characterization(torch.tensor([0.0, 0.5, 1.2]), torch.tensor([0.3, 1.0, 0.0]))
    assert found[:2].tolist() == [0.0, 0.0]
    assert found[2].isnan()


def test_shapes_that_do_not_fit_are_refused():
    for measure in (
        lambda: ew.metrics.auroc(torch.ones(3), torch.ones(2)),
        lambda: ew.metrics.auroc(torch.tensor([1.0, math.nan]), torch.ones(2)),
        lambda: ew.metrics.characterization(torch.ones(3), torch.ones(2)),
        lambda: ew.metrics.area(torch.tensor([0.0, 1.0]), torch.ones(3)),
        lambda: ew.metrics.area(torch.tensor([1.0, 0.0]), torch.ones(2)),
        lambda: ew.metrics.recovery(star(1.0, 2.0, 3.0), torch.ones(2)),
        lambda: ew.metrics.recovery(star(1.0, 2.0, 3.0), torch.tensor([0.5, 0.0, 1.0])),
        lambda: ew.metrics.recovery(star(1.0, 2.0, 3.0), torch.tensor([math.nan, 0.0, 1.0])),
        lambda: ew.metrics.recovery(star(1.0, math.nan, 3.0), torch.tensor([0, 0, 1])),
        lambda: ew.metrics.path_recovery(star(1.0, 2.0, 3.0), [[(0, 3)], [(1, 3)]]),
        lambda: ew.metrics.path_recovery(star(1.0, 2.0, 3.0), [[(0, 1)]]),
        lambda: ew.similarity(star(1.0, 2.0, 3.0), star(1.0, math.nan, 3.0)),
        lambda: ew.similarity(star(1.0, 2.0, 3.0), star(1.0, 2.0, 3.0, index=2)),
        lambda: ew.similarity(star(1.0, 2.0, 3.0), star(1.0, 2.0)),
        lambda: ew.similarity(star(1.0, 2.0, 3.0), replace(star(1.0, 2.0, 3.0), edge_index=STAR.flip(0))),
        lambda: ew.metrics.stability([star(1.0, 2.0, 3.0)]),
        lambda: ew.metrics.stability([star(1.0, 2.0, 3.0), star(1.0, 2.0, 3.0, index=2)]),
        lambda: ew.metrics.stability([star(1.0, 2.0, 3.0), star(1.0, 2.0, 3.0, target=1)]),
    ):
        with pytest.raises(ew.EdgewiseError):
            measure()


# --- recovery ---------------------------------------------------------------------------------------------------------


def test_recovery_on_three_edges():
    found = ew.metrics.recovery(star(3.0, 2.0, -1.0), torch.tensor([1, 0, 1]))
    assert float(found.auroc.value) == 0.5  # above one of two
    assert float(found.average_precision.value) == pytest.approx((1 / 1 + 2 / 3) / 2)
    assert float(found.precision_at_k.value) == 0.5
    assert float(found.exact.value) == 0.0
    assert float(ew.metrics.recovery(star(3.0, 2.0, -1.0), torch.tensor([1, 1, 0])).exact.value) == 1.0


def test_support_and_opposition_are_recovered_apart():
    truth = torch.tensor([1, 0, -1])
    assert float(ew.metrics.recovery(star(2.0, 0.0, -3.0), truth, by="support").exact.value) == 1.0
    assert float(ew.metrics.recovery(star(2.0, 0.0, -3.0), truth, by="opposition").exact.value) == 1.0
    assert float(ew.metrics.recovery(star(2.0, 0.0, -3.0), truth, by="magnitude").exact.value) == 1.0
    assert float(ew.metrics.recovery(star(2.0, 0.0, 1.0), truth, by="opposition").exact.value) == 0.0


@pytest.mark.parametrize(
    ("scores", "truth", "reason"),
    [
        ((1.0, 1.0, 1.0), (1, 0, 0), "all scores are equal"),
        ((0.0, 0.0, 0.0), (1, 0, 0), "all scores are equal"),
        ((1.0, 2.0, 3.0), (0, 0, 0), "no edge that can matter is true"),
        ((1.0, 2.0, 3.0), (1, 1, 1), "every edge that can matter is true"),
    ],
)
def test_where_recovery_is_undefined_it_says_why(scores, truth, reason):
    found = ew.metrics.recovery(star(*scores), torch.tensor(truth))
    for measured in found.measured().values():
        assert measured.value.isnan().all()
        assert measured.reasons == (reason,)
    assert reason in repr(found)


def test_recovery_of_many_targets_is_that_of_each_among_the_edges_that_can_reach_it():
    case, data = zoo.BY_NAME["gcn"], zoo.graph(zoo.random_edges(40, 60, 3), 40)
    found = explain_nodes(case, case.build(), data, level="layer")
    truth = torch.rand(40, 60, generator=torch.Generator().manual_seed(0)) < 0.4
    together = ew.metrics.recovery(found, truth, k=3)
    full = explain_nodes(case, case.build(), data, method="full")
    defined = 0
    for position, why in enumerate(found):
        inside = full[position].scores > 0
        score, planted = why.edge_scores()[inside], truth[position][inside]
        for measured, expected in (
            (together.auroc, ew.metrics.auroc(score, planted) if inside.any() else torch.tensor(math.nan)),
            (together.precision_at_k, ew.metrics.precision_at(score, planted, 3) if inside.any() else None),
        ):
            if expected is None or expected.isnan():
                assert measured.value[position].isnan()
            else:
                assert float(measured.value[position]) == pytest.approx(float(expected))
                defined += 1
    assert defined > 20


def test_lists_of_truths_fit_graphs_of_different_sizes():
    case = zoo.GRAPH_BY_NAME["mean_pool"]
    graphs = [zoo.graph(zoo.random_edges(6, 8 + i, i), 6, seed=i) for i in range(3)]
    found = ew.explain(case.build(), graphs, task="graph")
    truth = [(why.scores > why.scores.median()).long() for why in found]
    assert ew.metrics.recovery(found, truth).auroc.value.tolist() == [1.0] * 3


# --- paths ------------------------------------------------------------------------------------------------------------


def test_a_path_is_recovered_if_its_edges_are_exactly_the_strongest():
    chain = torch.tensor([[0, 1, 2, 4], [1, 2, 3, 3]])

    def found(*scores):
        why = Explanation(torch.tensor(scores), chain, 5, index=3, target=0, value=1.0)
        return float(ew.metrics.path_recovery(why, [[(0, 1, 2, 3), (4, 3)]]).value)

    assert found(3.0, 2.0, 1.0, 0.5) == 1.0
    assert found(0.0, 0.0, 0.0, 5.0) == 1.0  # the other path
    assert found(3.0, 0.5, 1.0, 0.6) == 0.0
    assert found(3.0, 2.0, 1.0, 1.0) == 0.0  # a tie at the cut is not a discovery


def test_walks_count_waiting_on_a_node_once():
    found = ew.metrics.path_recovery([(0, 0, 1, 3), (0, 1, 0, 3), (5,)], [[(0, 1, 3)], [(0, 1, 3)], [(5,)]])
    assert found.value[:2].tolist() == [1.0, 0.0]
    assert found.reasons[2] == "there is no true path with an edge"


# --- sparsity and signs -----------------------------------------------------------------------------------------------


def test_sparsity_counts_the_edges_that_can_reach_the_target():
    conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)
    data = Data(x=torch.ones(5, 1), edge_index=torch.tensor([[0, 1, 2, 3, 4], [3, 3, 3, 4, 0]]))
    found = ew.explain(conv, data, index=[3, 1])
    measured = ew.metrics.sparsity(found, k=1, by="magnitude")
    assert float(measured.value[0]) == pytest.approx(2 / 3)
    assert measured.reasons == ("", "no edge can matter")


def test_signs_are_shares_that_sum_to_one():
    found = ew.metrics.signs(star(4.0, -1.0, 0.0))
    assert [float(part.value) for part in found.measured().values()] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.8, 0.2])
    near = ew.metrics.signs(star(4.0, -1.0, 0.0), threshold=2.0)
    assert [float(near.opposition.value), float(near.irrelevant.value)] == pytest.approx([0.0, 2 / 3])
    nothing = ew.metrics.signs(star(0.0, 0.0, 0.0))
    assert float(nothing.irrelevant.value) == 1.0
    assert nothing.supporting_weight.reasons == ("all scores are zero",)


# --- stability --------------------------------------------------------------------------------------------------------


def test_stability_is_the_mean_and_the_worst_cosine_over_pairs():
    runs = [star(1.0, 0.0, 0.0), star(0.0, 1.0, 0.0), star(1.0, 1.0, 0.0)]
    found = ew.metrics.stability(runs)
    assert float(found.mean.value) == pytest.approx((0 + math.sqrt(0.5) + math.sqrt(0.5)) / 3)
    assert float(found.worst.value) == pytest.approx(0.0)
    reference = ew.metrics.stability(runs[:2], reference=runs[2])
    assert float(reference.worst.value) == pytest.approx(math.sqrt(0.5))


def test_zero_vectors_are_counted_and_not_averaged_in():
    found = ew.metrics.stability([star(1.0, 0.0, 0.0), star(0.0, 0.0, 0.0)])
    assert found.mean.value.isnan().all()
    assert found.mean.why_undefined() == {"the scores of a run are all zero": 1}


def test_only_methods_that_draw_random_numbers_change_with_the_seed():
    case, data = zoo.BY_NAME["gcn"], zoo.GRAPHS["directed"]()
    model = case.build()
    still = ew.metrics.stability_under_seeds(model, data, seeds=[0, 1])
    assert float(still.worst.value[still.worst.defined].min()) == pytest.approx(1.0)
    drawn = ew.metrics.stability_under_seeds(model, data, seeds=[0, 1], method="random")
    assert float(drawn.mean.value.max()) < 1.0


def test_noise_moves_explanations_less_the_smaller_it_is_and_leaves_no_trace():
    case, data = zoo.BY_NAME["gcn"], zoo.GRAPHS["directed"]()
    model = case.build().train()
    before = Footprint(model, data)
    small, large = (ew.metrics.stability_under_noise(model, data, noise=noise, draws=3) for noise in (1e-7, 1.0))
    before.assert_unchanged()
    assert float(small.worst.value[small.worst.defined].min()) > 1 - 1e-9
    assert large.mean.mean() < small.mean.mean() - 0.01
    assert all(torch.equal(run.target, small.runs[0].target) for run in large.runs)


def test_noise_on_whole_graphs_and_on_whole_numbers():
    case = zoo.GRAPH_BY_NAME["mean_pool"]
    graphs = [zoo.graph(zoo.random_edges(6, 9, i), 6, seed=i) for i in range(3)]
    found = ew.metrics.stability_under_noise(case.build(), graphs, task="graph", noise=1e-7, draws=2)
    assert len(found.runs) == 3
    assert float(found.worst.value.min()) > 0.999


def test_bad_settings_of_stability_are_refused():
    model, data = GCN(2, 4, 1, 2), Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [2, 2]]))
    for measure in (
        lambda: ew.metrics.stability_under_seeds(model, data, seed=3),
        lambda: ew.metrics.stability_under_noise(model, data, noise=0),
        lambda: ew.metrics.stability_under_noise(model, data, draws=0),
    ):
        with pytest.raises(ew.SettingError):
            measure()


# --- results ----------------------------------------------------------------------------------------------------------


def test_results_turn_into_plain_numbers_and_tables():
    found = ew.metrics.recovery(star(3.0, 2.0, -1.0), torch.tensor([1, 0, 1]))
    plain = found.to_dict()
    assert plain["auroc"]["mean"] == 0.5
    assert plain["auroc"]["index"] == [3]
    head, *lines = repr(found).splitlines()[1:]
    assert head.split() == ["metric", "better", "mean", "deviation", "targets", "undefined"]
    assert [line.split()[0] for line in lines] == ["AUROC", "average", "precision@planted", "exact"]


def test_what_is_undefined_is_null_in_json():
    found = ew.metrics.recovery(star(1.0, 1.0, 1.0), torch.tensor([1, 0, 1])).to_dict()
    assert '"value": [null]' in json.dumps(found, allow_nan=False)


def test_metrics_are_cheap_to_import():
    import subprocess
    import sys

    code = "import edgewise.metrics as m, sys; assert 'fidelity' in dir(m); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
