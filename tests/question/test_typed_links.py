"""Links of typed graphs: scores by edge type are those of the user's own model on the user's own `HeteroData`, in float64."""

import copy
import warnings

import pytest
import torch
from torch_geometric.data import Data, HeteroData

import edgewise as ew
from footprint import Footprint
from link_models import Dot as PlainDot
from link_models import link_graph
from typed_links import MODELS, NOT_LOCAL, PAIRS, SlowTypedPair, pairs_of, typed_linker
from typed_zoo import KINDS, RATED, RATES, ones
from zoo import randomise

TOLERANCE = 1e-9


def explain(*args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ew.LocalityWarning)
        return ew.explain(*args, task="link", output="logit", **options)


@pytest.mark.parametrize("without_itself", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_the_model_itself(name, without_itself):
    model, data = typed_linker(name)
    pairs = pairs_of(data)
    found = explain(model, data, {RATES: pairs}, level="layer", without_itself=without_itself)
    assert found.settings["way"] == ("whole graph" if name in NOT_LOCAL else "copies")
    moved = 0.0
    for why, pair in zip(found, pairs, strict=True):
        slow = SlowTypedPair(model, data, pair, without_itself=without_itself)
        value, gradient = slow.gradient()
        assert why.index == (RATES, pair)
        assert why.value == pytest.approx(value, abs=TOLERANCE)
        for kind in KINDS:
            torch.testing.assert_close(why.scores[kind], gradient[kind], rtol=0, atol=TOLERANCE)
            assert not bool(why.scores[kind][:, ~slow.kept[kind]].any())
            moved = max(moved, float(gradient[kind].abs().sum()))
    assert moved > 1e-3


@pytest.mark.parametrize("name", ["sage, dot", "hgt, mlp"])
def test_occlusion_is_a_run_without_the_message_and_gradients_are_differences(name):
    model, data = typed_linker(name, 1)
    pair = pairs_of(data)[1]
    gradient = explain(model, data, (RATES, pair), level="layer", without_itself=True)
    occlusion = explain(model, data, (RATES, pair), level="layer", method="occlusion", without_itself=True)
    slow, step = SlowTypedPair(model, data, pair, without_itself=True), 1e-5
    with torch.no_grad():
        full = slow(ones())
        for kind in (RATES, RATED):
            for layer in (0, 1):
                for column in range(0, data[kind].num_edges, 3):
                    values = []
                    for weight in (0.0, 1 - step, 1 + step):
                        weights = ones()
                        weights[kind][layer, column] = weight
                        values.append(slow(weights))
                    assert float(full - values[0]) == pytest.approx(
                        float(occlusion.scores[kind][layer, column]), abs=1e-9
                    )
                    slope = float(values[2] - values[1]) / (2 * step)
                    assert slope == pytest.approx(float(gradient.scores[kind][layer, column]), abs=1e-6)


def test_many_links_without_themselves_are_each_confirmed():
    model, data = typed_linker("sage, dot", 2)
    pairs = [*map(tuple, data[RATES].edge_index.t().tolist()), *map(tuple, data[RATED].edge_index.flip(0).t().tolist())]
    found = explain(model, data, {RATES: torch.tensor(pairs).t()}, without_itself=True, level="layer")
    assert len(found) > 16
    assert found.settings["way"] == "copies"
    for why, pair in zip(found, pairs, strict=True):
        value, gradient = SlowTypedPair(model, data, pair, without_itself=True).gradient()
        assert why.value == pytest.approx(value, abs=TOLERANCE)
        for kind in KINDS:
            torch.testing.assert_close(why.scores[kind], gradient[kind], rtol=0, atol=TOLERANCE)


def test_a_graph_of_one_type_gets_what_the_plain_graph_gets():
    plain, data = randomise(PlainDot("sage")), link_graph()
    typed = HeteroData()
    kind = ("node", "to", "node")
    typed["node"].x, typed[kind].edge_index = data.x, data.edge_index

    def score(model, graph, pairs):
        return model.decode(model.encode(graph["node"].x, graph[kind].edge_index), pairs)

    pairs = [(0, 1), (4, 4), (2, 6)]
    for options in ({}, {"without_itself": True}, {"method": "occlusion", "level": "layer"}):
        expected = explain(plain, data, pairs, **options)
        found = explain(plain, typed, {kind: pairs}, forward=score, **options)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one.scores[kind], other.scores, rtol=0, atol=1e-10)
            assert one.value == pytest.approx(other.value, abs=1e-12)


def test_every_way_to_name_pairs_means_the_same(tmp_path):
    model, data = typed_linker("sage, dot")
    expected = explain(model, data, {RATES: PAIRS})
    given = copy.copy(data)
    given[RATES].edge_label_index, given[RATES].edge_label = torch.tensor(PAIRS).t(), torch.ones(len(PAIRS))
    for index in ((RATES, PAIRS), ("rates", PAIRS), {RATES: torch.tensor(PAIRS).t()}):
        again = explain(model, data, index)
        assert [why.value for why in again] == [why.value for why in expected]
    assert torch.equal(explain(model, given).value, expected.value)
    one = explain(model, data, (RATES, PAIRS[1]))
    assert isinstance(one, ew.Explanation)
    assert one.index == (RATES, PAIRS[1]) == expected[1].index == expected.of((RATES, PAIRS[1])).index
    assert len(explain(model, data, {RATES: PAIRS[1]})) == 1
    expected.save(tmp_path / "links.npz")
    loaded = ew.load(tmp_path / "links.npz")
    assert loaded[1].index == one.index
    assert torch.equal(loaded[1].scores[RATED], expected[1].scores[RATED])
    assert one.to_pyg()[RATES].edge_label_index.tolist() == [[PAIRS[1][0]], [PAIRS[1][1]]]
    ask = ew.Question(model, data, (RATES, PAIRS[1]), task="link")
    assert ask.index == (RATES, PAIRS[1])
    assert ask.of({RATES: PAIRS[:2]}).index == (RATES, PAIRS[:2])
    rows = expected.to_rows()
    assert {row["index"] for row in rows} <= {u for u, _ in PAIRS}
    assert {row["index_to"] for row in rows} <= {v for _, v in PAIRS}
    measured = ew.metrics.fidelity(expected, model, data, k=2)
    assert len(measured.plus) == len(PAIRS)


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ((0, 1), "must name an edge type"),
        ([(0, 1)], "must name an edge type"),
        ({RATES: [(0, 1)], RATED: [(0, 1)]}, "one edge type"),
        (("rated", (0, 1)), "which 0 edge types"),
        ((("user", "rates"), (0, 1)), "must name an edge type|three words"),
        ((("user", "likes", "film"), (0, 1)), "no nodes of type 'film'"),
        ((RATES, (0, 8)), "'movie' 8"),
        ((RATES, (9, 0)), "from 0 to 8"),
        ((RATES, [3, 4]), "Write a tuple"),
        (None, "edge_label_index"),
    ],
)
def test_what_names_no_typed_pairs_is_refused(index, said):
    model, data = typed_linker("sage, dot")
    with pytest.raises(ew.InputError, match=said):
        explain(model, data, index)


def test_nothing_is_left_behind_and_changes_are_noticed():
    model, data = typed_linker("sage, dot")
    before = Footprint(model, Data())
    ask = ew.Question(model, data, {RATES: PAIRS}, task="link", without_itself=True)
    ask.explain()
    before.assert_unchanged()
    assert "edge_label_index" not in data[RATES]
    data["movie"].x[0] += 1
    with pytest.raises(ew.StaleQuestionError):
        ask.explain()


def test_counterfactuals_of_typed_links_name_the_link_and_its_edges():
    model, data = typed_linker("sage, dot", 1)
    pair = pairs_of(data)[0]
    found = ew.counterfactual(model, data, (RATES, pair), task="link", output="logit", size=2)
    assert found.index == (RATES, pair)
    assert all(kind in KINDS for kind, _ in found.edges)
    assert "user" in str(found)
    assert "movie" in str(found)
