"""Exports: every number that leaves is the number of the explanation."""

import sys
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import networkx
import pytest
import torch
from torch_geometric.nn import GCN

import edgewise as ew
from edgewise import Explanation, FileError, InputError, MissingExtraError, SettingError
from zoo import graph, random_edges

EDGES = torch.tensor([[0, 1, 1, 2, 2], [1, 2, 2, 2, 0]])  # parallel edges and a loop
SCORES = torch.tensor([[1.0, 0.0, -2.0, 0.5, 0.0], [0.0, 0.25, 3.0, 0.0, 0.0]])
OWN = torch.tensor([[0.0, 1.5, 0.0], [torch.nan, torch.nan, torch.nan]])
SPACE = "{http://graphml.graphdrawing.org/xmlns}"


def layered():
    return Explanation(SCORES, EDGES, 3, index=2, target=1, value=0.5, level="layer", self_scores=OWN)


def flat():
    return Explanation(SCORES[0], EDGES, 3, index=2, target=1, value=0.5, self_scores=OWN[0])


@pytest.fixture(scope="module")
def explained():
    data = graph(random_edges(8, 20), 8)
    torch.manual_seed(0)
    model = GCN(data.x.size(1), 8, 2, 3).eval().to(data.x.dtype)
    return {
        (level, method): ew.explain(model, data, index=[4, 0, 2], level=level, method=method)
        for level in ("input", "layer")
        for method in ("gradient", "random")
    } | {"walks": ew.walks(model, data, index=4, k=3, sign="magnitude")}


def test_networkx_has_every_edge_with_its_score_in_every_layer():
    made = layered().to_networkx()
    assert made.number_of_edges() == 5
    for source, receiver, column, about in made.edges(keys=True, data=True):
        assert (source, receiver) == tuple(EDGES[:, column].tolist())
        assert about["layers"] == SCORES[:, column].tolist()
        assert about["score"] == float(SCORES[:, column].sum())
    assert made.nodes[1]["self_layers"][0] == 1.5
    assert [node for node, about in made.nodes(data=True) if about.get("explained")] == [2]


def test_networkx_of_the_strongest_edges_has_only_their_nodes_and_the_target():
    made = flat().to_networkx(edges=1)
    assert [(u, v, about["score"]) for u, v, about in made.edges(data=True)] == [(1, 2, -2.0)]
    assert set(made) == {1, 2}


def test_a_graphml_file_reads_back_with_plain_numbers(tmp_path):
    path = tmp_path / "why.graphml"
    layered().to_graphml(path, labels={2: "<script>\x00&"}, classes=[0, 0, 1])
    made = networkx.read_graphml(path, node_type=int, force_multigraph=True)
    assert made.number_of_edges() == 5
    for source, receiver, about in made.edges(data=True):
        assert (source, receiver) == tuple(EDGES[:, about["column"]].tolist())
        assert [about["score_layer_0"], about["score_layer_1"]] == SCORES[:, about["column"]].tolist()
        assert about["weight"] == abs(about["score"])
    assert made.nodes[2] == {"label": "<script> &", "class": "class 1", "explained": 1, "self_score_layer_0": 0.0}
    assert made.nodes[1]["self_score_layer_0"] == 1.5


def test_a_graphml_file_declares_every_attribute_with_a_plain_type_and_has_no_nan(tmp_path):
    path = tmp_path / "why.graphml"
    layered().to_graphml(path)
    root = ElementTree.parse(path).getroot()
    assert {key.get("attr.type") for key in root.iter(f"{SPACE}key")} <= {"double", "long", "int", "string"}
    assert "nan" not in path.read_text()
    keys = [key.get("id") for key in root.iter(f"{SPACE}key")]
    assert len(keys) == len(set(keys))


def test_a_graphml_file_that_cannot_be_written_is_not_there(tmp_path):
    with pytest.raises(FileError, match="cannot be written"):
        flat().to_graphml(tmp_path / "no such folder" / "why.graphml")
    with pytest.raises(InputError, match="labels"):
        flat().to_graphml(tmp_path / "why.graphml", labels=["only one"])
    assert list(tmp_path.iterdir()) == []


def test_rows_are_the_scores_other_than_zero():
    assert flat().to_rows() == [
        {"index": 2, "target": 1, "column": 0, "source": 0, "receiver": 1, "score": 1.0},
        {"index": 2, "target": 1, "column": 2, "source": 1, "receiver": 2, "score": -2.0},
        {"index": 2, "target": 1, "column": 3, "source": 2, "receiver": 2, "score": 0.5},
    ]
    assert [(row["layer"], row["column"], row["score"]) for row in layered().to_rows()] == [
        (0, 0, 1.0),
        (0, 2, -2.0),
        (0, 3, 0.5),
        (1, 1, 0.25),
        (1, 2, 3.0),
    ]


def test_self_scores_have_rows_of_their_own_without_those_that_are_unknown():
    assert layered().to_rows("self") == [{"index": 2, "target": 1, "layer": 0, "node": 1, "score": 1.5}]
    assert Explanation(SCORES[0], EDGES, 3, 2, 1, 0.5).to_rows("self") == []


@pytest.mark.parametrize("what", ["edges", "self"])
@pytest.mark.parametrize("method", ["gradient", "random"])
@pytest.mark.parametrize("level", ["input", "layer"])
def test_the_rows_of_a_set_are_those_of_its_explanations(explained, level, method, what):
    found = explained[level, method]
    each = [{"position": place, **row} for place, why in enumerate(found) for row in why.to_rows(what)]
    assert found.to_rows(what) == each
    assert each or (method, what) == ("random", "self")


def test_the_rows_of_walks_have_rank_score_and_nodes(explained):
    walks = explained["walks"]
    rows = walks.to_rows()
    assert [row["rank"] for row in rows] == [1, 2, 3]
    assert [tuple(row[f"node_{column}"] for column in range(3)) for row in rows] == [walk.nodes for walk in walks]
    assert [row["score"] for row in rows] == [walk.score for walk in walks]


def test_the_network_of_walks_has_every_step_of_every_walk(explained, tmp_path):
    walks = explained["walks"]
    made = walks.to_networkx()
    for rank, walk in enumerate(walks, start=1):
        steps = {(u, v) for u, v, key in made.edges(keys=True) if key == rank}
        assert steps == {((layer, walk.nodes[layer]), (layer + 1, walk.nodes[layer + 1])) for layer in range(2)}
    walks.to_graphml(tmp_path / "walks.graphml", labels={4: "the target"})
    read = networkx.read_graphml(tmp_path / "walks.graphml", force_multigraph=True)
    assert read.number_of_edges() == 6
    assert read.nodes["2/4"]["label"] == "the target"


def test_a_frame_has_the_columns_of_the_rows(explained, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda columns: columns))
    for found in (flat(), layered(), explained["layer", "gradient"], explained["walks"]):
        frame = found.to_frame()
        assert [dict(zip(frame, row, strict=True)) for row in zip(*frame.values(), strict=True)] == found.to_rows()


def test_without_pandas_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"edgewise\[table\]"):
        flat().to_frame()


def test_without_networkx_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(MissingExtraError, match=r"edgewise\[plot\]"):
        flat().to_graphml("never.graphml")


def test_an_unknown_kind_of_rows_is_refused():
    with pytest.raises(SettingError, match="Unknown `what` 'nodes'"):
        flat().to_rows("nodes")
