"""`compare`: every measure against loops and against hand-worked numbers; seeds, intervals, reasons, tables, pictures."""

import json
import math
import sys
from itertools import combinations
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch_geometric.data import Data
from torch_geometric.explain import GNNExplainer
from torch_geometric.nn import GCN, SAGEConv

import edgewise as ew
import zoo
from checks import quietly
from edgewise.metrics.agreement import ScoresByRun, agreements
from edgewise.results.comparison import MEASURES
from edgewise.student_intervals import held, interval_over_pairs, student_quantile
from footprint import Footprint

# --- the measures -----------------------------------------------------------------------------------------------------


def cosine(a, b):
    return float(a @ b / (a.norm() * b.norm())) if a.any() and b.any() else math.nan


def spearman(a, b):
    if len(set(a.tolist())) < 2 or len(set(b.tolist())) < 2 or not (a.any() and b.any()):
        return math.nan
    return float(stats.spearmanr(a, b).statistic)


def chances(score, k):
    """How often each entry is among the k largest positive ones, over all orders of equals."""
    positive = sorted((s for s in score.tolist() if s > 0), reverse=True)
    if len(positive) <= k:
        return [float(s > 0) for s in score.tolist()]
    cut = positive[k - 1]
    equal = [i for i, s in enumerate(score.tolist()) if s == cut]
    left = k - sum(s > cut for s in positive)
    orders = list(combinations(equal, left))
    return [1.0 if s > cut else sum(i in order for order in orders) / len(orders) for i, s in enumerate(score.tolist())]


def overlap(a, b, k):
    if len(a) <= k or not (a > 0).any() or not (b > 0).any():
        return math.nan
    for score in (a, b):
        positive = score[score > 0]
        if len(positive) > k and len(set(positive.tolist())) == 1:
            return math.nan
    p, q = chances(a, k), chances(b, k)
    return sum(x * y for x, y in zip(p, q, strict=True)) / max(sum(p), sum(q))


def sign(a, b):
    if not (a.any() and b.any()):
        return math.nan
    either = [(x, y) for x, y in zip(a.sign().tolist(), b.sign().tolist(), strict=True) if x or y]
    return sum(x == y for x, y in either) / len(either)


entries = st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2), st.integers(-3, 3), st.just(1)), max_size=25)


@given(entries, st.integers(1, 4))
def test_all_measures_of_all_pairs_equal_loops_over_targets(rows, k):
    table = torch.tensor(rows, dtype=torch.double).reshape(-1, 4)
    group, scores = table[:, 0].long(), table[:, 1:]
    pairs = torch.tensor([[0, 0, 1, 2, 1], [1, 2, 2, 2, 1]])
    found, _ = agreements(ScoresByRun(group, 4, scores), pairs, k, "support")
    for number, (one, other) in enumerate(pairs.t().tolist()):
        for target in range(4):
            a, b = scores[group == target][:, one], scores[group == target][:, other]
            slow = {"cosine": cosine(a, b), "spearman": spearman(a, b), "overlap": overlap(a, b, k), "sign": sign(a, b)}
            for measure in MEASURES:
                assert float(found[measure][number, target]) == pytest.approx(slow[measure], abs=1e-12, nan_ok=True)


def test_tiny_scores_have_an_angle_too():
    scores = torch.tensor([[1e-200, 1e-200], [0.0, 1e-200]], dtype=torch.double)
    found, _ = agreements(ScoresByRun(torch.zeros(2).long(), 1, scores), torch.tensor([[0], [1]]), 1, "support")
    assert float(found["cosine"]) == pytest.approx(0.5**0.5)


def star(*features):
    """One sum layer with weight 1: the gradient of each edge is its sender's feature."""
    conv = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False).double()
    conv.lin_l.weight.data.fill_(1.0)
    count = len(features)
    ends = torch.stack([torch.arange(count), torch.full((count,), count)])
    return conv, Data(x=torch.tensor([[*features, 0.0]], dtype=torch.double).t(), edge_index=ends)


def test_three_edges_worked_out_by_hand():
    model, data = star(3.0, 2.0, -1.0)
    found = ew.compare(model, data, [3], methods=["gradient", "positive_gradient"], target=1, k=1)
    at = lambda *names, **more: found.pair(*names, **more).mean  # noqa: E731
    assert at("gradient", "full") == pytest.approx(4 / math.sqrt(14 * 3))
    assert at("gradient", "positive_gradient") == pytest.approx(5 / math.sqrt(14 * 2))
    assert at("gradient", "positive_gradient", measure="spearman") == pytest.approx(math.sqrt(3) / 2)
    assert at("gradient", "full", measure="sign") == pytest.approx(2 / 3)
    assert at("gradient", "gradient", measure="overlap") == 1.0
    tie = found.pair("gradient", "positive_gradient", "overlap")
    assert math.isnan(tie.mean)
    assert tie.reasons == {"positive_gradient gives all its edges the same rank: any k would do": 1}
    flat = found.pair("full", "gradient", "spearman")
    assert math.isnan(flat.mean)
    assert flat.reasons == {"the scores of full are all equal": 1}


def test_equals_share_the_places_that_are_left():
    model, data = star(3.0, 1.0, 1.0, 0.5)  # of two places, one goes to the 3 and half of one to each 1
    found = ew.compare(model, data, [4], methods=["gradient", "occlusion"], target=1, k=2)
    assert found.pair("gradient", "occlusion", "overlap").mean == pytest.approx((1 + 0.25 + 0.25) / 2)


@pytest.mark.parametrize(("by", "expected"), [("support", 1.0), ("opposition", 1.0), ("magnitude", 0.0)])
def test_the_reader_says_what_strong_means(by, expected):
    scores = torch.tensor([[3.0, 3.0], [-5.0, -1.0], [1.0, 1.0]])
    found, _ = agreements(ScoresByRun(torch.zeros(3).long(), 1, scores), torch.tensor([[0], [1]]), 1, by)
    assert float(found["overlap"]) == expected


# --- on models --------------------------------------------------------------------------------------------------------


def problem():
    return zoo.BY_NAME["gcn_relu"].build(), zoo.GRAPHS["everything"]()


def test_the_cosine_is_that_of_similarity_over_all_and_in_every_layer():
    model, data = problem()
    methods = ["gradient", "occlusion", "gnn_explainer"]
    found = ew.compare(model, data, methods=methods)
    for level in ("input", "layer"):
        sets = {name: ew.explain(model, data, method=name, level=level) for name in methods}
        for first, second in combinations(methods, 2):
            expected = ew.similarity(sets[first], sets[second])
            got = found.pair(first, second, "cosine", level)
            torch.testing.assert_close(got.value[0], expected, equal_nan=True, rtol=1e-9, atol=1e-12)
            assert got.mean == pytest.approx(float(expected[~expected.isnan()].mean()))
            assert got.deviation == pytest.approx(float(expected[~expected.isnan()].std(correction=0)))
    layers = ew.similarity(sets["gradient"], sets["occlusion"], per_layer=True)
    for layer in range(3):
        got = found.pair("gradient", "occlusion", level="layer", layer=layer).value[0]
        torch.testing.assert_close(got, layers[:, layer], equal_nan=True, rtol=1e-9, atol=1e-12)


def test_random_is_compared_on_the_edges_that_can_matter():
    model, data = problem()
    found = ew.compare(model, data, [0, 2], methods=["full"], levels="input")
    for position, node in enumerate((0, 2)):
        inside = ew.explain(model, data, node, method="full").scores != 0
        drawn = ew.explain(model, data, node, method="random").scores[inside].double()
        expected = float(drawn.sum() / (drawn.norm() * math.sqrt(len(drawn))))
        assert float(found.pair("random", "full").value[0, position]) == pytest.approx(expected, rel=1e-6)


def test_zero_vectors_are_counted_with_the_reason_and_not_averaged_in():
    model, data = problem()  # node 5 is isolated, node 7 has no in-edges: no edge can matter to them
    data.x = torch.cat([data.x, data.x[:1], torch.zeros_like(data.x[:1])])
    data.edge_index = torch.cat([data.edge_index, torch.tensor([[9], [8]])], dim=1)  # 9 → 8 says nothing: 9 is zero
    data.edge_attr = torch.cat([data.edge_attr, data.edge_attr[:1]])
    data.pos = torch.cat([data.pos, data.pos[:2]])
    model = SAGEConv(zoo.FEATURES, zoo.CLASSES, bias=False).double()
    found = ew.compare(model, data, [0, 5, 8], methods=["gradient", "occlusion"], levels=["input"])
    pair = found.pair("gradient", "occlusion")
    assert pair.value.isnan().tolist() == [[False, True, True]]
    assert pair.reasons == {"no edge can matter": 1, "the scores of gradient are all zero": 1}
    assert pair.mean == pytest.approx(1.0)
    assert {run.method: run.zero for run in found.running} == {"gradient": 2, "occlusion": 2, "random": 1, "full": 1}
    assert "the scores of gradient are all zero" in str(found)


def test_reasons_account_for_every_missing_number():
    model, data = problem()
    found = ew.compare(model, data, k=3, seeds=range(2))
    for pair in found.agreements.values():
        assert sum(pair.reasons.values()) == int(pair.value.isnan().sum())


def test_methods_that_draw_meet_seed_by_seed_and_themselves_with_every_other_seed(monkeypatch):
    from edgewise.api import compare

    asked = []
    real = compare.explain_question

    def spy(question, **options):
        asked.append((options["method"].name, options["seed"]))
        return real(question, **options)

    monkeypatch.setattr(compare, "explain_question", spy)
    model, data = problem()
    seeds = [3, 1, 8]
    found = ew.compare(model, data, [1, 4], methods=["gradient"], levels="input", seeds=seeds)
    assert asked == [("gradient", 3), ("random", 3), ("random", 1), ("random", 8), ("full", 3)]
    drawn = [ew.explain(model, data, [1, 4], method="random", seed=seed) for seed in seeds]
    inside = [ew.explain(model, data, node, method="full").scores != 0 for node in (1, 4)]
    other = found.pair("random", "random").value
    for row, (one, two) in enumerate(combinations(drawn, 2)):
        for position, mask in enumerate(inside):
            expected = cosine(one[position].scores[mask].double(), two[position].scores[mask].double())
            assert float(other[row, position]) == pytest.approx(expected)
    assert found.pair("gradient", "random").value.shape == (3, 2)
    assert found.pair("gradient", "gradient").value.shape == (1, 2)


def test_a_method_without_that_level_and_one_that_refuses_stay_in_the_table_with_the_reason():
    case, data = zoo.BY_NAME["layer_norm_of_graphs"], zoo.GRAPHS["directed"]()
    with quietly(case):
        found = ew.compare(case.build(), data, [1, 2], methods=["gradient", "lrp", "goat_walks"])
    absent = {(run.method, run.level): run.absent for run in found.running if run.absent}
    assert "has no level 'layer'" in absent.pop(("goat_walks", "layer"))
    assert set(absent) == {("lrp", "input"), ("lrp", "layer"), ("goat_walks", "input")}
    assert all("norm='fixed'" in why for why in absent.values())
    pair = found.pair("lrp", "gradient")
    assert math.isnan(pair.mean)
    assert pair.reasons == {"lrp did not run": 2}
    assert pair.to_row()["undefined"] == 2
    assert "did not run" in str(found)


def test_if_no_method_can_run_the_first_error_is_raised():
    model, data = problem()
    with pytest.raises(ew.SettingError, match="no level 'layer'"):
        ew.compare(model, data, methods=["goat_walks", ew.from_pyg(GNNExplainer())], levels="layer", yardsticks=False)


def test_names_pairs_and_explainers_of_pyg_get_labels_of_their_own():
    model, data = zoo.BY_NAME["gcn"].build(), zoo.GRAPHS["directed"]()
    methods = [
        *(
            "gradient",
            ("gnn_explainer", {"epochs": 3}),
            ("gnn_explainer", {"epochs": 4}),
            ("gnn_explainer", {"epochs": 4}),
        ),
        ew.from_pyg(GNNExplainer(epochs=2)),
    ]
    found = ew.compare(model, data, [1], methods=methods, levels="input")
    assert found.methods == (
        *(
            "gradient",
            "gnn_explainer(epochs=3)",
            "gnn_explainer(epochs=4)",
            "gnn_explainer(epochs=4) #2",
            "GNNExplainer",
        ),
        *("random", "full"),
    )
    assert found.pair("gnn_explainer(epochs=4)", "gnn_explainer(epochs=4) #2").mean == pytest.approx(1.0)


def test_graphs_are_compared_too():
    case = zoo.GRAPH_BY_NAME["sum_pool"]
    graphs = [zoo.GRAPHS[name]() for name in ("directed", "parallel")]
    found = ew.compare(case.build(), graphs, task="graph", methods=["gradient", "occlusion"])
    sets = [ew.explain(case.build(), graphs, task="graph", method=m, level="layer") for m in ("gradient", "occlusion")]
    got = found.pair("gradient", "occlusion", level="layer").value[0]
    torch.testing.assert_close(got, ew.similarity(*sets), rtol=1e-9, atol=1e-12)
    one = ew.compare(case.build(), graphs[0], task="graph", methods=["gradient", "occlusion"], levels="layer")
    assert float(one.pair("gradient", "occlusion").value) == pytest.approx(float(got[0]))


def test_comparing_leaves_no_trace():
    model, data = problem()
    before = Footprint(model, data)
    ew.compare(model, data, methods=["gradient", "gnn_explainer", ew.from_pyg(GNNExplainer(epochs=2))])
    before.assert_unchanged()


# --- intervals --------------------------------------------------------------------------------------------------------


def small_problem():
    torch.manual_seed(0)
    data = Data(x=torch.randn(9, 4), edge_index=torch.randint(0, 9, (2, 30)))
    return GCN(4, 8, 2, 3).eval(), data


def test_one_run_has_the_interval_of_its_targets_and_few_values_are_shown():
    model, data = small_problem()
    one = ew.compare(model, data, [0, 1, 2, 3], methods=["gradient", "occlusion"]).pair("gradient", "occlusion")
    known = one.value[0][~one.value[0].isnan()].double()
    half = stats.t.ppf(0.975, len(known) - 1) * known.std() / len(known) ** 0.5
    assert (one.low, one.high) == (pytest.approx(float(known.mean() - half)), pytest.approx(float(known.mean() + half)))
    assert f"{len(known)} targets" in repr(one)
    assert "held" in repr(one)
    assert f"{known[0]:.3g}" in repr(one)


def test_seeds_are_the_units_and_two_of_them_are_too_few():
    model, data = small_problem()
    for seeds in (range(2), range(5)):
        found = ew.compare(model, data, [0, 1, 2], methods=["gradient"], levels="input", seeds=seeds)
        one, alone = found.pair("gradient", "random"), found.pair("random", "random")
        if len(seeds) < 3:
            assert math.isnan(one.low)
            assert math.isnan(alone.low)
            assert "too few" in repr(one)
            continue
        means = one.value.double().nanmean(dim=1)
        half = stats.t.ppf(0.975, 4) * means.std() / 5**0.5
        assert one.high - one.low == pytest.approx(2 * float(half))
        assert alone.low < alone.mean < alone.high


@pytest.mark.slow
def test_intervals_of_normal_values_hold_95_of_100_times_from_three_on():
    generator = torch.Generator().manual_seed(0)
    for count in (3, 5, 10, 30):
        drawn = torch.randn(20000, count, generator=generator, dtype=torch.double)
        half = student_quantile(0.975, count - 1) * drawn.std(dim=1) / count**0.5
        assert abs(float((drawn.mean(dim=1).abs() <= half).double().mean()) - 0.95) < 0.01


@pytest.mark.slow
def test_intervals_over_seeds_hold_although_targets_share_the_effect_of_a_seed():
    generator, hits = torch.Generator().manual_seed(1), 0
    pairs = torch.combinations(torch.arange(6)).t()
    for _ in range(1500):
        effect = torch.randn(6, generator=generator, dtype=torch.double)
        means = effect[pairs[0]] + effect[pairs[1]] + 0.1 * torch.randn(15, generator=generator, dtype=torch.double)
        low, high = interval_over_pairs(means, pairs, 0.95)
        hits += low <= 0 <= high
    assert 0.93 < hits / 1500 < 0.98


@pytest.mark.slow
def test_intervals_hold_on_measured_pools_as_often_as_is_printed(trained_infection):
    model, data = trained_infection.model, trained_infection.graphs.test
    methods = ["gradient", "positive_gradient", "occlusion", "integrated_gradients"]
    found = ew.compare(model, data, range(0, 1000, 4), methods=methods, yardsticks=False)
    generator = torch.Generator().manual_seed(0)
    for one in found.agreements.values():
        pool = one.value[~one.value.isnan()].double()
        if one.measure != "cosine" or one.first == one.second or one.layer is not None:
            continue
        for count in (3, 5, 10, 20, 50, 100):
            drawn = pool[torch.randint(0, len(pool), (4000, count), generator=generator)]
            half = student_quantile(0.975, count - 1) * drawn.std(dim=1) / count**0.5
            share = float(((drawn.mean(dim=1) - pool.mean()).abs() <= half).double().mean())
            assert share > held(count, one.mean) - 0.03, (one.first, one.second, one.level, count, share)


# --- what comes out, and what is refused ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found():
    model, data = problem()
    return ew.compare(model, data, [0, 1, 2, 3], methods=["gradient", "occlusion", "goat_walks"], k=3)


def test_the_matrix_is_symmetric_and_holds_the_means(found):
    matrix = found.matrix("cosine", "layer", layer=1)
    assert torch.equal(matrix.nan_to_num(9), matrix.t().nan_to_num(9))
    assert float(matrix[0, 1]) == found.pair("gradient", "occlusion", "cosine", "layer", 1).mean
    low, high = (found.matrix(number=end)[0, 3] for end in ("low", "high"))
    assert low <= found.matrix()[0, 3] <= high


def test_the_tables_show_every_method_its_seconds_and_every_mean(found):
    text = str(found)
    for name in found.methods:
        assert name in text
    assert f"{found.pair('gradient', 'full').mean:.2f}±" in found.table("cosine", "input")
    assert all(run.seconds >= 0 for run in found.running if not run.absent)
    assert "layer 2" in found.table("spearman", "layer", 2)
    assert "5 methods" in repr(found)


def test_rows_and_dicts_are_plain(found):
    rows = found.rows()
    assert len(rows) == 15 * len(MEASURES) * (1 + 1 + 3)
    again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert again["agreements"][0]["first"] == "gradient"
    assert {row["layer"] for row in rows} == {None, 0, 1, 2}


def test_a_data_frame_is_made_of_the_rows_if_there_is_pandas(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda rows: ("frame", rows)))
    assert found.to_frame() == ("frame", found.rows())
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ew.MissingExtraError, match=r"edgewise\[table\]"):
        found.to_frame()


def test_the_picture_has_a_panel_for_each_level_with_every_mean_and_hatches_what_is_undefined(found):
    figure = found.plot()
    panels = [axes for axes in figure.axes if axes.images]
    assert len(panels) == 2
    written = [text.get_text() for text in panels[0].texts]
    assert written == [f"{mean:.2f}" for mean in found.matrix("cosine", "input").view(-1).tolist() if mean == mean]
    assert len(panels[1].patches) == int(found.matrix("cosine", "layer").isnan().sum()) == 9  # goat_walks has no layers
    assert len([axes for axes in found.plot("sign", "layer", 0).axes if axes.images]) == 1


def test_without_matplotlib_the_error_names_the_extra(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ew.MissingExtraError, match=r"edgewise\[plot\]"):
        found.plot()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"methods": "gradient"}, "must be a list"),
        ({"methods": ["gradint"]}, "Did you mean 'gradient'"),
        ({"methods": [("gradient", {"epochs": 3})]}, "no setting 'epochs'"),
        ({"methods": [("gradient", 3)]}, "must be a name"),
        ({"methods": ["gradient"], "yardsticks": False}, "at least two"),
        ({"levels": ["node"]}, "level.*'node'"),
        ({"levels": []}, "at least one level"),
        ({"seeds": 3}, "`seeds` must be a list"),
        ({"seeds": []}, "at least one"),
        ({"seeds": [0.5]}, "`seeds` must be a list"),
        ({"k": 0}, "`k` must be .*got 0"),
        ({"by": "irrelevant"}, "Unknown `by` 'irrelevant'"),
        ({"confidence": 95}, "`confidence` must be .*got 95"),
        ({"index": [99]}, "99"),
        ({"target": 77}, "77"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(options, says):
    model, data = problem()
    with pytest.raises(ew.EdgewiseError, match=says):
        ew.compare(model, data, **options)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"measure": "angle"}, "Choose one of: cosine"),
        ({"level": "node"}, "Choose one of: input, layer"),
        ({"layer": 1}, "needs level='layer'"),
        ({"level": "layer", "layer": 9}, "between 0 and 2"),
        ({"number": "median"}, "Choose one of: mean"),
    ],
)
def test_what_was_not_compared_cannot_be_asked_for(found, asked, says):
    with pytest.raises(ew.SettingError, match=says):
        found.matrix(**asked)
    with pytest.raises(ew.SettingError, match="Unknown method 'shapley'"):
        found.pair("gradient", "shapley")


@pytest.mark.slow
def test_ten_methods_are_compared_on_200_infection_nodes(trained_infection):
    core = ["gradient", "positive_gradient", "occlusion", "gnn_explainer", "integrated_gradients", "random", "full"]
    found = ew.compare(
        trained_infection.model,
        trained_infection.graphs.test,
        range(200),
        methods=[*core, "eig_search", "lrp", "goat_walks"],
    )
    assert found.pair("eig_search", "occlusion").mean == pytest.approx(1.0, abs=1e-6)
    assert not [run for run in found.running if run.absent and run.method != "goat_walks"]


def test_a_model_of_pyg_can_be_compared_out_of_the_box():
    torch.manual_seed(0)
    data = Data(x=torch.randn(20, 4), edge_index=torch.randint(0, 20, (2, 60)))
    found = ew.compare(GCN(4, 8, 2, 3), data, [1, 2], methods=["gradient", "occlusion"])
    assert found.num_layers == 2
