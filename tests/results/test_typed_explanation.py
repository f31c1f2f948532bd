"""Results of typed graphs: by type, in files, in tables, beside each other."""

import re

import pytest
import torch
from torch_geometric.explain import HeteroExplanation

import edgewise as ew
from edgewise import metrics
from typed_zoo import FOLLOWS, KINDS, RATES, SIZES, call, typed_model, weighted_value


@pytest.fixture(scope="module")
def question():
    return typed_model("sage sum", 1)


@pytest.fixture(scope="module", params=["input", "layer"])
def found(request, question):
    return ew.explain(*question, {"movie": [0, 3, 5]}, level=request.param)


def test_one_is_an_explanation_and_several_are_a_set(question, found):
    why = ew.explain(*question, ("movie", 3), level=found.level)
    assert isinstance(why, ew.Explanation)
    assert isinstance(found, ew.ExplanationSet)
    assert [one.index for one in found] == [("movie", 0), ("movie", 3), ("movie", 5)]
    for same in (found.of(3), found.of(("movie", 3)), found[1]):
        assert same.index == why.index == ("movie", 3)
        assert all(torch.allclose(same.scores[kind], why.scores[kind], atol=1e-12) for kind in KINDS)
    with pytest.raises(ew.InputError):
        found.of(("user", 3))
    with pytest.raises(KeyError, match="rates"):
        why.scores["user", "hates", "movie"]


def test_top_names_types_and_columns_of_types(question, found):
    _, data = question
    for why in found:
        listed = why.top(100, by="magnitude")
        assert len(listed) == sum(int((part != 0).sum()) for part in why.scores.values()) > 0
        for row in listed:
            score, (source_type, source), (receiver_type, receiver), column, *layer = row
            kind = row.edge_type
            assert (kind[0], kind[2]) == (source_type, receiver_type)
            assert data[kind].edge_index[:, column].tolist() == [source, receiver]
            assert float(why.scores[kind][(*layer, column)]) == score
            assert torch.equal(why.edge_index[kind], data[kind].edge_index)


@pytest.mark.parametrize("ending", ["npz", "parquet"])
@pytest.mark.parametrize("method", ["gradient", "random", "shapley"])
def test_a_file_gives_back_the_same_set(question, tmp_path, ending, method):
    found = ew.explain(*question, ("movie", [0, 3]), method=method, level="layer")
    found.save(tmp_path / f"typed.{ending}")
    again = ew.load(tmp_path / f"typed.{ending}")
    assert again.types == found.types
    for one, other in zip(found, again, strict=True):
        assert one.index == other.index
        for part in ("scores", "self_scores", "standard_errors"):
            a, b = getattr(one, part), getattr(other, part)
            assert (a is None) == (b is None)
            assert a is None or all(torch.equal(a[kind], b[kind]) for kind in a)


def test_pyg_gets_a_typed_explanation(found):
    given = found[1].to_pyg()
    assert isinstance(given, HeteroExplanation)
    assert given.edge_types == KINDS
    for kind in KINDS:
        assert torch.equal(given[kind].edge_mask, found[1].edge_scores()[kind])
        assert given[kind].edge_mask.shape == (SIZES[kind],)
    if found.level == "layer":
        assert given[RATES].layer_edge_mask.shape == (SIZES[RATES], 2)
    assert given["movie"].index.tolist() == [3]


def test_similarity_is_the_cosine_over_all_types(question, found):
    other = ew.explain(*question, ("movie", [0, 3, 5]), method="occlusion", level=found.level)
    cosines = ew.similarity(found, other)
    for why, that, cosine in zip(found, other, cosines, strict=True):
        a, b = (torch.cat([part.reshape(-1) for part in one.scores.values()]) for one in (why, that))
        assert float(cosine) == pytest.approx(float(torch.nn.functional.cosine_similarity(a, b, dim=0)), abs=1e-9)
        assert float(ew.similarity(why, that)) == pytest.approx(float(cosine), abs=1e-9)
    with pytest.raises(ew.InputError, match="nodes of one type"):
        ew.similarity(found, ew.explain(*question, ("user", [0, 3, 5]), level=found.level))


def test_rows_and_graphs_name_types(question, found):
    _, data = question
    for table in (found[1].to_rows(), [row for row in found.to_rows() if row["index"] == 3]):
        assert table
        for row in table:
            kind = tuple(row["edge_type"].split("__"))
            assert data[kind].edge_index[:, row["column"]].tolist() == [row["source"], row["receiver"]]
            assert (row["source_type"], row["receiver_type"]) == (kind[0], kind[2])
    assert {row["node_type"] for row in found.to_rows("self")} <= {"user", "movie", "genre"}
    graph = found[1].to_networkx(edges=5)
    for source, receiver, attributes in graph.edges(data=True):
        kind, column = attributes["kind"], attributes["column"]
        assert data[kind].edge_index[:, column].tolist() == [source[1], receiver[1]]


def test_metrics_ask_the_typed_model_again(question):
    model, data = question
    found = ew.explain(model, data, ("movie", [0, 3]))
    result = metrics.fidelity(found, model, data, k=2)
    for position, why in enumerate(found):
        weights = {kind: torch.ones(2, size, dtype=torch.float64) for kind, size in SIZES.items()}
        for column, kind in ((row.column, row.edge_type) for row in why.top(2)):
            weights[kind][:, column] = 0
        with torch.no_grad():
            without = float(weighted_value(model, data, weights, "movie", why.index[1], why.target))
        assert float(result.plus.value[position]) == pytest.approx(why.value - without, abs=1e-9)
    assert float(metrics.fidelity(found[0], model, data, k=2).plus.value[0]) == pytest.approx(
        float(result.plus.value[0])
    )


def test_check_and_compare_speak_of_types(question):
    ask = ew.Question(*question, ("movie", [0, 3]))
    assert re.search(r"(user|movie|genre) \d+→(user|movie|genre) \d+ for movie [03]", str(ask.check()))
    assert "gradient" in str(ask.compare(methods=["gradient", "occlusion"]))
    assert "2 layers" in repr(ask)


def test_an_explanation_without_loops_of_a_type_is_zero_there(question):
    why = ew.explain(*question, ("genre", 1))
    assert set(why.scores) == set(KINDS)
    assert float(why.scores[FOLLOWS].abs().sum()) == 0  # users that follow users are three hops away


def removed(data, gone):
    """The graph without some columns, `{edge type: columns}`."""
    other = data.clone()
    for kind, columns in gone.items():
        kept = torch.ones(SIZES[kind], dtype=torch.bool)
        kept[columns] = False
        other[kind].edge_index = data[kind].edge_index[:, kept]
    return other


def test_fidelity_by_removal_is_a_run_on_a_graph_without_these_edges(question):
    model, data = question
    found = ew.explain(model, data, ("movie", [0, 3]))
    result = metrics.fidelity(found, model, data, k=2, how="removing")
    for position, why in enumerate(found):
        gone = {}
        for column, kind in ((row.column, row.edge_type) for row in why.top(2)):
            gone.setdefault(kind, []).append(column)
        with torch.no_grad():
            without = float(call(model, removed(data, gone))["movie"][why.index[1], why.target])
        assert float(result.plus.value[position]) == pytest.approx(why.value - without, abs=1e-9)


def test_planted_truth_is_given_by_edge_type(question):
    found = ew.explain(*question, ("movie", [2, 3]))
    truth = [{} for _ in found]
    for planted, why in zip(truth, found, strict=True):
        for column, kind in ((row.column, row.edge_type) for row in why.top(2)):
            planted.setdefault(kind, torch.zeros(SIZES[kind], dtype=torch.long))[column] = 1
    assert metrics.recovery(found, truth).exact.value.tolist() == [1.0, 1.0]
    assert metrics.recovery(found[0], truth[0]).auroc.value.tolist() == [1.0]
    flat = torch.cat([truth[1].get(kind, torch.zeros(SIZES[kind], dtype=torch.long)) for kind in KINDS])
    assert metrics.recovery(found[1], flat).auroc.value.tolist() == [1.0]
    with pytest.raises(ew.InputError, match="for each edge of an edge type"):
        metrics.recovery(found, {RATES: torch.ones(3)})
    source, receiver = found[1].top(1)[0][1:3]
    paths = metrics.path_recovery(found[1], [[(source, receiver)]])
    assert paths.value.tolist() == [1.0]


def test_graphml_names_types(found, tmp_path):
    networkx = pytest.importorskip("networkx")
    found[1].to_graphml(tmp_path / "typed.graphml", labels={"user": {5: "Ann"}})
    graph = networkx.read_graphml(tmp_path / "typed.graphml")
    assert graph.nodes["user/5"]["label"] == "user Ann"
    assert graph.nodes["movie/3"] | {"type": "movie", "label": "movie 3"} == graph.nodes["movie/3"]
    assert {edge["type"] for _, _, edge in graph.edges(data=True)} <= {"__".join(kind) for kind in KINDS}
    with pytest.raises(ew.InputError, match="left out for a typed graph"):
        found[1].to_graphml(tmp_path / "typed.graphml", classes=[0])
    with pytest.raises(ew.InputError, match="mapping"):
        found[1].to_graphml(tmp_path / "typed.graphml", labels=["a"])
