"""A folder with a table for each node type and edge type, from the tables to every command."""

import csv
import json

import pytest
import torch
from torch_geometric.data import HeteroData

import edgewise as ew
from command_line import call, error, printed
from edgewise.cli.read.data import read_data
from typed_tables import COUNTS, NAMES, PAID, PAYS, USES, by_hand, network, tables, write, written

NET = ("--model", "net.py:Net", "--weights", "weights.pt", "--data", "shop")


@pytest.fixture
def shop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path)
    return tmp_path / "shop"


def test_a_folder_of_typed_tables_is_the_typed_graph_that_it_says(shop):
    found, true = read_data("shop", None, None, 0), by_hand(tables())
    assert found.data.node_types == ["account", "card", "merchant"]
    assert set(found.data.edge_types) == {PAYS, USES, PAID}
    for name in true.node_types:
        torch.testing.assert_close(found.data[name].x, true[name].x)
    for kind in true.edge_types:
        assert torch.equal(found.data[kind].edge_index, true[kind].edge_index)
    assert found.data["account"].feature_names == ["age", "debt"]
    assert found.data[PAYS].edge_attr.shape == (20, 1)
    assert found.data[PAYS].feature_names == ["amount"]
    assert found.data[PAYS].edge_weight.shape == (20,)
    assert found.notes == ("Columns of texts, not used as features: city of account.",)
    account = found.of_type("account")
    assert (account.size, account.ids[1], account.names[1], account.class_names) == (9, "a1", "Bob", ["fine", "fraud"])
    assert account.labels[:3].tolist() == [1, 0, 0]
    assert account.parts["test"].tolist() == [6, 7, 8]
    assert "2 features of account, 1 features of card, 3 features of merchant" in found.shape_hint


def test_a_file_with_a_typed_graph_is_read_too(shop):
    data = by_hand(tables())
    data["account"].test_mask = torch.arange(9) > 6
    torch.save(data, "shop.pt")
    again = read_data("shop.pt", None, None, 0)
    assert isinstance(again.data, HeteroData)
    torch.save((data.to_dict(), None, HeteroData), "processed.pt")
    assert read_data("processed.pt", None, None, 0).data.edge_types == data.edge_types
    asked = ("--model", "net.py:Net", "--weights", "weights.pt", "--data", "shop.pt", "--index", "account:test")
    assert [one["index"] for one in printed("explain", *asked)["targets"]] == [["account", 7], ["account", 8]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("account:a3,a5", [3, 5]),
        ("account:a3, account:a5", [3, 5]),
        ("account:row:1", [1]),
        ("account:test", [6, 7, 8]),
        ("account:Bob", [1]),
        ("merchant:3,0-1", [3, 0, 1]),
        ("card:all", [0, 1, 2, 3, 4]),
    ],
)
def test_an_index_names_a_type_and_its_nodes(shop, text, expected):
    said = printed("ask", *NET, "--index", text) if not text.startswith("card") else None
    if said is None:  # the model says nothing about cards
        assert "none of 'card'" in error("ask", *NET, "--index", text)
        return
    assert [one["index"] for one in said["targets"]] == [[text.split(":")[0], number] for number in expected]


def test_the_command_gives_the_numbers_of_the_library_under_the_names_of_the_tables(shop):
    (one,) = printed("explain", *NET, "--index", "account:Bob", "--level", "layer", "--target", "fraud")["targets"]
    why = ew.explain(network(), by_hand(tables()), ("account", 1), level="layer", target=1)
    assert (one["index"], one["name"], one["class_name"]) == (["account", 1], "account Bob", "fraud")
    for edge, row in zip(one["edges"], why.top(10, by="magnitude"), strict=True):
        (score, source, receiver, column, layer), kind = row, row.edge_type
        assert edge["score"] == pytest.approx(score, abs=1e-6)
        assert (tuple(edge["source"]), tuple(edge["receiver"]), tuple(edge["type"])) == (source, receiver, kind)
        assert (edge["column"], edge["layer"]) == (column, layer)
        names = {
            "account": lambda n: f"account {NAMES[n]}",
            "card": lambda n: f"card c{n}",
            "merchant": lambda n: f"merchant {n}",
        }
        assert (edge["source_name"], edge["receiver_name"]) == (
            names[source[0]](source[1]),
            names[receiver[0]](receiver[1]),
        )
    shown = call("explain", *NET, "--index", "account:Bob").stdout
    assert "–used_by→ account a1 Bob" in shown


def test_features_of_a_typed_graph_have_their_values(shop):
    (one,) = printed("features", *NET, "--index", "account:Bob", "--method", "occlusion")["targets"]
    data = by_hand(tables())
    assert one["features"]
    for row in one["features"]:
        kind, number = row["node"]
        assert row["feature_value"] == pytest.approx(float(data[kind].x[number, row["feature"]]))


def test_scores_are_written_with_types_and_names(shop):
    csv_rows = call("explain", *NET, "--index", "account:a0,a1", "--out", "rows.csv")
    assert "Written" in csv_rows.stderr
    head = (shop.parent / "rows.csv").read_text().splitlines()[0].split(",")
    assert {"index_type", "edge_type", "source_type", "source_name", "receiver_name"} <= set(head)
    call("explain", *NET, "--index", "account:a0,a1", "--level", "layer", "--out", "why.npz")
    again, direct = ew.load("why.npz"), ew.explain(network(), by_hand(tables()), ("account", [0, 1]), level="layer")
    for one, other in zip(again, direct, strict=True):
        assert one.index == other.index
        for kind in (PAYS, PAID, USES):
            torch.testing.assert_close(one.scores[kind], other.scores[kind])
    assert json.loads((shop.parent / "why.json").read_text())["question"]["index"] == "account:a0,a1"


def test_walks_are_written_with_types_and_names_and_come_back(shop):
    call("walks", *NET, "--index", "account:a3,a5", "--top", "3", "--out", "walks.csv")
    rows = list(csv.DictReader((shop.parent / "walks.csv").read_text().splitlines()))
    true = [walk for one in ew.walks(network(), by_hand(tables()), ("account", [3, 5]), k=3) for walk in one]
    assert [float(row["score"]) for row in rows] == pytest.approx([walk.score for walk in true], rel=1e-4)
    named = [tuple((row[f"node_{i}_type"], int(row[f"node_{i}"])) for i in range(3)) for row in rows]
    assert named == [walk.nodes for walk in true]


def test_check_and_compare_take_typed_folders(shop):
    assert "account" in call("check", *NET, "--index", "account:a0,a1").stdout
    said = printed("compare", *NET, "--index", "account:a0,a1", "--method", "gradient,occlusion", "--level", "input")
    assert said["command"] == "compare"


def test_a_mistake_in_a_typed_table_is_one_sentence_with_its_file_and_line(shop):
    def said(name, columns, *more):
        before = (shop / f"{name}.csv").read_text() if (shop / f"{name}.csv").is_file() else None
        write(shop, name, columns)
        sentence = error("explain", *NET, "--index", "account:a0", *more)
        (shop / f"{name}.csv").unlink() if before is None else (shop / f"{name}.csv").write_text(before)
        return sentence

    pays, account = tables()["edges_account__pays__merchant"], tables()["nodes_account"]
    assert "edges_account__pays__merchant.csv line 4 names 9 as target; shop/nodes_merchant.csv has no ids" in said(
        "edges_account__pays__merchant", pays | {"target": [0, 0, 9, *[0] * 17]}
    )
    assert (
        "edges_account__pays__merchant.csv line 2 names 'x' as source, which is not an id in shop/nodes_account.csv"
        in said("edges_account__pays__merchant", pays | {"source": ["x", *pays["source"][1:]]})
    )
    assert "nodes_account.csv line 3: column debt must hold numbers, got 'n/a'" in said(
        "nodes_account", account | {"debt": [1, "n/a", *[2] * 7]}
    )
    assert "edges_account__merchant.csv must name a source type, a relation and a target type" in said(
        "edges_account__merchant", pays
    )
    assert "joins account and shop, but there is no nodes_shop.csv" in said("edges_account__pays__shop", pays)
    assert "has nodes.csv, a table of one type, beside tables of several types" in said("nodes", account)
    (shop.parent / "empty").mkdir()
    write(shop.parent / "empty", "edges_account__pays__merchant", pays)
    assert "none of nodes" in error("explain", *NET[:-1], "empty", "--index", "account:a0")


@pytest.mark.parametrize(
    ("index", "text"),
    [
        ("all", "must name a node type, got 'all'. The types are account, card, merchant"),
        ("shop:3", "must name a node type"),
        ("account:a0,merchant:1", "one node type at a time, got account and merchant"),
        ("account:zoe", "names 'zoe', which is not an id of the data"),
        ("merchant:4", "there are 4 nodes, 0 to 3"),
    ],
)
def test_an_index_without_a_type_is_refused_with_the_types(shop, index, text):
    assert text in error("explain", *NET, "--index", index)


def test_a_type_without_edges_and_a_table_without_rows_are_fine(shop):
    write(shop, "edges_card__used_by__account", {"source": [], "target": []})
    found = read_data("shop", None, None, 0).data
    assert found[USES].edge_index.shape == (2, 0)
    assert found[USES].edge_index.dtype == torch.int64
    assert found["card"].num_nodes == COUNTS["card"]
    assert printed("explain", *NET, "--index", "account:a0")["targets"]
